"""The one door that opens a user's files: regular ones only, of a size known before any memory, read once.

Owns what may be opened and the sentences about what may not; what is in a file is its reader's. A message
names the file, what it is, what was expected and what to do, and never quotes what the file holds.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from mta_viz.errors import FileError, is_out_of_memory
from mta_viz.printed import printable, size_text

if TYPE_CHECKING:
    import torch

MIB, GIB = 2**20, 2**30
SETTINGS = MIB  # params.json, a model card, a recipe, the README beside a model
RESULTS = 64 * MIB  # tables this program wrote: a line a sample, or an effect
TEXT = 64 * MIB  # a book, a haystack: in memory up to four times that
# Of a JSON or TOML text, of some 100, 325 and 40 bytes each: objects and lists, names, other values.
MOST_GROUPS, MOST_KEYS, MOST_VALUES = 500_000, 1_000_000, 4_000_000
TENSOR_NAMES = 4 * MIB  # the header of a safetensors file, about 100 bytes a tensor
_DEVICES = dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", **_DEVICES}
ZIP, TENSORS = "a ZIP archive, as torch.save writes", "a safetensors file"
_POINTER = b"version https://git-lfs."
# What files are that are none of what they are called: how they begin.
_BEGINNINGS = {
    b"PK\x03\x04": ZIP,
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file, as Keras writes",
    b"\x1f\x8b": "packed with gzip",
    b"<": "a web page or XML",
    b"\x93NUMPY": "an array of NumPy",
    **dict.fromkeys((b"tjgg", b"fmgg", b"lmgg"), "a file of GGML, from before GGUF"),
}
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # a pickle of a number, before all others
_OPENING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe does not wait


@contextmanager
def opened(path: Path, limit: int | None = None) -> Iterator[BufferedReader]:
    """The file, to be read in parts. FileError for no regular file, more than `limit` bytes, or no access."""
    with _reasons(path):
        descriptor = os.open(path, _OPENING)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
                raise _problem(path, f"is no regular file but {kind}", "give a file")
            if limit is not None and status.st_size > limit:
                reason = f"has {size_text(status.st_size)}, more than {size_text(limit)}"
                raise _problem(path, reason, "give another")
            if _is_pointer(descriptor, status.st_size):
                reason = "is a git-LFS pointer, not the file itself"
                raise _problem(path, reason, "run `git lfs pull` where it was cloned")
        except BaseException:
            os.close(descriptor)
            raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _is_pointer(descriptor: int, n_bytes: int) -> bool:
    """Whether it is the short text that git-LFS puts in the place of a large file; stays at the start."""
    if not len(_POINTER) < n_bytes < 1024:
        return False
    content = os.read(descriptor, len(_POINTER))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content == _POINTER


def kind_of(path: Path) -> str | None:
    """What a file is by its first bytes, `a web page or XML`, say; None where they tell nothing."""
    try:
        with opened(path) as file:
            head = file.read(512)
    except FileError:
        return None
    if head[257:262] == b"ustar":
        return "a tar archive"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") <= TENSOR_NAMES:
        return TENSORS
    if head[:1] == b"\x80" and 2 <= head[1] <= 5 and not head.startswith(_OLD_TORCH):
        return "a pickle, but none of torch.save"
    return next((kind for start, kind in _BEGINNINGS.items() if head.startswith(start)), None)


def size(path: Path, limit: int | None = None) -> int:
    """Bytes of a file that can be opened. Raises as `opened`."""
    with opened(path, limit) as file:
        return os.fstat(file.fileno()).st_size


def is_there(path: Path) -> bool:
    """Whether there is anything of that name, a dangling link too; False where nobody may look."""
    with suppress(OSError, ValueError):
        return os.path.lexists(path)
    return False


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes. Raises as `opened`."""
    with opened(path, limit) as file, _reasons(path):
        n_bytes = os.fstat(file.fileno()).st_size
        content = file.read(n_bytes + 1)
    if len(content) != n_bytes:
        raise _problem(path, "changes while it is read", "try again when it is whole")
    return content


def read_text(path: Path, limit: int = TEXT) -> str:
    """The same of a UTF-8 text, without the mark some programs put before it. Raises as `opened`."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _problem(path, f"is not UTF-8 text (byte {error.start:,})", "save it as UTF-8") from None


def read_json(path: Path, limit: int = SETTINGS) -> Any:
    """What a JSON file holds. Raises as `opened`."""
    return _parsed(path, limit, json.loads, "JSON")


def read_toml(path: Path, limit: int = SETTINGS) -> dict[str, Any]:
    """What a TOML file holds. Raises as `opened`."""
    import tomllib

    return _parsed(path, limit, tomllib.loads, "TOML")


def has_few_values(text: str | bytes, share: float = 1) -> bool:
    """Whether a JSON or TOML text has at most this share of what is parsed in a few hundred MiB.

    Counted are brackets and what stands between values.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(content) <= share * MOST_GROUPS:
        return True
    counts = (sum(map(content.count, marks)) for marks in (b"{[", b":=", b",\n"))
    most = MOST_GROUPS, MOST_KEYS, MOST_VALUES
    return all(count <= share * limit for count, limit in zip(counts, most, strict=True))


