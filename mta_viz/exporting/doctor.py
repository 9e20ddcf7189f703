"""Whether this machine has what the app needs, and what to type where it has not.

Each check looks and changes nothing; what to do about a finding is in its `remedy`.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch

from mta_viz.checkpoint.reading import find_checkpoints
from mta_viz.checkpoint.relatives import model_roots
from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import find_browser
from mta_viz.printed import printable, size_text
from mta_viz.run.devices import all_threads, checked_device, devices, free_bytes
from mta_viz.tables import Printed, Row, Table
from mta_viz.version import APP, TESTED, VERSION

State = Literal["ok", "note", "wrong"]
PORT = 8501  # Streamlit's
PYTHONS = ((3, 11), (3, 13))
# bytes: the libraries and a small model; kept runs and pictures
ENOUGH_MEMORY, ENOUGH_DISK = 2 * 10**9, 10**9
CGROUP = Path("/sys/fs/cgroup")
FONTS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts", "/Library/Fonts")
FONT_FILES = {".ttf", ".otf", ".ttc", ".pfb"}


@dataclass(frozen=True)
class Check:
    """What was found; `remedy` is what to do or type, empty where all is well."""

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True, repr=False)
class Diagnosis(Printed):
    """All checks, in the order in which a start needs them."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; notes may be there."""
        return all(check.state != "wrong" for check in self.checks)

    def table(self) -> Table:
        """A row a check."""
        rows = ((check.name, check.state, check.found, check.remedy) for check in self.checks)
        return Table.of(("check", "state", "found", "what to do"), rows)

    def _title(self) -> str:
        return f"mta_viz {VERSION} on this machine: {'all is well' if self.ok else 'something is wrong'}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        return self.table().columns, self.table().rows


def diagnose(roots: Sequence[Path] | None = None, port: int | None = PORT) -> Diagnosis:
    """Look at everything; some seconds. `roots`: folders with models (None: those of the commands).

    `port`: where the app is to listen; None where it does already.
    """
    looked = model_roots() if roots is None else tuple(roots)
    checks: list[Callable[[], Iterator[Check]]] = [
        _python, _devices, _versions, _app, _browser, _fonts, lambda: _models(looked), _memory, _disk,
    ]  # fmt: skip
    if port is not None:
        checks.append(lambda: _port(port))
    return Diagnosis(tuple(found for check in checks for found in check()))


def _python() -> Iterator[Check]:
    tested = f"{'.'.join(map(str, PYTHONS[0]))} to {'.'.join(map(str, PYTHONS[1]))}"
    known = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    remedy = "" if known else f"tested with Python {tested}: make a virtual environment of one of these"
    yield Check("python", "ok" if known else "note", platform.python_version(), remedy)


def _devices() -> Iterator[Check]:
    for name in devices():
        try:
            checked_device(name)
        except MtaVizError as error:
            yield Check("device", "wrong", str(error), "run nvidia-smi; compute with --device cpu meanwhile")
            continue
        free = free_bytes(torch.device(name))
        cuda = name.startswith("cuda")
        facts = [torch.cuda.get_device_name(name) if cuda else f"threads: {all_threads()}"]
        facts += [] if free is None or not cuda else [f"{size_text(free)} free"]
        yield Check("device", "ok", f"torch {torch.__version__} computes on {name} ({', '.join(facts)})")
    if torch.version.cuda and len(devices()) == 1:
        remedy = (
            "run nvidia-smi: the driver may be missing, or older than this torch; the CPU is used meanwhile"
        )
        yield Check(
            "device", "note", f"torch is a build for CUDA {torch.version.cuda} and finds no GPU", remedy
        )


def _versions() -> Iterator[Check]:
    """Against requirements.txt, which names what was tested."""
    try:
        lines = TESTED.read_text("utf-8").splitlines()
    except OSError:
        yield Check("versions", "wrong", f"{TESTED} is not there", "install mta-viz again")
        return
    tested = dict(line.split("==") for line in lines if "==" in line)
    others, absent = [], []
    for name, wanted in tested.items():
        try:
            there = version(name)
        except PackageNotFoundError:
            absent.append(f"{name}=={wanted}")
            continue
        if there.partition("+")[0] != wanted:
            others.append(f"{name} {printable(there)} (tested: {wanted})")
    if absent:
        yield Check(
            "versions", "wrong", f"not installed: {', '.join(absent)}", f"pip install {' '.join(absent)}"
        )
    remedy = f"nothing, unless something fails; then pip install -r {TESTED}"
    if others:
        yield Check("versions", "note", ", ".join(others), remedy)
    elif not absent:
        yield Check("versions", "ok", f"all {len(tested)} as tested")


