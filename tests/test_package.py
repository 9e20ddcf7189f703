"""The wheel: it holds the app, its pages, settings and small assets, and starts it from anywhere."""

import os
import shutil
import subprocess
import sys
import zipfile
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
    assert site >= {"app.py", "requirements.txt", ".streamlit/config.toml", *pages, *assets}
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
    assert done.stdout.splitlines()[0].endswith(f"True {app}") and f"'run', '{app}'" in done.stdout


def test_in_the_project_the_app_is_that_of_the_project():
    assert (HOME, APP, TESTED) == (ROOT, ROOT / "app.py", ROOT / "requirements.txt")


def test_the_command_line_of_the_app(tmp_path):
    def of(*words: str) -> list[str]:
        return command_of(build_parser().parse_args(["app", *words]))

    assert of()[1:] == ["-m", "streamlit", "run", str(APP), "--"]
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