def _parsed(path: Path, limit: int, parse: Callable[[str], Any], what: str) -> Any:
    text = read_text(path, limit)
    if not has_few_values(text):
        raise _problem(path, f"has more values than any {what} file read here", "give another")
    try:
        return parse(text)
    except RecursionError:
        raise _problem(path, f"is not {what} but nested too deep", "write it again") from None
    except ValueError as error:  # of JSON and TOML: the place in the text, nothing of it
        at = f" (line {error.lineno})" if hasattr(error, "lineno") else ""
        raise _problem(path, f"is not {what}{at}", "copy it or write it again") from None


@contextmanager
def open_tensors(path: Path, names: int = TENSOR_NAMES) -> Iterator[Any]:
    """A safetensors file as `safetensors.safe_open` gives it; FileError also for a damaged file.

    `names`: the most bytes that its header, with the names of all tensors, may have.
    """
    from safetensors import SafetensorError, safe_open

    with opened(path) as file:
        header = int.from_bytes(file.read(8), "little")
        there = os.fstat(file.fileno()).st_size
    if names < header <= there:
        reason = f"lists its tensors in {size_text(header)}, more than {size_text(names)}"
        raise _problem(path, reason, "give another")
    try:
        with ExitStack() as stack:
            with _mapped(path, 2 * there):  # by Rust and by torch
                tensors = stack.enter_context(safe_open(path, framework="pt"))
            yield tensors
    except OSError as error:
        raise _unreadable(path, error) from error
    except SafetensorError:
        reason, kind = "is cut short, damaged or no safetensors file", kind_of(path)
        reason = f"is {kind}, no safetensors file" if kind not in (None, TENSORS) else reason
        renamed = "save it by safetensors, or beside a params.json call it consolidated.pth"
        remedy = renamed if kind == ZIP else "copy it again"
        if not str(path).isascii() and os.fsencode(path).decode(errors="replace") != str(path):
            reason, remedy = "lies at a path that is not UTF-8, as safetensors needs it", "rename that"
        raise _problem(path, reason, remedy) from None


def load_torch(file: Path | bytes, device: "str | torch.device" = "cpu") -> Any:
    """What `torch.save` wrote: tensors and plain values alone, mapped into memory where the format allows.

    Raises as `opened` and `torch.load`, and `pickles.TooLargeError`; a file that names code is refused unrun.
    """
    import torch

    from mta_viz.checkpoint.pickles import check_torch_file

    if isinstance(file, bytes):
        check_torch_file(BytesIO(file))
        return torch.load(BytesIO(file), map_location=device, weights_only=True)
    with opened(file) as content:
        mapped = check_torch_file(content)
        source: Any = file if mapped else content  # torch maps by name only
        with _mapped(file, os.fstat(content.fileno()).st_size):
            return torch.load(source, map_location=device, weights_only=True, mmap=mapped)


def memory_left() -> int | None:
    """Bytes that this process may still take where it is limited (`ulimit -v`); None without a limit."""
    with suppress(ImportError, OSError):  # not Linux
        import resource

        most, pages = resource.getrlimit(resource.RLIMIT_AS)[0], Path("/proc/self/statm").read_text()
        left = max(most - int(pages.split()[0]) * resource.getpagesize(), 0)
        return None if most == resource.RLIM_INFINITY else left
    return None


@contextmanager
def _mapped(path: Path, n_bytes: int) -> Iterator[None]:
    """FileError where there is no memory for the file, which takes `n_bytes` to open."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        left = memory_left()
        limit = "" if left is None else f", and this process may take {size_text(left)} more (ulimit -v)"
        remedy = "raise that limit, or end other programs"
        raise _problem(path, f"takes {size_text(n_bytes)} of memory to open{limit}", remedy) from error


def inside(folder: Path, written: str) -> Path:
    """The path that a file in `folder` names, which must lie there, whatever system it was written on.

    Raises FileError for a path elsewhere, one with `..`, and one through a link that leads out. A link in
    place of the file itself may lead anywhere: whoever made the folder chose it.
    """
    parts = PureWindowsPath(written) if "\\" in written else PurePosixPath(written)
    own = Path(written).is_absolute() and Path(written).is_relative_to(folder.absolute())
    if ".." in parts.parts or (not own and (parts.is_absolute() or parts.drive)):
        raise _problem(Path(written), f"lies outside {printable(folder)}", "copy it there")
    place = folder.joinpath(*parts.parts)
    with _reasons(place):
        if not place.parent.resolve().is_relative_to(folder.resolve()):
            raise _problem(place, "leads out of its folder through a link", "copy the file there instead")
    return place


def base_name(written: str) -> str:
    """The last part of a path, by the separators of either kind of system."""
    return PureWindowsPath(written).name


def own_file(folder: Path, name: str, limit: int) -> bytes | None:
    """What a file holds that lies in `folder` itself and is no link out of it; None where there is none."""
    file = folder / name
    with suppress(FileError, OSError, RuntimeError, ValueError):
        if file.resolve().is_relative_to(folder.resolve()):
            return read_bytes(file, limit)
    return None


def _problem(path: Path, reason: str, remedy: str, *, missing: bool = False) -> FileError:
    return FileError(printable(path), reason, remedy, missing=missing)


@contextmanager
def _reasons(path: Path) -> Iterator[None]:
    """Whatever the system refuses, as a FileError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        reason = "is a link to something that is not there" if is_there(path) else "is missing"
        raise _problem(path, reason, "check the path", missing=True) from error
    except (OSError, ValueError, RuntimeError) as error:  # NUL in a name; links in a circle
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> FileError:
    reason = getattr(error, "strerror", None) or "its name is none of a file"
    return _problem(path, f"cannot be read: {reason}", "check its name and its rights")
