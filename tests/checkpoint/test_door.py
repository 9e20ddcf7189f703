"""The door opens regular files of a known size inside their folder, and nothing else opens a user's file."""

import ast
import json
import os
import resource
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mta_viz.checkpoint import door
from mta_viz.checkpoint.pickles import TooLargeError
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.errors import FileError

ROOT = Path(__file__).parents[2]
SECRET = "hidden:x:0:0"


@pytest.mark.parametrize("read", [door.read_text, door.read_json, door.read_toml, door.size, door.load_torch])
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda path: None, "is missing; check the path"),
        (lambda path: path.symlink_to(path.parent / "nowhere"), "is a link to something that is not there"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (os.mkfifo, "is no regular file but a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file but a device"),
        (Path.mkdir, "is no regular file but a folder"),
    ],
)
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, read, made, words: str):
    made(tmp_path / "file")
    with pytest.raises(FileError, match=f"file {words}"):
        read(tmp_path / "file")


def test_a_name_that_is_none_is_refused(tmp_path: Path):
    for name in ("a\0b", "x" * 300):
        with pytest.raises(FileError, match="cannot be read"):
            door.read_text(tmp_path / name)
        assert not door.is_there(tmp_path / name)


def test_a_size_is_known_before_anything_is_read(tmp_path: Path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(FileError, match=r"huge has 1,099\.5 GB, more than 1\.0 MB"):
        door.read_json(tmp_path / "huge")
    (tmp_path / "fits").write_bytes(b"12345")
    assert door.read_bytes(tmp_path / "fits", 5) == b"12345"
    with pytest.raises(FileError, match="more than"):
        door.read_bytes(tmp_path / "fits", 4)


def test_a_text_of_too_many_values_is_not_parsed(tmp_path: Path):
    (tmp_path / "file").write_text("[" + "{}," * door.MOST_GROUPS + "1]")
    with pytest.raises(FileError, match="file has more values than any JSON file read here; give another"):
        door.read_json(tmp_path / "file", door.RESULTS)


@pytest.mark.parametrize("content", [SECRET, f'{{"a": {SECRET}', "[" * 100_000 + SECRET, f"\udcff{SECRET}"])
@pytest.mark.parametrize("read", [door.read_json, door.read_toml])
def test_no_message_quotes_what_a_file_holds(tmp_path: Path, content: str, read):
    (tmp_path / "file").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileError, match="file is not ") as caught:
        read(tmp_path / "file")
    assert "hidden" not in str(caught.value)


def test_a_message_names_the_file_without_escapes_and_in_short(tmp_path: Path):
    with pytest.raises(FileError) as caught:
        door.read_text(tmp_path / ("\x1b]0;owned\x07" + "x" * 200))
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_text_may_begin_with_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"é": 1}', encoding="utf-8-sig")
    assert door.read_json(tmp_path / "a.json") == {"é": 1}


@pytest.mark.parametrize(
    "written",
    ["../x.model", "/etc/passwd", "a/../../x", "C:\\x.model", "..\\x.model", "\\\\host\\x", "out/x"],
)
def test_a_path_that_a_file_names_stays_in_its_folder(tmp_path: Path, written: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "out").symlink_to(tmp_path)
    with pytest.raises(FileError, match=r"(lies outside|leads out).*copy"):
        door.inside(tmp_path / "folder", written)


def test_a_path_below_the_folder_is_followed_whatever_system_wrote_it(tmp_path: Path):
    for written in ("a/x", "a\\x", "./a/x", str(tmp_path / "a" / "x")):
        assert door.inside(tmp_path, written) == tmp_path / "a" / "x"


def test_a_link_out_of_the_folder_is_no_file_of_its_own(tmp_path: Path):
    (tmp_path / "secret").write_text(SECRET)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").symlink_to(tmp_path / "secret")
    assert door.own_file(folder, "README.md", 100) is None
    (folder / "CARD.md").write_text("text")
    assert door.own_file(folder, "CARD.md", 100) == b"text"
    assert door.own_file(folder, "CARD.md", 3) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every path is a text")
def test_a_path_that_is_no_text_is_told(tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    save_file({"a": torch.zeros(1)}, folder / "model.safetensors")
    with (
        pytest.raises(FileError, match="lies at a path that is not UTF-8"),
        door.open_tensors(folder / "model.safetensors"),
    ):
        pass


def test_a_header_of_a_million_tensors_is_refused_by_its_size(tmp_path: Path):
    header = json.dumps(
        {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(80_000)}
    )
    file = tmp_path / "many.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    with (
        pytest.raises(FileError, match=r"lists its tensors in 5\.\d MB, more than 4\.2 MB"),
        door.open_tensors(file),
    ):
        pass
    with door.open_tensors(file, names=door.GIB) as opened:
        assert len(opened.keys()) == 80_000


def rezipped(file: Path, compression: int, pickle: bytes | None = None) -> None:
    with zipfile.ZipFile(file) as old:
        records = {record.filename: old.read(record) for record in old.infolist()}
    with zipfile.ZipFile(file, "w", compression) as new:
        for name, content in records.items():
            new.writestr(name, pickle if pickle and name.endswith("data.pkl") else content)


def test_a_small_archive_that_unpacks_to_much_is_refused(tmp_path: Path):
    file = tmp_path / "bomb.pth"
    torch.save({"model": {}}, file)
    rezipped(file, zipfile.ZIP_DEFLATED, bytes(2**27))
    assert file.stat().st_size < 2**18
    with pytest.raises(TooLargeError, match="compressed"):
        door.load_torch(file)
    torch.save({"model": {}}, file)
    rezipped(file, zipfile.ZIP_STORED, bytes(2**24 + 1))
    with pytest.raises(TooLargeError, match=r"takes more than 16\.8 MB"):
        door.load_torch(file)


