"""Files of every kind, damaged at random: each opens, or is refused in words, in time and memory.

`make fuzz`, or python -m benchmarks.fuzz [CASES] [SEED]. A case is a function of seed and number alone. Where
a file holds JSON, a third of the damage is to bytes, a third to values, and a third is none: the same values
as another program writes them, which has to open. Of each kind 30 % open, for refusing all is no skill.
"""

import io
import json
import multiprocessing
import random
import re
import resource
import struct
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import normalizers, processors

import mta_viz
from benchmarks.tables import replace_table
from mta_viz.analysis.cause.effects import read_effects
from mta_viz.analysis.cause.shapley_file import read_shapley
from mta_viz.checkpoint.history import read_history
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import MTAOptions
from mta_viz.errors import MtaVizError
from mta_viz.exporting import provenance, saved
from mta_viz.model.plans import plan_from_text
from mta_viz.run.files import read_run
from mta_viz.run.named_tasks import read_task
from mta_viz.run.scoring import write_inserted
from mta_viz.tokenizers.loading import load_tokenizer
from tests.checkpoint.checkpoint_samples import (
    lingua_tensors,
    random_state,
    tiny_config,
    write_distributed,
    write_sample,
)
from tests.gguf_files import NAMES, random_arrays, sizes, write_gguf
from tests.tokenizers.conftest import byte_level_bpe

CASES, PROCESSES = 2000, 2
MOST_SECONDS, MOST_BYTES = 10.0, 2**29  # of a case
LINES, CHARACTERS = 41, 2400  # of a message; of one of its lines
ASSETS = Path(__file__).parents[1] / "assets" / "blocks-n5-mta"


@dataclass(frozen=True)
class Kind:
    """`make` writes the files of one kind into a folder, `read` opens them."""

    make: Callable[[Path], object]
    read: Callable[[Path], object]


def _native(folder: Path, mta: MTAOptions | None = None) -> Path:
    config = tiny_config() if mta is None else tiny_config(mta)
    write_native(
        folder, config, random_state(config), tokenizer_name="char", tokenizer_path=None, dtype=torch.float32
    )
    return folder


def _distributed(folder: Path) -> None:
    config = tiny_config()
    write_distributed(folder, params_from_config(config, "char", None), lingua_tensors(config), 2)


def _huggingface(folder: Path) -> None:
    s, arrays = sizes(), random_arrays(sizes(), tied=True)
    tensors = {
        "model.embed_tokens.weight": arrays["token_embd.weight"],
        "model.norm.weight": arrays["output_norm.weight"],
    }
    for layer in range(s["layers"]):
        tensors |= {
            f"model.layers.{layer}.{to}.weight": arrays[f"blk.{layer}.{name}.weight"]
            for name, to in NAMES.items()
        }
    save_file(
        {name: torch.from_numpy(values) for name, values in tensors.items()}, folder / "model.safetensors"
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": s["d_model"],
        "intermediate_size": s["d_mlp"],
        "num_hidden_layers": s["layers"],
        "num_attention_heads": s["heads"],
        "num_key_value_heads": s["kv_heads"],
        "vocab_size": s["vocab"],
        "max_position_embeddings": s["n_ctx"],
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    }
    (folder / "config.json").write_text(json.dumps(config))


