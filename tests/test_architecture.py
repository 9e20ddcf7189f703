"""The rules of the house, held by reading the source: who imports whom, sizes, docstrings, names."""

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from mta_viz.figures import ROOMS as FIGURE_ROOMS

ROOT = Path(__file__).parents[1]

# Lowest first: a part may import those before it and the shared ones.
LAYERS = ("config", "checkpoint", "model", "run", "analysis", "plots", "figures", "exporting")
SHARED = {
    "errors": {"printed"},
    "writing": {"errors"},
    "version": set(),
    "printed": set(),
    "tables": {"printed"},
    "tokenizers": {"errors", "printed", "tables", "writing"},
    "tasks": {"errors", "printed", "tables", "tokenizers"},
}
LIBRARY = {*LAYERS, *SHARED}
DOOR = "mta_viz.checkpoint.door"  # everybody's: it opens every file of a user, and imports errors alone
MAY_IMPORT: dict[str, set[str]] = {
    **SHARED,
    **{part: {*LAYERS[:rank], *SHARED} for rank, part in enumerate(LAYERS)},
    "ui": LIBRARY,
    "pages": {*LIBRARY, "ui"},
    "training": LIBRARY,
    "cli": {*LIBRARY, "training"},
    "__init__": LIBRARY,
    "__main__": {"cli"},
}
STATE = "mta_viz/ui/shell/state.py"
ONLY_IN = {
    "streamlit": ("mta_viz/ui/", "pages/", "app.py"),
    "plotly": ("mta_viz/plots/", "mta_viz/exporting/", "mta_viz/figures"),
    "captum": ("mta_viz/analysis/cause/attribution",),
    "transformer_lens": ("mta_viz/model/", "mta_viz/run/"),
    "ray": ("mta_viz/run/jobs.py",),
    "accelerate": ("mta_viz/run/placing.py",),
}
# The rooms inside these packages, lowest first; what is of several rooms stands in the highest of them.
ROOMS = {
    "analysis": ("kernels", "attention", "labs", "cause", "compare"),
    "ui": (
        "shell",
        "linked",
        "attention",
        "kernels",
        "labs",
        "surgery",
        "compare",
        "workspace",
        "how",
        "train",
    ),
}
WITHOUT_TORCH = ("pages/", "app.py", "mta_viz/plots/")
API = {"load", "capture", "kernels", "patterns", "decompose", "attribute", "compare", "export"}


@cache
def sources(root: Path) -> tuple[tuple[str, ast.Module, int], ...]:
    """(path inside the project, syntax tree, number of lines) of every file of the product."""
    paths = sorted([*root.glob("mta_viz/**/*.py"), *root.glob("pages/*.py"), *root.glob("app.py")])
    texts = [(path.relative_to(root).as_posix(), path.read_text("utf-8")) for path in paths]
    return tuple((name, ast.parse(text), text.count("\n")) for name, text in texts)