# Where something may be opened that no user named: the package's own data, and what is written.
OPENERS = {
    "mta_viz/checkpoint/door.py": "the door",
    "mta_viz/writing.py": "what it has written, to wait for the disk",
    "mta_viz/exporting/doctor.py": "requirements.txt, and how much memory the container has",
    "mta_viz/exporting/pictures.py": "opens a browser, no file",
    "mta_viz/exporting/saved.py": "a member of a ZIP that is in memory",
    "mta_viz/analysis/kernels/definitions.py": "package data",
    "mta_viz/analysis/attention/heads.py": "package data",
    "mta_viz/run/devices.py": "how much memory the system has",
    "mta_viz/tasks/words.py": "package data",
    "mta_viz/ui/shell/link.py": "assets/examples.json",
    "mta_viz/ui/shell/machine.py": "members of a ZIP that is in memory, to write",
    "mta_viz/ui/shell/processes.py": "the log of a command it starts, to write",
    "mta_viz/ui/shell/uploads.py": "folders it has made, to hold them",
    "mta_viz/ui/shell/open_page.py": "assets/style.css",
    "mta_viz/ui/shell/address.py": "assets/help.md",
    "mta_viz/ui/shell/widgets.py": "assets/terms.toml",
    "mta_viz/ui/linked/component.py": "package data",
    "mta_viz/exporting/report.py": "package data; the PDF that the browser wrote into a folder of its own",
    "mta_viz/exporting/report_sections.py": "package data",
    "mta_viz/cli/report.py": "what a report that was stopped keeps beside its file",
}
METHODS = {"open", "read_bytes", "read_text", "fdopen", "fromfile", "memmap", "load_file", "safe_open"}
FUNCTIONS = {
    "open", "safe_open", "load_file", "io.open", "os.open", "torch.load", "json.load", "tomllib.load",
    "np.load", "numpy.load", "pickle.load", "pd.read_csv",
}  # fmt: skip


def opened_directly(root: Path) -> Iterator[str]:
    """Every call outside the door that opens or reads a file; a parser of the app that is no file is none."""
    for path in sorted([*root.glob("mta_viz/**/*.py"), *root.glob("pages/*.py"), *root.glob("app.py")]):
        name = path.relative_to(root).as_posix()
        if name in OPENERS:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _opens(node.func):
                yield f"{name}:{node.lineno} {ast.unparse(node.func)}"


def _opens(function: ast.expr) -> bool:
    said = ast.unparse(function)
    own = said.startswith("door.") or said == "kind.open"
    return not own and (
        said in FUNCTIONS or (isinstance(function, ast.Attribute) and function.attr in METHODS)
    )


def test_nothing_but_the_door_opens_a_users_file():
    assert list(opened_directly(ROOT)) == []
    assert [name for name in OPENERS if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "Path('x').open()",
        "path.read_text('utf-8')",
        "(a / b).read_bytes()",
        "torch.load(path)",
        "with safe_open(path, 'pt') as f: pass",
        "json.load(file)",
        "os.open(path, 0)",
    ],
)
def test_a_planted_opening_is_found(tmp_path: Path, line: str):
    (tmp_path / "mta_viz").mkdir()
    (tmp_path / "mta_viz" / "planted.py").write_text(f"{line}\nplain(path)\n")
    assert len(list(opened_directly(tmp_path))) == 1


@contextmanager
def little_memory(n_bytes: int) -> Iterator[None]:
    """As under `ulimit -v`: this process may take so many bytes more."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_a_file_that_no_memory_is_left_for_is_told_with_numbers(tmp_path: Path):
    header = json.dumps({"w": {"dtype": "U8", "shape": [2**30], "data_offsets": [0, 2**30]}}).encode()
    file = tmp_path / "w.safetensors"
    with file.open("wb") as written:
        written.write(struct.pack("<Q", len(header)) + header)
        written.truncate(8 + len(header) + 2**30)
    torch.save({"w": torch.zeros(2**27, dtype=torch.uint8)}, tmp_path / "w.pth")
    mapped = r"takes 2\.1 GB of memory to open, and this process may take .* more \(ulimit -v\)"
    for room in (2**28, 2**30 + 2**28):  # neither of its two maps, and one of them
        with little_memory(room), pytest.raises(FileError, match=mapped), door.open_tensors(file):
            pass
    with little_memory(2**26), pytest.raises(FileError, match=r"w.pth takes 134\.2 MB of memory to open"):
        door.load_torch(tmp_path / "w.pth")


def test_memory_is_what_the_process_may_take(tmp_path: Path):
    assert door.memory_left() is None
    with little_memory(2**28):
        assert 2**27 < door.memory_left() <= 2**28


def test_memory_that_ends_while_a_model_is_read_is_told_once(tmp_path: Path, monkeypatch):
    source = ROOT / "assets" / "blocks-n5-mta"
    opened, count = door.open_tensors, iter(range(100))

    def failing(path: Path, *names: int):
        if next(count) < 5:
            return opened(path, *names)
        raise FileError("w", "takes 2 GB of memory to open", "end other programs") from MemoryError()

    monkeypatch.setattr(door, "open_tensors", failing)
    with pytest.raises(FileError, match=r"^w takes 2 GB of memory to open; end other programs$"):
        read_checkpoint(source)
