"""The wheel: it holds the app, its pages, settings and small assets, and starts it from anywhere."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mta_viz.cli import build_parser
from mta_viz.cli.app import command_of
from mta_viz.errors import MtaVizError
from mta_viz.version import APP, ASSETS, HOME, TESTED

ROOT = Path(__file__).parents[1]
LARGE = 16 * 2**20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, with cards and folders of models but without their weights, which take seconds."""
    folder, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = (
        "app.py",
        "serve.py",
        "setup.py",
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "requirements.txt",
    )
    for name in names:
        shutil.copy(ROOT / name, folder)
    leave = shutil.ignore_patterns("__pycache__", "*.safetensors", "screenshots", "needle-*")
    for name in ("mta_viz", "pages", "assets", ".streamlit"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    words = ["-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps", "-q", "-w", str(out)]
    subprocess.run([sys.executable, *words], cwd=folder, check=True, capture_output=True, text=True)
    (made,) = out.glob("*.whl")
    return made


def test_the_wheel_holds_what_the_app_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    site = {name.removeprefix("mta_viz/site/") for name in names if name.startswith("mta_viz/site/")}
    pages = {f"pages/{page.name}" for page in (ROOT / "pages").glob("*.py")}
    assets = {f"assets/{file.name}" for file in ASSETS.iterdir() if file.is_file()}
    assert site >= {"app.py", "serve.py", "requirements.txt", ".streamlit/config.toml", *pages, *assets}
    assert {"assets/blocks-n5-mta/params.json", "assets/blocks-n5-transformer/params.json"} <= site
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "mta_viz").rglob("*.py")}
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "mta_viz").rglob("*.*") if path.is_file()}
    assert code <= names
    kinds = (".toml", ".html", ".js", ".css", ".json")
    assert {name for name in data if name.endswith(kinds)} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"mta_viz", next(top for top in tops if top.endswith(".dist-info"))}


def test_the_command_starts_the_installed_app(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site-packages")
    code = (
        "from mta_viz import version; from mta_viz.cli import build_parser, app\n"
        "print(version.__file__, version.APP.is_file(), version.APP)\n"
        "print(app.command_of(build_parser().parse_args(['app', '--models', '.'])))"
    )
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "site-packages")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    app = tmp_path / "site-packages" / "mta_viz" / "site" / "app.py"
    assert done.stdout.splitlines()[0].endswith(f"True {app}")
    assert f"'run', '{app.with_name('serve.py')}'" in done.stdout


def test_an_installed_figure_is_made_again_from_its_file(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site-packages")
    model = str(ASSETS / "blocks-n5-mta")
    code = (
        "import mta_viz, sys; from mta_viz.cli import main\n"
        "assert mta_viz.__file__.startswith(sys.argv[2])\n"
        "figure = mta_viz.figure('kernel-taps', mta_viz.load(sys.argv[1]), layer=2, head=0)\n"
        "mta_viz.export(figure, 'kernel.html')\n"
        "sys.exit(main(['figure', '--from', 'kernel.html', sys.argv[1], '--out', 'again.html']))"
    )
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "site-packages")}
    words = [sys.executable, "-c", code, model, str(tmp_path)]
    subprocess.run(words, cwd=tmp_path, env=environ, check=True, capture_output=True)
    first, again = (
        re.sub(rb"20\d\d-\d\d-\d\dT[\d:.]+|[\da-f-]{36}", b"", (tmp_path / name).read_bytes())
        for name in ("kernel.html", "again.html")
    )
    assert first == again


def test_in_the_project_the_app_is_that_of_the_project():
    assert (HOME, APP, TESTED) == (ROOT, ROOT / "app.py", ROOT / "requirements.txt")


def test_the_command_line_of_the_app(tmp_path):
    def of(*words: str) -> list[str]:
        return command_of(build_parser().parse_args(["app", *words]))

    assert of()[1:] == ["-m", "streamlit", "run", str(ROOT / "serve.py"), "--"]
    models = ("--models", str(tmp_path), "--models", str(ASSETS))
    assert of(*models)[-5:] == ["--", *models]
    assert "--server.address=0.0.0.0" in of("--address", "0.0.0.0")
    with pytest.raises(MtaVizError, match="is not there; name a folder"):
        of("--models", str(tmp_path / "absent"))


def test_what_is_installed_is_small():
    small = [ASSETS / name for name in ("blocks-n5-mta", "blocks-n5-transformer", "cards")]
    files = [file for folder in small for file in folder.rglob("*")]
    files += [file for file in ASSETS.iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files) < LARGE


def steps() -> Iterator[tuple[str, list[str]]]:
    """The Dockerfile's instructions, lines that go on joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest.split()


@pytest.mark.slow
def test_the_steps_of_the_container_start_the_app():
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        python = root / "python"  # a new environment that finds the packages of this one
        packages = next(path for path in sys.path if path.endswith("site-packages"))
        lines = [
            "#!/bin/bash",
            f'{sys.executable} "$@" || exit',
            'cd "${!#}"/lib/python3*/site-packages && rm -rf setuptools*',  # an older one
            f"echo {packages} > these.pth",
        ]
        python.write_text("\n".join(lines) + "\n")
        python.chmod(0o755)
        for word, words in steps():
            if word == "COPY":
                *sources, target = words
                for source in sources:
                    place = Path(f"{root}{target}" + (source if target.endswith("/") else ""))
                    place.parent.mkdir(parents=True, exist_ok=True)
                    copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                    copy(ROOT / source, place)
            elif word == "RUN" and "/src/.ci/install-app" in words:
                shell = re.sub(r"(?<![\w.])/(src|opt|models)\b", rf"{root}/\1", " ".join(words))
                shell = re.sub(r"&& useradd.*", "", shell)
                environ = os.environ | {"PYTHON": str(python), "PIP_OPTIONS": "--no-index"}
                subprocess.run(["bash", "-ec", shell], env=environ, check=True, capture_output=True)
        found = dict(steps())
        assert found["USER"] == ["mta"] and not (root / "src").exists()
        assert {"needle-mta", "needle-transformer"} <= {model.name for model in (root / "models").iterdir()}
        command = [word.replace("/models", f"{root}/models") for word in json.loads(" ".join(found["CMD"]))]
        command[command.index("--port") + 1] = str(port := free_port())
        (root / "home").mkdir(mode=0o777)
        (root / "home").chmod(0o777)
        reached = all(folder.stat().st_mode & 1 for folder in Path(sys.executable).resolve().parents)
        is_root = os.geteuid() == 0 and reached  # else others cannot run this interpreter
        other = {"user": 10001, "group": 10001, "extra_groups": []} if is_root else {}
        program = json.loads(" ".join(found["ENTRYPOINT"]))[0].replace("/opt", f"{root}/opt")
        environ = {"HOME": str(root / "home"), "PATH": os.defpath}
        app = subprocess.Popen([program, *command], cwd=root / "home", env=environ, **other)
        try:
            assert answered(f"http://127.0.0.1:{port}/_stcore/health") == b"ok"
        finally:
            app.terminate()
            app.wait(20)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def answered(address: str, seconds: float = 120) -> bytes:
    end = time.monotonic() + seconds
    while True:
        try:
            return urllib.request.urlopen(address, timeout=5).read()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.5)
