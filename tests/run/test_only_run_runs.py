"""Models are run in `run/` alone, under their lock: hooks are state on a module. Training is an exception."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("mta_viz/run/", "mta_viz/model/", "mta_viz/training/")
# Names that only a model's modules have: calling one runs a part of the model, whoever it belongs to.
ALWAYS = {
    "run_with_cache", "run_with_hooks", "functional_call", "add_hook", "add_perma_hook", "backward",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "attend",
    "attend_rows", "stage_rows", "gate_values", "last_rows", "ln1", "ln2", "ln_final", "mlp", "embed",
    "unembed",
}  # fmt: skip
# Names that a trace has too: calling one on a model or a part of one runs it.
OF_MODELS = {
    "logits",
    "forward",
    "hooks",
    "project",
    "normalize",
    "output",
    "finish",
    "rows",
    "slabs",
    "attn",
}
MODELS = ("model", "block", "blocks", "attn", "attention")
GRADIENTS = {"torch.autograd.grad", "autograd.grad", "torch.func.grad", "torch.func.vjp", "torch.func.jacrev"}


def runs(root: Path) -> Iterator[str]:
    """Every call outside the rooms that runs a model or a part of one."""
    for path in sorted([*root.glob("mta_viz/**/*.py"), *root.glob("pages/*.py"), *root.glob("app.py")]):
        name = path.relative_to(root).as_posix()
        if not name.startswith(ROOMS):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and _runs(node.func):
                    yield f"{name}:{node.lineno} {ast.unparse(node.func)}"


def _runs(function: ast.expr) -> bool:
    if ast.unparse(function) in GRADIENTS or _is_model(function):
        return True
    if isinstance(function, ast.Name):
        return function.id == "functional_call"
    if not isinstance(function, ast.Attribute):
        return False
    return function.attr in ALWAYS or (function.attr in OF_MODELS and _is_model(function.value))


def _is_model(value: ast.expr) -> bool:
    """Whether an expression is named as a model or a part of one: `page.model`, `model.blocks[0].attn`."""
    while isinstance(value, ast.Subscript):
        value = value.value
    named = getattr(value, "id", getattr(value, "attr", ""))
    return named in MODELS


def test_only_run_runs_models():
    assert list(runs(ROOT)) == []


@pytest.mark.parametrize(
    "line",
    [
        "logits = model(tokens)",
        "page.model(tokens)",
        "trace.model.blocks[layer](resid)",
        "model.logits(resid)",
        "model.blocks[0].attn(x)",
        "attention.project(x)",
        "attention.attend(qkv)",
        "block.attn.output(z)",
        "model.embed(ids)",
        "model.run_with_cache(ids)",
        "other_model.run_with_hooks(ids)",
        "with model.hooks(fwd_hooks=[]): pass",
        "torch.func.functional_call(model, weights, ids)",
        "functional_call(model, weights, ids)",
        "torch.autograd.grad(loss, x)",
        "loss.backward()",
        "model.hook_dict[name].add_hook(f)",
    ],
)
def test_a_planted_run_is_found(tmp_path: Path, line: str):
    harmless = "trace.logits(slice(1))\ntrace.project(0)\nbuild_model(checkpoint)\nmodel.state_dict()\n"
    for room in ("analysis", "ui", "cli", "plots"):
        (tmp_path / "mta_viz" / room).mkdir(parents=True, exist_ok=True)
        (tmp_path / "mta_viz" / room / "planted.py").write_text(f"{harmless}{line}\n")
    (tmp_path / "mta_viz" / "run").mkdir()
    (tmp_path / "mta_viz" / "run" / "tracing.py").write_text(f"{line}\n")
    assert len(list(runs(tmp_path))) == 4
