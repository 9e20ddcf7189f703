"""A pickle's cost before it is loaded: few values, and what is hashed there small. Then where the model is.

A tuple of a tuple twice, forty times over, is a few bytes; as the key of a dict it takes hours to
hash, in one step that nothing can interrupt. This walks the opcodes without making any value.
Which names a pickle may use is for its unpickler to decide.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from pickletools import genops, markobject, opcodes
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from torch import Tensor

from mta_viz.printed import printable, short_repr, size_text

MOST_HASHED = 10_000  # values inside one key or one call's arguments; a tensor's call has about 20
MOST_BYTES = 16 * 2**20  # of the pickles that list a file's tensors, about 200 bytes each
MOST_STEPS = 1_000_000  # of such a pickle, about 40 a tensor: each may make a value of 100 bytes
MOST_NAMES = 8 * 2**20  # bytes of a ZIP's table of records, about 100 each
ZIP_MAGIC = b"PK\x03\x04"
Size = list[int]  # one number, the values inside a value; a list, since containers grow in place

_GET, _PUT = {"GET", "BINGET", "LONG_BINGET"}, {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GROWING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}
_LEAVES = {opcode.name for opcode in opcodes if not opcode.stack_before and opcode.stack_after} - {
    "MARK",
    *_GET,
}
_CONSTANTS = {name for name in _LEAVES if not name.startswith("EMPTY_")}  # nothing is added to these
# How many values an opcode takes (apart from those above the last mark), and whether it takes those too.
_TAKES = {
    opcode.name: (opcode.stack_before.index(markobject), True)
    if markobject in opcode.stack_before
    else (len(opcode.stack_before), False)
    for opcode in opcodes
}
# Which of the values an opcode takes are hashed, or may be by the call it makes.
_HASHED = {
    **dict.fromkeys(("SETITEM", "SETITEMS"), slice(1, None, 2)),
    **dict.fromkeys(("ADDITEMS", "REDUCE", "NEWOBJ", "NEWOBJ_EX"), slice(1, None)),
    **dict.fromkeys(("OBJ", "INST", "FROZENSET"), slice(None)),
    "DICT": slice(0, None, 2),
}


# What torch lets a pickle call that makes as much as a number, or another tensor, says.
_COSTLY = re.compile(
    r"(builtins|__builtin__) bytearray|torch(\.\w+)* \w*Tensor|torch(\.\w+)* (Untyped|Typed)Storage|"
    r"torch\._utils _rebuild_(device_tensor|nested_tensor|wrapper_subclass)\w*"
)
_OF_ONE = 64  # characters of a text that count as one value


class TooLargeError(ValueError):
    """A pickle that would take for ever to load, or all memory."""


class ForeignError(ValueError):
    """A ZIP that is none of torch.save's."""


class _Bounded:
    """An open file of which little is read at once: `zipfile` reads a table of any length, and lists it."""

    def __init__(self, file: BufferedReader | BytesIO) -> None:
        self.file, self.most = file, MOST_NAMES
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > self.most:
            raise TooLargeError(f"its table of records takes more than {size_text(self.most)}")
        return self.file.read(size)


@contextmanager
def opened_zip(file: BufferedReader | BytesIO, most: int) -> Iterator[ZipFile]:
    """A ZIP whose table of records is small, of records that unpack no further than is read of them.

    At most `most` bytes of the file are read at once. Raises TooLargeError, and BadZipFile for a damaged one.
    """
    bounded: Any = _Bounded(file)
    with ZipFile(bounded) as archive:
        if any(record.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for record in archive.infolist()):
            raise TooLargeError("it is packed otherwise than ZIP files usually are")
        bounded.most = most
        yield archive


def check_torch_file(file: BufferedReader | BytesIO) -> bool:
    """Whether what torch.save wrote is a ZIP, its format of today; leaves the file at its start.

    Raises TooLargeError for such a pickle in it, or one that unpacks to more than any checkpoint's;
    ForeignError for a ZIP of another program, or of torch.jit. Other damage is left for torch.load to find,
    but for a ZIP that is none: nothing of it could be checked.
    """
    zipped = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    file.seek(0)
    try:
        if zipped:
            for content in _zipped_pickles(file):
                check_pickle(content)
        else:  # the older format: a magic number, a version, the system, the object, its storages' keys
            for _ in range(5):
                check_pickle(file)
    except (TooLargeError, ForeignError, BadZipFile):
        raise
    except Exception:  # a damaged pickle raises many kinds
        return zipped
    finally:
        file.seek(0)
    return zipped


def _zipped_pickles(file: BufferedReader | BytesIO) -> Iterator[bytes]:
    """Every record that torch may take for the pickle: it looks names up without regard to case."""
    with opened_zip(file, MOST_BYTES) as archive:
        records = archive.infolist()
        if any(record.filename.endswith("/constants.pkl") for record in records):
            program = "it is a TorchScript archive, a program with its weights"
            raise ForeignError(f"{program}; save the model's state_dict with torch.save")
        if not any(record.filename.endswith("data.pkl") for record in records):
            raise ForeignError("it is a ZIP, but none of torch.save; give what torch.save wrote")
        if any(record.compress_type != ZIP_STORED for record in records):
            raise TooLargeError("it is compressed, which torch never does")
        pickles = [record for record in records if record.filename.lower().endswith("data.pkl")]
        if sum(record.file_size for record in pickles) > MOST_BYTES:
            raise TooLargeError(f"its list of tensors takes more than {size_text(MOST_BYTES)}")
        yield from map(archive.read, pickles)


