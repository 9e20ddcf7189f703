"""The card of every kind of kernel, alone on a page: what it says, what it draws, and broken kernels."""

import json

import pytest
import torch
from streamlit.testing.v1 import AppTest

from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from tests.tiny_models import FULL, config, random_weights

LAYER = "blocks.1.attn."


def script(folder: str, where: str, head: int, layer: int) -> None:
    """A page with nothing but one card."""
    import mta_viz
    from mta_viz.analysis.kernels.kernels import KernelId
    from mta_viz.ui.kernels.card import draw_card
    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.page import Page

    state.enter("card")
    page = Page(mta_viz.load(folder), None, folder, "", False, 0, False)
    draw_card(page, KernelId(layer, head, where))


def write(folder, mta: MTAOptions) -> str:
    shapes = config(mta, 258)
    weights = random_weights(shapes)
    kernels = weights[LAYER + "kernel_pre"]
    kernels[1] = 0
    kernels[2, 0, :2] = torch.nan
    if kernels.shape[1:] == (6, 11):
        for lag in range(6):
            kernels[3, 5 - lag, 5 - lag] = 3
        weights[LAYER + "head_pre"][0, 2] = 0
        weights[LAYER + "head_pre"][0, 3, 0] = torch.inf
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=torch.float32)
    return str(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("cards")
    two_rows = MTAOptions(pre_kernel=(2, 9))
    return {"full": write(root / "full", FULL), "two rows": write(root / "two", two_rows)}


@pytest.fixture
def card(folders):
    def draw(where: str, head: int, name: str = "full", layer: int = 1) -> AppTest:
        args = (folders[name], where, head, layer)
        app = AppTest.from_function(script, default_timeout=120, args=args).run()
        assert not app.exception, app.exception[0].message
        return app

    return draw


def said(app: AppTest) -> str:
    kinds = ("markdown", "warning", "info", "caption")
    return "\n".join(element.value for kind in kinds for element in app.get(kind)).replace("\\", "")


def test_a_diagonal_looks_and_acts_like_one(card):
    app = card("pre", 3)
    assert "L1 H3 · before the softmax · 6x11 · diagonal (sequence match)" in said(app)
    assert "Acts like it: On a repeated 6-gram the full match gets" in said(app)
    assert "is above" in said(app) and "doubtful" not in said(app) and "Matters: not tested yet" in said(app)
    assert len(app.get("plotly_chart")) == 4  # taps, scores, probe, nearest kernels
    app.toggle(key="widget.card_frequency").set_value(True).run()
    assert not app.exception and len(app.get("plotly_chart")) == 5


def test_hiding_the_own_tap_and_another_probe_change_the_pictures(card):
    app = card("post", 0)
    app.toggle[0].set_value(True).run()
    assert "(hidden)" in json.dumps([chart.proto.spec for chart in app.get("plotly_chart")])
    app.selectbox[0].set_value("run of keys").run()
    assert not app.exception and "In a run of 13 equal keys" in said(app)


def test_a_near_kernel_is_chosen_by_its_button(card):
    app = card("pre", 3)
    app.button(key="card.open.0").click().run()
    view = app.session_state["view"]
    assert (view.layer, view.head, view.where) != (1, 3, "pre")


def test_kernels_of_zeros_and_with_nan_say_so_and_are_drawn(card):
    zero, broken = card("pre", 1), card("pre", 2)
    assert "All taps are 0: this head's map is erased here" in said(zero)
    assert "NaN or infinite in 2 taps" in said(broken)
    assert len(zero.get("plotly_chart")) == len(broken.get("plotly_chart")) == 1


def test_two_rows_cannot_show_a_diagonal(card):
    assert "A two-row kernel cannot show a diagonal or priming" in said(card("pre", 0, "two rows"))


@pytest.mark.parametrize("where", ["head_pre", "head_post"])
def test_a_mixing_row_has_bars_and_its_matrix(card, where):
    app = card(where, 0)
    assert ("not identified" in said(app)) == (where == "head_post")
    assert len(app.get("plotly_chart")) == 2


def test_a_broken_mixing_matrix_says_so(card):
    assert "NaN or infinite in 1" in said(card("head_pre", 1))


def test_a_kernel_the_model_lacks_is_said(card):
    assert "This model has no kernel L0 H0" in said(card("pre", 0, layer=0))