def _adapter(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as base:
        model = mta_viz.load(_native(Path(base), MTAOptions()))
        write_inserted(folder / "a.safetensors", model, mta_viz.insert_mta(model, [0], kernel=(2, 3)))


def _run(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as base:
        trace = mta_viz.capture(mta_viz.load(_native(Path(base))), "a#run")
        mta_viz.save_trace(trace, folder / "run.safetensors", stages=[mta_viz.Stage.PATTERN])


def _session(folder: Path) -> None:
    carried = (saved.Carried("a text"),)
    session = saved.Session("Kernels", {"ck": "tiny", "l": "1"}, "a prompt", "0" * 64, carried)
    with zipfile.ZipFile(io.BytesIO(saved.session_bytes(session, []))) as archive:
        archive.extractall(folder)


def _read_session(folder: Path) -> None:
    members = [path for path in folder.rglob("*") if path.is_file()]
    files = [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in members]
    saved.read_session(saved.zipped(files))


def _figure(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as base:
        trace = mta_viz.capture(mta_viz.load(_native(Path(base))), "a#run")
        origin = provenance.provenance_of(mta_viz.figure("attention-map", trace, layer=1, head=2, stage="kq"))
    (folder / "a.json").write_text(origin.text("a.html"))


@cache
def _config_of_asset() -> Any:
    return read_checkpoint(ASSETS).config


def _copied(*names: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes((ASSETS / name).read_bytes())

    return make


def _text(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _tokenizer(folder: Path) -> None:
    library = byte_level_bpe()
    library.normalizer = normalizers.NFC()
    library.post_processor = processors.TemplateProcessing("<BOS> $A", special_tokens=[("<BOS>", 0)])
    library.save(str(folder / "tokenizer.json"))


def _use_tokenizer(folder: Path) -> None:
    tokenizer = load_tokenizer("tokenizers", "tokenizer.json", folder=folder)
    tokenizer.decode(tokenizer.encode("The old ferry, café 日本").ids)


PLAN = [
    {"kind": "kernel_from", "layer": 1, "head": 1, "where": "pre", "source": 0},
    {"kind": "bypass_gate", "layer": 0},
    {"kind": "replace_kernel", "layer": 1, "head": 0, "where": "pre", "taps": [[0.0, 0.5], [0.0, 1.0]]},
]
TASK = '{"prompt": "one and two are", "answer": " three"}\n' * 3
KINDS: dict[str, Kind] = {
    "the project's own": Kind(_native, read_checkpoint),
    "Lingua, consolidated": Kind(write_sample, read_checkpoint),
    "Lingua, distributed": Kind(_distributed, read_checkpoint),
    "Hugging Face": Kind(_huggingface, read_checkpoint),
    "GGUF": Kind(lambda folder: write_gguf(folder / "a.gguf", "llama", random_arrays(sizes()), sizes()),
                 lambda folder: read_checkpoint(folder / "a.gguf")),
    "adapters": Kind(_adapter, lambda folder: read_checkpoint(folder / "a.safetensors")),
    "tokenizers": Kind(_tokenizer, _use_tokenizer),
    "kernel histories": Kind(_copied("kernel_history.safetensors"),
                             lambda folder: read_history(folder, _config_of_asset())),
    "saved runs": Kind(_run, lambda folder: read_run(folder / "run.safetensors")),
    "effects": Kind(_copied("effects.json"), lambda folder: read_effects(folder / "effects.json")),
    "Shapley values": Kind(_copied("shapley.json"), lambda folder: read_shapley(folder / "shapley.json")),
    "sessions": Kind(_session, _read_session),
    "figures": Kind(_figure, lambda folder: provenance.read(folder / "a.json")),
    "plans": Kind(_text("plan.json", json.dumps(PLAN)),
                  lambda folder: plan_from_text((folder / "plan.json").read_text(errors="surrogateescape"))),
    "tasks": Kind(_text("task.jsonl", TASK), lambda folder: read_task(folder / "task.jsonl")),
}  # fmt: skip


DEEP = json.loads("[" * 80 + "]" * 80)
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 10**40, 0.5, float("nan"), float("inf")),
    *("", "x", "x" * 5000, "\x1b]0;a\x07\n\u202e", "../../etc"),
    *([], {}, [[]], [1, "a"], {"a": {"b": []}}, DEEP),
)


def _damaged_json(text: str, numbers: random.Random) -> str:
    """One value of it replaced, repeated, moved or taken out, or a number of thousands of digits put in."""
    data = json.loads(text)
    place: Any = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return json.dumps(numbers.choice(ODD))
        key = numbers.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or numbers.random() < 0.2:
            break
        place = place[key]
    how = numbers.randrange(2, 10)
    if how == 9:
        place[key] = [place[key] if numbers.random() < 0.5 else {}] * numbers.choice((30, 300_000))
    elif how > 5:
        place[key] = _slightly(place[key])
    elif how == 2:
        del place[key]
    elif how == 3:
        place[key] = numbers.choice(ODD)
    elif how == 4 and isinstance(place, dict):
        place[f"{key}{numbers.choice(('', ' ', 'x', chr(0)))}"] = place.pop(key)
    else:
        place[key] = "DIGITS"
    written = json.dumps(data, indent=numbers.choice((None, 1)))
    return written.replace('"DIGITS"', "9" * numbers.choice((1, 400, 6000)))


def _slightly(value: Any) -> Any:
    """Nearly the same."""
    if isinstance(value, float):
        return value * 1.0001
    return value[::-1] if isinstance(value, list) else f"{value} " if isinstance(value, str) else value


def _rewritten(text: str, numbers: random.Random) -> str:
    """The same values in another order of names, spaced and escaped otherwise."""
    how = {"indent": numbers.choice((None, 1)), "ensure_ascii": numbers.random() < 0.5}
    return json.dumps(_reordered(json.loads(text), numbers), **how) + numbers.choice(("", " ", "\n"))


def _reordered(value: Any, numbers: random.Random) -> Any:
    if isinstance(value, list):
        return [_reordered(each, numbers) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _reordered(value[key], numbers) for key in numbers.sample(list(value), len(value))}


def _with_header(content: bytes, change: Callable[[str], str]) -> bytes:
    """A safetensors file with other JSON in its header."""
    size = struct.unpack("<Q", content[:8])[0]
    header = change(content[8 : 8 + size].decode()).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _damaged_bytes(content: bytes, numbers: random.Random) -> bytes:
    at, length = numbers.randrange(len(content)), numbers.choice((1, 1, 4, 8, 100, 1000))
    end, noise = at + length, numbers.randbytes(length)
    huge = struct.pack("<Q", numbers.choice((2**28, 2**31, 2**40, 2**63, 2**64 - 1)))
    same_length = (
        lambda: content[:at] + noise[: len(content) - at] + content[end:],
        lambda: content[:at] + noise[:1] + content[at + 1 :],
        lambda: content[:at] + bytes(min(length, len(content) - at)) + content[end:],
    )
    others = (
        lambda: content[:at] + huge + content[at + 8 :],
        lambda: content[:at],
        lambda: content[:at] + noise + content[at:],
        lambda: content[:at] + content[end:],
        lambda: content + noise,
    )
    return numbers.choice(same_length if numbers.random() < 0.75 else others)()


def damaged(name: str, content: bytes, numbers: random.Random) -> tuple[bytes, bool]:
    """(content of a file, changed a little; whether it says the same)."""
    how = numbers.choice((_damaged_json, _rewritten, None))
    if how is not None and name.endswith(".safetensors"):
        return _with_header(content, partial(how, numbers=numbers)), how is _rewritten
    if how is None or not name.endswith((".json", ".jsonl")):
        return _damaged_bytes(content, numbers), False
    lines = content.decode().splitlines() if name.endswith(".jsonl") else [content.decode()]
    lines[0] = how(lines[0], numbers).replace("\n", " ")
    return "\n".join(lines).encode("utf-8", "surrogatepass"), how is _rewritten


@cache
def _sample(kind: str) -> dict[str, bytes]:
    """The whole files of a kind, by name."""
    with tempfile.TemporaryDirectory() as folder:
        KINDS[kind].make(Path(folder))
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


def _faults(message: str) -> str:
    """What is wrong with the words of a refusal."""
    lines = message.split("\n")
    if len(lines) > LINES or max(map(len, lines)) > CHARACTERS:
        return f"a message of {len(lines)} lines and {len(message)} characters"
    return "" if message and all(map(str.isprintable, lines)) else f"not printable: {message!a:.200}"


def run(number: int, seed: int) -> tuple[str, str]:
    """(kind, "opened", "refused" or what is wrong) of a case."""
    numbers = random.Random(f"{seed}-{number}")
    kind = list(KINDS)[number % len(KINDS)]
    files = dict(_sample(kind))
    name = numbers.choice([*files, max(files, key=lambda name: len(files[name]))])
    files[name], same = damaged(name, files[name], numbers)
    before, start = _peak(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for at, content in files.items():
            (Path(folder) / at).parent.mkdir(exist_ok=True)
            (Path(folder) / at).write_bytes(content)
        said = _outcome(kind, Path(folder))
    if same and said == "refused":
        said = f"{name} is refused though it says the same"
    if time.monotonic() - start > MOST_SECONDS:
        said = f"{time.monotonic() - start:.0f} s"
    return kind, f"{(_peak() - before) / 1e6:.0f} MB" if _peak() - before > MOST_BYTES else said


def _outcome(kind: str, folder: Path) -> str:
    try:
        KINDS[kind].read(folder)
    except MtaVizError as error:
        return _faults(str(error)) or "refused"
    except BaseException as error:  # a library's panic is no Exception
        return f"{type(error).__name__}: {error!s:.200}"
    return "opened"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(n_cases: int = CASES, seed: int | None = None) -> int:
    """Try so many; returns how many failed."""
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}")
    start, counts = time.monotonic(), Counter[tuple[str, str]]()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for number, (kind, said) in enumerate(
            pool.imap(partial(run, seed=seed), range(n_cases), chunksize=8)
        ):
            counts[kind, said if said in ("opened", "refused") else "failed"] += 1
            if said not in ("opened", "refused"):
                print(f"case {number} of seed {seed}, {kind}: {re.sub(chr(10), ' ', said)}")
    outcomes = ("opened", "refused", "failed")
    rows = [(kind, *(str(counts[kind, said]) for said in outcomes)) for kind in KINDS]
    totals = [sum(counts[kind, said] for kind in KINDS) for said in outcomes]
    rows.append(("all", *map(str, totals)))
    words = (
        f"{n_cases:,} damaged files, seed {seed}, {time.monotonic() - start:.0f} s on {PROCESSES} processes"
    )
    replace_table("fuzz", words, ("files of", "opened", "refused in words", "failed"), rows)
    return totals[2]


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