def check_pickle(content: bytes | BufferedReader | BytesIO, most: int = MOST_STEPS) -> None:
    """Raises TooLargeError for too many values, in all or in one key; almost anything when damaged.

    An open file is read up to the end of its pickle.
    """
    stack: list[Size | None] = []  # None: a mark
    memo: dict[object, Size | None] = {}
    calls = _Calls(most)
    for step, (opcode, argument, _) in enumerate(genops(content)):
        if step > most:
            raise TooLargeError(f"it has more than {most:,} values")
        name = opcode.name
        if name in _CONSTANTS:
            stack.append(calls.callable(str(argument)) if name == "GLOBAL" else _constant(argument))
        elif name in _PUT:
            place = len(memo) if argument is None else argument
            if place > len(memo) + MOST_HASHED:  # the unpickler makes room for all numbers below it
                raise TooLargeError("it numbers its values far beyond their count")
            memo[place] = stack[-1]
        elif name in _GET:
            stack.append(memo[argument])
        elif name in ("MARK", "DUP"):
            stack.append(stack[-1] if name == "DUP" else None)
        elif name not in ("PROTO", "FRAME"):
            taken = _taken(stack, *_TAKES[name])
            if name in ("REDUCE", "NEWOBJ"):
                calls.check(*taken)
            if any(size[0] > MOST_HASHED for size in taken[_HASHED.get(name, slice(0))]):
                raise TooLargeError("it holds a key made of too many values")
            total = min(sum([size[0] for size in taken]), 2 * MOST_HASHED)
            if name in _GROWING:
                grown = [0] if taken[0] is _ONE else taken[0]  # constants are one list for all pickles
                grown[0] = total
                stack.append(grown)
            elif opcode.stack_after:
                stack.append([1 + total])


_ONE: Size = [1]


def _constant(argument: object) -> Size:
    long = isinstance(argument, str | bytes) and len(argument) >= _OF_ONE
    return [1 + len(argument) // _OF_ONE] if long else _ONE  # type: ignore[arg-type]


class _Calls:
    """What a pickle calls, and how many values it hands over in all."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.names: dict[int, tuple[str, Size]] = {}  # by the identity of what stands for it on the stack

    def callable(self, name: str) -> Size:
        """What stands on the stack for a thing of that name."""
        value: Size = [1]
        self.names[id(value)] = (name, value)
        return value

    def check(self, called: Size, arguments: Size) -> None:
        """Raises TooLargeError where a call may take any memory."""
        name, _ = self.names.get(id(called), ("", called))
        self.left -= arguments[0]
        if _COSTLY.fullmatch(name):
            raise TooLargeError(f"it calls {name.replace(' ', '.')}, which may take any memory")
        if self.left < 0:
            raise TooLargeError("its calls copy too many values")


def _taken(stack: list[Size | None], count: int, to_mark: bool) -> list[Size]:
    """Take from the stack what an opcode does: so many values, below all those above the last mark."""
    if to_mark:
        mark = len(stack) - 1
        while stack[mark] is not None:
            mark -= 1
        del stack[mark]
        count += len(stack) - mark
    if count > len(stack):
        raise ValueError("the pickle takes more values than it has")
    taken = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    if None in taken:
        raise ValueError("the pickle takes a mark for a value")
    return taken  # type: ignore[return-value]


_ENTRIES = ("model", "state_dict", "model_state_dict", "module", "weights")  # of Lingua, and of others
_OPTIMIZERS = ("optim", "optimizer", "optimizer_state_dict", "optimizer_states", "param_groups")


def state_dict(loaded: object) -> tuple[str, dict[object, object] | None]:
    """The entry that holds the model, none of a bare state dict, and the model; None where there is none.

    Under a name of somebody's own it is found where no other entry but an optimiser's state holds tensors.
    """
    entry, model = _named_or_bare(loaded)
    if entry or not isinstance(loaded, dict):
        return entry, model
    held = _entries_of_tensors(loaded)
    if len(held) == 1 and _n_tensors(held[0][1]) > _n_tensors(loaded):
        return held[0]
    return "", model


def _named_or_bare(loaded: object) -> tuple[str, dict[object, object] | None]:
    if not isinstance(loaded, dict):
        return "", None
    for entry in _ENTRIES:
        model = loaded.get(entry)
        if isinstance(model, dict) and (entry == "model" or _n_tensors(model)):
            return entry, model
    return "", loaded if _n_tensors(loaded) else None


def _entries_of_tensors(loaded: dict[object, object]) -> list[tuple[str, dict[object, object]]]:
    inner = ((key, *_named_or_bare(value)) for key, value in loaded.items() if key not in _OPTIMIZERS)
    return [(f"{name_of(key)}.{entry}".rstrip("."), model) for key, entry, model in inner if model]


def _n_tensors(values: dict[object, object]) -> int:
    return sum(isinstance(value, Tensor) for value in values.values())


def without_model(name: str, loaded: object) -> str:
    """Why a file that torch.save wrote holds no model, by what is in it."""
    if isinstance(loaded, Tensor):
        return f'{name} holds a single tensor; expected a "model" dict of tensors'
    if not isinstance(loaded, dict):
        return f'{name} has no "model" dict of tensors; it holds: {type(loaded).__name__}'
    if len(several := [entry for entry, _ in _entries_of_tensors(loaded)]) > 1:
        named = ", ".join(several)[:200]
        return f'{name} holds tensors in {named}, none of them "model"; save the one to open under that name'
    if any(entry in loaded for entry in _OPTIMIZERS):
        return f"{name} holds an optimiser's state and no model; give the model's file"
    held = ", ".join(map(name_of, loaded))[:200] or "nothing"
    return f'{name} has no "model" dict of tensors; it holds: {held}'


def name_of(key: object) -> str:
    """A key of a pickle in print; a number may have too many digits."""
    return printable(key) if isinstance(key, str) else short_repr(key)
