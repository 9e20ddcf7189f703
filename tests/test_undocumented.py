"""What the product uses of other libraries without their promise: a test for each item of the list.

When one breaks after an upgrade, its message says which file relies on it.
"""

import inspect
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import kaleido
import plotly.graph_objects as go
import pytest
import streamlit
import torch
import transformer_lens
from streamlit.runtime import Runtime
from streamlit.runtime.scriptrunner import ScriptRunContext
from streamlit.testing.v1 import AppTest
from torch import nn
from torch.distributed.checkpoint import filesystem, metadata
from transformer_lens.hook_points import HookPoint

from mta_viz.checkpoint import lingua
from tests.undocumented import UNDOCUMENTED

TESTS: dict[str, Callable[[], None]] = {}


def item(what: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Registers the test of an item."""
    return lambda test: TESTS.setdefault(what, test)


@pytest.mark.parametrize(
    ("library", "what", "where"), UNDOCUMENTED, ids=[f"{a}: {b}" for a, b, _ in UNDOCUMENTED]
)
def test_it_is_as_it_was(library: str, what: str, where: str):
    try:
        TESTS[what]()
    except Exception as error:
        version = sys.modules[library].__version__ if hasattr(sys.modules[library], "__version__") else ""
        pytest.fail(f"{library} {version}: {what}, on which {where} relies, has changed ({error!r})")


def test_every_item_has_one_test_and_every_test_its_item():
    assert sorted(TESTS) == sorted(what for _, what, _ in UNDOCUMENTED)


def _holds_what_is_registered(name: str, register: str) -> None:
    module = nn.Identity()
    assert not getattr(module, name)
    handle = getattr(module, register)(lambda *arguments: None)
    assert len(getattr(module, name)) == 1, f"{register} fills something else"
    handle.remove()
    assert not getattr(module, name)


@item("Module._forward_hooks")
def _forward_hooks() -> None:
    _holds_what_is_registered("_forward_hooks", "register_forward_hook")


@item("Module._forward_pre_hooks")
def _forward_pre_hooks() -> None:
    _holds_what_is_registered("_forward_pre_hooks", "register_forward_pre_hook")


@item("Module._backward_hooks")
def _backward_hooks() -> None:
    _holds_what_is_registered("_backward_hooks", "register_full_backward_hook")


@item("load says GLOBAL name of what it refuses")
def _refused_global() -> None:
    file = io.BytesIO()
    torch.save({"model": print}, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError) as caught:
        torch.load(file, weights_only=True)
    found = lingua.REFUSED.search(str(caught.value))
    assert found is not None and found[1].endswith("print"), str(caught.value)[:200]


@item("distributed.checkpoint's names in .metadata")
def _metadata_names() -> None:
    modules = {
        metadata.__name__: metadata,
        filesystem.__name__: filesystem,
        "torch.serialization": torch.serialization,
    }
    missing = [f"{module}.{name}" for module, name in lingua.RECORDS if not hasattr(modules[module], name)]
    assert not missing, missing


@item("HookPoint registers with torch")
def _hook_points() -> None:
    point = HookPoint()
    point.add_hook(lambda value, hook: value)
    point.add_hook(lambda value, hook: None, dir="bwd")
    assert len(point._forward_hooks) == len(point._backward_hooks) == 1
    assert issubclass(transformer_lens.HookedRootModule, nn.Module)


@item("hooks need not what its packages load")
def _light_hooks() -> None:
    code = (
        "import sys; from mta_viz.model import hooking, transformer\n"
        "assert not {'datasets', 'transformers', 'pandas'} & set(sys.modules), 'loaded with the hooks'\n"
        "import transformer_lens as whole\n"
        "assert whole.HookedRootModule is hooking.HookedRootModule, 'another root module'\n"
        "assert whole.hook_points.HookPoint is hooking.HookPoint, 'another hook point'\n"
        "assert whole.utilities.hf_utils and whole.conversion_utils.conversion_steps.base_tensor_conversion\n"
        "assert 'transformers' in sys.modules\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


@item("messages over 10 kB are not sent again")
def _kept_messages() -> None:
    assert streamlit.config.get_option("global.minCachedMessageSize") <= 10_000
    assert streamlit.config.get_option("global.maxCachedMessageAge") >= 1


@item("a component with a key is the same one with other data")
def _kept_component() -> None:
    script = (
        "import streamlit as st\n"
        "draw = st.components.v2.component('a', js='export default () => {}\\n')\n"
        "draw(key='b', data=b'1' if st.button('more') else b'2')\n"
    )
    app = AppTest.from_string(script).run()
    (first,) = app.get("bidi_component")
    (second,) = app.button[0].click().run().get("bidi_component")
    assert first.proto.id == second.proto.id and first.proto.bytes != second.proto.bytes


@item("a run says whether Back or Forward asked for it")
def _history() -> None:
    assert ScriptRunContext.__dataclass_fields__["is_history_navigation"].default is False


@item("the server says whether a session is connected")
def _connected() -> None:
    assert list(inspect.signature(Runtime.is_active_session).parameters) == ["self", "session_id"]
    assert "session_id" in ScriptRunContext.__dataclass_fields__


@item("its browser is a process called subprocess")
def _browser_process() -> None:
    assert "self.subprocess = " in inspect.getsource(kaleido.Kaleido.__mro__[1].open)


@item("a figure takes a layout unchecked")
def _unchecked_layout() -> None:
    figure = go.Figure(layout={"width": "wide"}, _validate=False)
    assert figure.layout.width == "wide"
    with pytest.raises(ValueError):
        figure.update_layout(hight=3)  # what is changed later is looked at
