"""The two ways to install agree: every dependency is pinned, and each pin is inside its bound."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def pins(name: str) -> dict[str, str]:
    """Package -> version of a requirements file, in the order of its lines."""
    return dict(re.findall(r"(?m)^([\w-]+)==(\S+)$", (ROOT / name).read_text()))


def test_every_dependency_is_pinned_within_its_bound_and_torch_comes_first():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = {(bound := Requirement(text)).name: bound.specifier for text in project["dependencies"]}
    pinned = pins("requirements.txt")
    assert pinned.keys() == bounds.keys()
    assert all(pinned[name] in bound for name, bound in bounds.items())
    assert next(iter(pinned.items())) == ("torch", "2.13.0")


# Comes with another package, or is asked for only by who has it.
WITH = {"pydantic_core": "pydantic", "triton": "torch"}
OPTIONAL = {"accelerate", "huggingface_hub", "ray"}


def test_what_the_product_imports_is_declared():
    files = [ROOT / "app.py", *(ROOT / "pages").glob("*.py"), *(ROOT / "mta_viz").rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OPTIONAL - {"mta_viz"}
    packages, pinned = (
        packages_distributions(),
        {canonicalize_name(name) for name in pins("requirements.txt")},
    )
    of_top = {top: WITH.get(top) or packages[top][0] for top in tops}
    assert {top for top, package in of_top.items() if canonicalize_name(package) not in pinned} == set()
    assert len(of_top) > 20


def test_the_test_extras_contain_the_app():
    assert "-r requirements.txt" in (ROOT / "requirements-dev.txt").read_text().splitlines()


def test_make_app_passes_the_folder_and_the_port(tmp_path: Path):
    make = shutil.which("make")
    (tmp_path / ".venv").mkdir()
    (tmp_path / "requirements.txt").touch()
    (tmp_path / ".venv/.app-ready").touch()
    shutil.copy(ROOT / "Makefile", tmp_path)
    command = [make, "-n", "app", "MODELS=my models", "PORT=8600"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "streamlit run app.py --server.port" in shown and '-- --models "my models"' in shown
    assert "pip install" not in shown


def test_an_old_python_is_named_and_nothing_is_installed(tmp_path: Path):
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.18 || exit 1\n')
    old.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").touch()
    command = ["make", "app", f"PYTHON={old}"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "needs Python 3.11 or newer" in answer.stderr and "Python 3.9.18" in answer.stderr
    assert not (tmp_path / ".venv").exists()