@cache
def imports(name: str, tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """(line, dotted module) of every import, those inside functions too; relative ones resolved."""
    return tuple(_imports(name, tree))


def _imports(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    package = name.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            yield from ((node.lineno, ".".join([*module, alias.name])) for alias in node.names)


def part_of(name: str) -> str:
    """`mta_viz/model/ops.py` -> model; the app and its pages are one part."""
    folder, _, rest = name.partition("/")
    return rest.split("/")[0].removesuffix(".py") if folder == "mta_viz" else "pages"


def wrong_direction(root: Path) -> list[str]:
    """Imports that go up, or across, between the parts of the package; parts that have no place yet."""
    problems = []
    for name, tree, _ in sources(root):
        part = part_of(name)
        if part not in MAY_IMPORT:
            problems.append(f"{name} is in no layer")
            continue
        for line, module in imports(name, tree):
            if module.startswith(DOOR):
                continue
            target = module.split(".")[1] if module.startswith("mta_viz.") else part
            if target in MAY_IMPORT and target not in {part, *MAY_IMPORT[part]}:
                problems.append(f"{name}:{line} {part} may not import {target}")
    return problems


def wrong_room(root: Path) -> list[str]:
    """Imports that go up between the rooms of a package."""
    problems = []
    for name, tree, _ in sources(root):
        package, room = (*name.removesuffix(".py").split("/"), "", "")[1:3]
        order = ROOMS.get(package, ())
        for line, module in imports(name, tree):
            target = (*module.split("."), "", "")[1:3]
            if (
                target[0] == package
                and {room, target[1]} <= {*order}
                and order.index(room) < order.index(target[1])
            ):
                problems.append(f"{name}:{line} {room} may not import {target[1]}")
    return problems


def cyclic(root: Path) -> list[str]:
    """One circle of files that import each other, by any form of import: late and for types alike."""
    trees = {_module(name): (name, tree) for name, tree, _ in sources(root)}
    graph = {
        module: {_home(target, trees.keys()) for _, target in imports(name, tree)} - {""}
        for module, (name, tree) in trees.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _home(target: str, modules: Collection[str]) -> str:
    """The file an imported name comes from: the module of that name, or the one that defines it."""
    return next((part for part in (target, target.rpartition(".")[0]) if part in modules), "")


def misplaced_library(root: Path) -> list[str]:
    """streamlit, plotly, captum and transformer_lens outside their folders; torch where none belongs."""
    problems = []
    for name, tree, _ in sources(root):
        for line, module in imports(name, tree):
            library = module.split(".")[0]
            misplaced = library in ONLY_IN and not name.startswith(ONLY_IN[library])
            misplaced |= module.startswith("streamlit.testing")
            if misplaced or (library == "torch" and name.startswith(WITHOUT_TORCH)):
                problems.append(f"{name}:{line} may not import {library}")
    return problems


def untyped_state(root: Path) -> list[str]:
    """Streamlit's session state, a dictionary of anything, outside the one file that gives it types."""
    return [
        f"{name}:{node.lineno} reads st.session_state"
        for name, tree, _ in sources(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "session_state" and name != STATE
    ]


def too_long(root: Path) -> list[str]:
    """Files of over 400 lines; pages over 80."""
    return [
        f"{name} has {lines} lines"
        for name, _, lines in sources(root)
        if lines > (80 if name.startswith("pages/") else 400)
    ]


def public(node: ast.AST) -> Iterator[ast.AST]:
    """A module or class with its public functions and, in turn, its public classes."""
    yield node
    for child in getattr(node, "body", []):
        if not getattr(child, "name", "_").startswith("_"):
            yield from public(child) if isinstance(child, ast.ClassDef) else [child]


def undocumented(root: Path) -> list[str]:
    """Modules, public classes and functions without a docstring.

    A figure's methods may have that of a base, and `add_flags` is what `mta_viz.cli` says of it.
    """
    nodes = [(name, node) for name, tree, _ in sources(root) for node in public(tree)]
    of_figures = {
        getattr(node, "name", "")
        for name, node in nodes
        if name.startswith("mta_viz/figures/") and ast.get_docstring(node)
    }
    return [
        f"{name}: {word} has no docstring"
        for name, node in nodes
        if not ast.get_docstring(node)
        and not (name.startswith("mta_viz/cli/") and getattr(node, "name", None) == "add_flags")
        and not (name.startswith("mta_viz/figures/") and getattr(node, "name", None) in of_figures)
        for word in [getattr(node, "name", "the module")]
    ]


def shadowed_api(root: Path) -> list[str]:
    """Modules directly in the package named like a function of the notebook API."""
    names = {path.stem for path in (root / "mta_viz").iterdir()}
    return [f"mta_viz/{name} would replace mta_viz.{name}" for name in sorted(names & API)]


def unregistered(root: Path) -> list[str]:
    """Files with named figures that no room's `__init__` brings in: the registry would not know them."""
    trees = {_module(name): (name, tree) for name, tree, _ in sources(root)}
    reached, waiting = set(), [f"mta_viz.figures.{room}" for room in FIGURE_ROOMS]
    while waiting:
        module = waiting.pop()
        if module in trees and module not in reached:
            reached.add(module)
            waiting.extend(_home(target, trees.keys()) for _, target in imports(*trees[module]))
    return [
        f"{name} is not imported by its room"
        for module, (name, tree) in trees.items()
        if module not in reached and _names_figures(tree)
    ]


def _names_figures(tree: ast.Module) -> bool:
    decorators = (
        one for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in node.decorator_list
    )
    return any(isinstance(one, ast.Call) and getattr(one.func, "id", "") == "named" for one in decorators)


def lost_presses(root: Path) -> list[str]:
    """Buttons whose press is the value of the call: lost where the run that it asks for is cut short."""
    return [
        f"{name}:{call.lineno} asks the button itself; take `pressed`, or `on_click`"
        for name, tree, _ in sources(root)
        for call in _values(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "button"
    ]


def _values(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls whose value is used."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in alone)


RULES = [
    lost_presses,
    unregistered,
    wrong_direction,
    wrong_room,
    cyclic,
    misplaced_library,
    untyped_state,
    too_long,
    undocumented,
    shadowed_api,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps_the_rule(rule: Callable[[Path], list[str]]):
    assert rule(ROOT) == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (wrong_direction, "mta_viz/config.py", '"""Doc."""\nfrom mta_viz.run.tracing import load\n'),
        (wrong_direction, "mta_viz/config.py", '"""Doc."""\nfrom mta_viz import run\n'),
        (wrong_direction, "mta_viz/model/ops.py", '"""Doc."""\nfrom ..run.tracing import load\n'),
        (wrong_direction, "mta_viz/model/ops.py", '"""Doc."""\ndef _f():\n    import mta_viz.run.tracing\n'),
        (wrong_direction, "mta_viz/tracing/x.py", '"""Doc."""\nimport mta_viz.ui\n'),
        (wrong_direction, "mta_viz/tokenizers/base.py", '"""Doc."""\nimport mta_viz.checkpoint.types\n'),
        (wrong_direction, "pages/workspace.py", '"""Doc."""\nimport mta_viz.training.from_scratch\n'),
        (wrong_direction, "app.py", '"""Doc."""\nfrom mta_viz import training\n'),
        (wrong_direction, "mta_viz/analysis/x.py", '"""Doc."""\nimport mta_viz.training.settings\n'),
        (wrong_direction, "mta_viz/helpers.py", '"""Doc."""\n'),
        (wrong_direction, "mta_viz/ui/shell/x.py", '"""Doc."""\nimport mta_viz.training.from_scratch\n'),
        (wrong_direction, "mta_viz/cli/figure.py", '"""Doc."""\nfrom mta_viz.ui.shell import state\n'),
        (wrong_room, "mta_viz/ui/shell/x.py", '"""Doc."""\nfrom mta_viz.ui.labs.view import draw\n'),
        (wrong_room, "mta_viz/analysis/kernels/x.py", '"""Doc."""\nimport mta_viz.analysis.cause.sweeps\n'),
        (cyclic, "mta_viz/a.py", '"""Doc."""\ndef _f():\n    from mta_viz.a import b\n'),
        (misplaced_library, "mta_viz/ui/x.py", '"""Doc."""\nfrom streamlit.testing.v1 import AppTest\n'),
        (misplaced_library, "mta_viz/tracing.py", '"""Doc."""\nimport streamlit as st\n'),
        (misplaced_library, "pages/workspace.py", '"""Doc."""\nimport plotly.graph_objects as go\n'),
        (misplaced_library, "mta_viz/analysis/health.py", '"""Doc."""\nfrom captum.attr import X\n'),
        (misplaced_library, "mta_viz/analysis/maps.py", '"""Doc."""\nimport transformer_lens\n'),
        (misplaced_library, "mta_viz/plots/theme.py", '"""Doc."""\nfrom torch import Tensor\n'),
        (untyped_state, "mta_viz/ui/x.py", '"""Doc."""\nimport streamlit as st\nst.session_state["x"] = 1\n'),
        (lost_presses, "mta_viz/ui/x.py", '"""Doc."""\nif st.button("Go"):\n    go()\n'),
        (lost_presses, "pages/x.py", '"""Doc."""\ngone = here and place.button("Go")\n'),
        (unregistered, "mta_viz/figures/attention/x.py", '"""Doc."""\n@named("x")\nclass C: ...\n'),
        (too_long, "mta_viz/config.py", '"""Doc."""\n' + "\n" * 400),
        (too_long, "pages/workspace.py", '"""Doc."""\n' + "\n" * 80),
        (undocumented, "mta_viz/config.py", "import math\n"),
        (
            undocumented,
            "mta_viz/figures/new.py",
            '"""Doc."""\nclass C:\n    """Doc."""\n    def unheard(self): ...\n',
        ),
        (undocumented, "mta_viz/config.py", '"""Doc."""\ndef f(): ...\n'),
        (undocumented, "mta_viz/config.py", '"""Doc."""\nclass C:\n    """Doc."""\n    def f(self): ...\n'),
        (shadowed_api, "mta_viz/kernels.py", '"""Doc."""\n'),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, rule: Callable, name: str, text: str):
    planted = tmp_path / name
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    assert len(rule(tmp_path)) == 1


def test_importing_the_package_is_light():
    code = "import json, sys, mta_viz; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    modules = json.loads(answer.stdout)
    assert not {"torch", "streamlit", "numpy", "transformer_lens"} & set(modules)
