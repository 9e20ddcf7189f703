"""Pickles that would take for ever to load are refused before they are loaded."""

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from checkpoint_samples import lingua_tensors, tiny_config, tiny_params, write_consolidated, write_distributed
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.checkpoint.pickles import TooLargeError, check_pickle, check_torch_file
from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.errors import CheckpointError

# A tuple of an empty tuple twice, of that twice, and so on: 2**60 values in about 120 bytes.
DOUBLED = b")" + b"2\x86" * 60
BOMBS = {
    "key": b"\x80\x02}" + DOUBLED + b"K\x01s.",
    "one of several keys": b"\x80\x02}(K\x00K\x00" + DOUBLED + b"K\x01u.",
    "a dict in one go": b"\x80\x02(" + DOUBLED + b"K\x01d.",
    "remembered": b"\x80\x02})" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60)) + b"K\x01s.",
    "in a set": b"\x80\x04\x8f(" + DOUBLED + b"\x90.",
    "a frozen set": b"\x80\x04(" + DOUBLED + b"\x91.",
    "an argument": b"\x80\x02ctorch\nSize\n" + DOUBLED + b"\x85R.",
    "by way of a list": b"\x80\x02ctorch\nSize\n](" + DOUBLED + b"e\x85R.",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_what_would_be_hashed_for_ever_is_refused(bomb: bytes) -> None:
    pickletools.dis(bomb, io.StringIO())  # it is a valid pickle
    with pytest.raises(TooLargeError):
        check_pickle(bomb)


PLAIN = st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3)
KEYS = st.recursive(
    PLAIN, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6
)
VALUES = st.recursive(
    KEYS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


@given(VALUES, st.integers(0, pickle.HIGHEST_PROTOCOL))
@settings(max_examples=200, derandomize=True, database=None)
def test_whatever_is_small_passes(value: object, protocol: int) -> None:
    check_pickle(pickle.dumps([value, value, OrderedDict(a=value)], protocol))


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_passes_and_the_file_is_left_at_its_start(zipped: bool) -> None:
    file = io.BytesIO()
    tensors = {f"layers.{i}.weight": torch.ones(2, 3) for i in range(2000)}
    torch.save({"model": tensors}, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    check_torch_file(file)
    assert file.tell() == 0
    assert len(torch.load(file, weights_only=True)["model"]) == 2000


def rewritten(content: bytes, pickled: bytes) -> bytes:
    """A file of torch.save with another pickle in it, stored as torch stores it."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(new, "w") as made:
        for name in old.namelist():
            made.writestr(name, pickled if name.endswith("/data.pkl") else old.read(name))
    return new.getvalue()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_consolidated_file_with_a_bomb_is_refused_at_once(tmp_path: Path, zipped: bool) -> None:
    folder = write_consolidated(tmp_path, tiny_params(), {})
    file = folder / "consolidated.pth"
    if zipped:
        file.write_bytes(rewritten(file.read_bytes(), BOMBS["remembered"]))
    else:
        file.write_bytes(BOMBS["remembered"])
    with pytest.raises(CheckpointError, match="a key made of too many values, which no checkpoint needs"):
        read_checkpoint(folder)


def test_a_distributed_folder_with_a_bomb_is_refused_at_once(tmp_path: Path) -> None:
    tensors = {f"model.{key}": value for key, value in lingua_tensors(tiny_config()).items()}
    folder = write_distributed(tmp_path, tiny_params(), tensors, 1)
    (folder / ".metadata").write_bytes(BOMBS["key"])
    with pytest.raises(CheckpointError, match=r"\.metadata cannot be read: it holds a key made of too many"):
        read_summary(folder)


def test_a_constant_that_a_damaged_pickle_fills_stays_small_in_the_next_one() -> None:
    check_pickle(b"N" + b"Nb" * 20 + b".")  # None is given a state of None, over and over
    check_pickle(pickle.dumps({("a", 1): None}))
