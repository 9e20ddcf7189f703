"""The part "Over training" of the Kernels page, in streamlit's own test runner."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.checkpoint.history import HISTORY_FILE

ASSETS = Path(__file__).parents[2] / "assets"


def page(folder, **view) -> AppTest:
    """The part alone, on one model folder."""

    def script(folder, view):
        from mta_viz.run.tracing import load
        from mta_viz.ui.kernels.layer import draw_training
        from mta_viz.ui.shell import state
        from mta_viz.ui.shell.page import Page

        if "loaded" not in state.st.session_state:
            state.st.session_state["loaded"] = load(folder)
            state.select(checkpoint="x", **view)
        draw_training(Page(state.st.session_state["loaded"], None, "k", "", False, 0, False))

    return AppTest.from_function(script, kwargs={"folder": str(folder), "view": view}, default_timeout=120)


def grid(app: AppTest) -> dict:
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def test_the_slider_goes_through_the_snapshots_on_one_colour_scale():
    app = page(ASSETS / "blocks-n5-mta", layer=2, head=1).run()
    assert not app.exception and len(app.get("plotly_chart")) == 2
    last = grid(app)
    app.select_slider[0].set_value(0).run()
    assert not app.exception
    assert any("after 0 training steps" in one.value for one in app.caption)
    first = grid(app)
    assert (
        first["data"][0]["zmax"] == last["data"][0]["zmax"] and first["data"][0]["z"] != last["data"][0]["z"]
    )


def test_another_score_and_head_change_the_curves():
    app = page(ASSETS / "blocks-n5-mta", layer=2, head=1).run()
    app.selectbox(key="widget.training_score").set_value("edge_first").run()
    curves = json.loads(app.get("plotly_chart")[1].proto.spec)
    assert not app.exception and "edge first" in json.dumps(curves["layout"])


def test_without_a_history_the_steps_of_the_run_are_one(tmp_path):
    from safetensors.torch import load_file, save_file

    for step, factor in (("0000000000", 0.5), ("0000000100", 1.0)):
        (folder := tmp_path / "checkpoints" / step).mkdir(parents=True)
        (folder / "params.json").write_bytes((ASSETS / "blocks-n5-mta/params.json").read_bytes())
        weights = load_file(ASSETS / "blocks-n5-mta/model.safetensors")
        key = "layers.1.attention.mta_kernel"
        save_file(weights | {key: weights[key] * factor}, folder / "model.safetensors")
    app = page(tmp_path, layer=1, head=0).run()
    assert not app.exception and not app.warning, (app.exception, app.warning)
    assert any("after 100 training steps" in one.value for one in app.caption)
    whole = grid(app)["data"][0]["z"]
    app.select_slider[0].set_value(0).run()
    assert any("after 0 training steps" in one.value for one in app.caption)
    assert grid(app)["data"][0]["z"] != whole


@pytest.mark.parametrize(
    ("folder", "told"), [("blocks-n5-transformer", "no key-query kernels"), ("no history", HISTORY_FILE)]
)
def test_without_kernels_or_history_it_says_what_to_do(tmp_path, folder, told):
    where = ASSETS / folder
    if folder == "no history":
        where = tmp_path
        for name in ("model.safetensors", "params.json"):
            (where / name).write_bytes((ASSETS / "blocks-n5-mta" / name).read_bytes())
    app = page(where).run()
    assert not app.exception and told in app.info[0].value.replace("\\", "") and not app.get("plotly_chart")


def test_a_history_of_other_weights_is_not_drawn(tmp_path):
    for name in ("model.safetensors", "params.json", HISTORY_FILE):
        (tmp_path / name).write_bytes((ASSETS / "blocks-n5-mta" / name).read_bytes())
    from safetensors.torch import load_file, save_file

    weights = load_file(tmp_path / "model.safetensors")
    weights["layers.1.attention.mta_kernel"] = weights["layers.1.attention.mta_kernel"] * 2
    save_file(weights, tmp_path / "model.safetensors")
    app = page(tmp_path).run()
    assert "belongs to another checkpoint" in app.warning[0].value.replace("\\", "")