def _app() -> Iterator[Check]:
    there = APP.is_file()
    yield Check("app", "ok" if there else "wrong", str(APP), "" if there else "install mta-viz again")


def _browser() -> Iterator[Check]:
    try:
        program = find_browser("png, svg or pdf")
        yield Check("chromium", "ok", program)
    except MtaVizError as error:
        found, _, remedy = str(error).partition(". ")
        yield Check("chromium", "note", found, remedy)


def _fonts() -> Iterator[Check]:
    """Those that pictures are drawn with; without any, Chromium draws boxes."""
    files = [file for root in map(Path, FONTS) for file in root.expanduser().glob("**/*")]
    count = sum(file.suffix.lower() in FONT_FILES for file in files)
    if os.name == "nt" or sys.platform == "darwin":
        return
    remedy = "" if count else "Debian, Ubuntu: apt-get install -y fonts-dejavu-core"
    yield Check("fonts", "ok" if count else "note", f"{count} font files", remedy)
    if count and not _has_chinese():
        remedy = "to draw them in pictures: apt-get install -y fonts-noto-cjk"
        yield Check("fonts", "note", "none with Chinese, Japanese and Korean letters", remedy)


def _has_chinese() -> bool:
    """As fontconfig says, where it is there to ask."""
    program = shutil.which("fc-list")
    if program is None:
        return True
    done = subprocess.run([program, ":lang=zh", "family"], capture_output=True, timeout=20, check=False)
    return bool(done.stdout.strip())


def _models(roots: Sequence[Path]) -> Iterator[Check]:
    for root in roots:
        discovery = find_checkpoints([root])
        broken = [found for found in discovery.found if found.problem is not None]
        words = f"{printable(root)}: {len(discovery.found)} models"
        if broken:
            first = printable(str(broken[0].problem).partition("\n")[0])
            words += f", {len(broken)} of them broken, first {printable(broken[0].name)}: {first}"
        remedy = "python -m mta_viz info PATH says everything that is wrong with one" if broken else ""
        if not discovery.found:
            remedy = "; ".join(discovery.skipped) or "name a folder with checkpoints: --models DIR"
        yield Check("models", "note" if remedy else "ok", words, remedy)


def _memory() -> Iterator[Check]:
    free, limit = free_bytes(torch.device("cpu")), _container_room()
    known = [size for size in (free, limit) if size is not None]
    if not known:
        return
    few = min(known) < ENOUGH_MEMORY
    remedy = "end other programs; compute in bfloat16; open smaller models" if few else ""
    where = " (of this container)" if limit is not None and min(known) == limit else ""
    yield Check("memory", "note" if few else "ok", f"{size_text(min(known))} free{where}", remedy)


def _container_room() -> int | None:
    """What a container's limit leaves; None without one."""
    try:
        most, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no cgroup, or "max"
        return None
    return max(most - used, 0)


def _disk() -> Iterator[Check]:
    place = Path(tempfile.gettempdir())
    free = shutil.disk_usage(place).free
    few = free < ENOUGH_DISK
    remedy = f"delete files, or set TMPDIR to another disk than {place}" if few else ""
    yield Check("disk", "note" if few else "ok", f"{size_text(free)} free in {place}", remedy)


def _port(port: int) -> Iterator[Check]:
    problem = port_problem(port, "127.0.0.1")
    remedy = f"mta-viz app --port {port + 1}" if problem else ""
    yield Check("port", "note" if problem else "ok", problem or f"{port} is free", remedy)


def port_problem(port: int, address: str) -> str | None:
    """Why nothing can listen there; None where it can."""
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if os.name != "nt":
                # as servers do: an ended one's port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        return f"{address}, port {port}: {error.strerror or error}"
    return None
