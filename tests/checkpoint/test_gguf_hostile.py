"""GGUF files that lie: every count, length and offset is held against the file before memory is taken."""

import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.errors import CheckpointError, FileError
from mta_viz.tokenizers.gguf import MOST_STRINGS, read_header
from mta_viz.tokenizers.loading import settings_beside
from tests.gguf_files import random_arrays, sizes, write_gguf

HUGE = 2**60


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def header(*pairs: bytes, n_tensors: int = 0, tensors: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, len(pairs)) + b"".join(pairs) + tensors


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


LIES = {
    "no file of the kind": (b"GGML" + bytes(64), "is no GGUF file"),
    "nothing": (b"", "is cut short or damaged"),
    "version 1": (header(version=1), "is of GGUF version 1, not 2 or 3"),
    "big-endian": (header(version=3 << 24), "is big-endian"),
    "tensor count": (header(n_tensors=HUGE), f"claims {HUGE:,} tensors"),
    "key count": (b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE), f"claims {HUGE:,} keys"),
    "key length": (header(struct.pack("<Q", HUGE)), "is cut short or damaged"),
    "text length": (header(string("a") + struct.pack("<IQ", 8, HUGE)), "is cut short or damaged"),
    "texts in a list": (header(string("a") + struct.pack("<IIQ", 9, 8, HUGE)), "lists more than"),
    "numbers in a list": (header(string("a") + struct.pack("<IIQ", 9, 10, HUGE)), "is cut short or damaged"),
    "lists of lists": (header(string("a") + struct.pack("<IIQ", 9, 9, 1)), "holds lists of lists"),
    "type of a value": (header(string("a") + struct.pack("<I", 77)), "a value of the type 77"),
    "a key twice": (header(*2 * [string("a") + struct.pack("<II", 4, 1)]), "has 'a' twice"),
    "axes": (header(n_tensors=1, tensors=string("t") + struct.pack("<I", HUGE >> 32)), "axes"),
    "shape": (header(n_tensors=1, tensors=tensor("t", (HUGE, 32))), "is cut short: t ends at"),
    "offset": (header(n_tensors=1, tensors=tensor("t", (4,), offset=HUGE)), "is cut short: t ends at"),
    "type of a tensor": (header(n_tensors=1, tensors=tensor("t", (4,), kind=5)), "in the type 5"),
    "rows of a block": (header(n_tensors=1, tensors=tensor("t", (33,), kind=8)), "no multiple of Q8_0's 32"),
    "a tensor twice": (header(n_tensors=2, tensors=2 * tensor("t", (0,))), "two tensors of one name"),
    "shared bytes": (
        header(n_tensors=2, tensors=tensor("s", (4,)) + tensor("t", (4,))) + bytes(64),
        "has s and t on the same bytes",
    ),
    "alignment": (header(string("general.alignment") + struct.pack("<II", 4, 0)), "a power of two is needed"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_told(tmp_path: Path, lie: str) -> None:
    content, message = LIES[lie]
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(FileError, match="copy it or convert it again") as caught:
        read_header(file)
    assert message in str(caught.value) and str(file) in str(caught.value)


@pytest.mark.parametrize("value", [[1, 2], ["a", "b"], 1.5, "x", True])
@pytest.mark.parametrize(
    "key",
    [
        *("general.architecture", "general.type", "split.count", "llama.block_count"),
        *(f"tokenizer.ggml.{name}" for name in ("model", "tokens", "token_type", "merges", "bos_token_id")),
        *("tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_bos_token"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_words(tmp_path: Path, key: str, value: Any) -> None:
    """numpy's lists answer a comparison with a list, and numbers have no length."""
    write_gguf(tmp_path / "m.gguf", "llama", random_arrays(sizes()), sizes(), extra={key: value})
    try:
        told = read_checkpoint(tmp_path / "m.gguf").tokenizer_problem
    except CheckpointError as error:
        told = str(error)
    fits = value is True and key.endswith("add_bos_token")
    assert told is None if fits else "m.gguf cannot be used" in str(told)
    settings_beside(tmp_path / "m.gguf")


def test_a_list_of_a_million_empty_texts_is_refused_not_read(tmp_path: Path) -> None:
    count = MOST_STRINGS + 1
    (tmp_path / "m.gguf").write_bytes(
        header(string("a") + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count))
    )
    with pytest.raises(FileError, match="lists more than 1,048,576 texts"):
        read_header(tmp_path / "m.gguf")


def test_names_in_messages_are_printable(tmp_path: Path) -> None:
    arrays = random_arrays(sizes())
    arrays["blk.0.\x1b[31m"] = arrays["output_norm.weight"]
    write_gguf(tmp_path / "m.gguf", "llama", arrays, sizes())
    with pytest.raises(CheckpointError) as caught:
        read_summary(tmp_path / "m.gguf")
    assert "\x1b" not in str(caught.value) and "blk.0.\\x1b[31m" in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path / "m.gguf")
    with pytest.raises(FileError, match="is no regular file but a pipe"):
        read_header(tmp_path / "m.gguf")


OPENS = """
import resource, sys, time
from pathlib import Path
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.errors import CheckpointError
import gguf, sentencepiece.sentencepiece_model_pb2, mta_viz.tokenizers.hf_json
at_first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for file in sorted(Path(sys.argv[1]).iterdir()):
    start = time.monotonic()
    try:
        read_checkpoint(file)
        print("opened")
    except CheckpointError as error:
        assert str(error)
        print("refused")
    assert time.monotonic() - start < 10, file
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - at_first) // 1024)
"""


def test_damaged_files_are_refused_or_opened_in_bounded_memory_and_time(tmp_path: Path) -> None:
    """200 files with a few bytes changed or the end cut off, most of the changes in the header."""
    whole = tmp_path / "whole.gguf"
    write_gguf(whole, "llama", random_arrays(sizes()), sizes())
    content, rng = whole.read_bytes(), random.Random(0)
    n_header = next(iter(read_header(whole).tensors.values())).start
    files = tmp_path / "files"
    files.mkdir()
    for number in range(200):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.randrange(n_header if rng.random() < 0.9 else len(content))
            changed[place : place + rng.choice((1, 8))] = rng.choice((b"\xff", b"\x00", rng.randbytes(1)))
        if rng.random() < 0.1:
            del changed[rng.randrange(len(changed)) :]
        (files / f"{number:03}.gguf").write_bytes(changed)
    command = [sys.executable, "-c", OPENS, str(files)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    *answers, grown = result.stdout.split()
    assert len(answers) == 200 and set(answers) == {"opened", "refused"}
    assert int(grown) < 512
