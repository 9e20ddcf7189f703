"""The gallery of the Kernels page through streamlit's test runner: filter, sort, selection, empty states."""

import json

import pytest

from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.ui.shell.state import View, url_from_view, view_from_url
from tests.tiny_models import write_wide

PAGE = "pages/kernels.py"


def said(app) -> str:
    kinds = ("error", "info", "caption", "text", "markdown")
    return "\n".join(one.value for kind in kinds for one in app.get(kind)).replace("\\", "")


def charts(app) -> list[dict]:
    return [json.loads(element.proto.spec) for element in app.get("plotly_chart")]


def ids(chart) -> list[str]:
    """The kernels one can click on a mosaic, in order."""
    targets = next(trace for trace in chart["data"] if trace.get("meta") == "targets")
    return [one[0] for one in targets["customdata"]]


def table(app):
    return app.dataframe[-1].value


def fine(app) -> None:
    assert not app.exception, app.exception[0].message
    assert not app.error, app.error[0].value


def test_every_kernel_is_a_target_of_one_of_two_mosaics(open_app):
    app = open_app("tiny-mta", "Hello", PAGE)
    fine(app)
    key_query, mixing = charts(app)
    assert len(ids(key_query)) == 2 * 2 * 4 and len(ids(mixing)) == 4 * 2 * 4
    assert ids(key_query)[5] == "post 1 1" and ids(mixing)[0] == "head_pre 0 0"
    assert "16 kernels:" in said(app) and "expected by chance" in said(app)
    assert "No key-query kernel in L0, 2" in said(app)
    assert len(table(app)) == 48


def test_through_the_navigation_the_selection_is_kept(open_app):
    app = open_app("tiny-mta", "Hello", layer=3, head=2)
    app.switch_page(PAGE).run()
    fine(app)
    assert app.session_state["view"].where == "pre" and "L3 H2 pre" in said(app)


def test_the_address_opens_a_kernel_and_frames_it(open_app):
    url = {"ck": "tiny-mta", "l": "3", "h": "2", "w": "post"}
    assert url_from_view(view_from_url(url)) == url
    assert view_from_url({"w": "elsewhere"}) == View()
    app = open_app("tiny-mta", "Hello", PAGE, layer=3, head=2, where="post")
    fine(app)
    assert "L3 H2 post" in said(app)
    frames = [len(chart["layout"].get("shapes", [])) for chart in charts(app)[:2]]
    assert frames == [2, 0]


def test_a_query_shows_exactly_its_rows_in_mosaic_and_table(open_app):
    app = open_app("tiny-mta", "Hello", PAGE)
    app.text_input(key="widget.kernel_query").set_value("layer >= 3 and post, head != 1").run()
    fine(app)
    (chart,) = charts(app)
    assert ids(chart) == ["post 3 0", "post 3 2", "post 3 3"]
    assert list(table(app)["head"]) == [0, 2, 3]


def test_a_query_that_cannot_be_read_says_where(open_app):
    app = open_app("tiny-mta", "Hello", PAGE)
    app.text_input(key="widget.kernel_query").set_value("diagonl > 0.5").run()
    assert not app.exception
    assert "at character 1" in app.error[0].value and "Near it: diagonal" in app.error[0].value


def test_an_empty_result_says_what_to_do(open_app):
    app = open_app("tiny-mta", "Hello", PAGE)
    app.text_input(key="widget.kernel_query").set_value("layer > 99").run()
    fine(app)
    assert "No kernel satisfies layer > 99; clear the box" in said(app) and not charts(app)


def test_sorting_puts_the_largest_first_and_missing_values_last(open_app):
    app = open_app("tiny-mta", "Hello", PAGE)
    app.selectbox(key="widget.kernel_sort").set_value("diagonal").run()
    fine(app)
    values = list(table(app)["diagonal"])
    there = list(table(app)["diagonal"].dropna())
    assert there == sorted(there, reverse=True) and len(there) == 16
    assert values[:16] == there
    first = table(app).iloc[0]
    assert ids(charts(app)[0])[0] == f"{first['where']} {first['layer']} {first['head']}"


def test_arrows_walk_the_shown_kernels(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, layer=1, head=3, where="pre")
    app.button(key="step.kernel.Right").click().run()
    fine(app)
    view = app.session_state["view"]
    assert KernelId(view.layer, view.head, view.where) == KernelId(1, 0, "post")
    app.button(key="step.kernel.Down").click().run()
    view = app.session_state["view"]
    assert KernelId(view.layer, view.head, view.where) == KernelId(1, 0, "head_pre")


def test_broken_kernels_are_named_on_their_tile(open_app):
    chart = charts(open_app("tiny-nan", "Hello", PAGE))[0]
    texts = [text for trace in chart["data"] if trace.get("mode") == "text" for text in trace["text"]]
    assert "NaN/inf: 1" in texts and "!" in texts


def test_two_rows_cannot_show_a_diagonal(open_app):
    assert "A two-row kernel cannot show: diagonal" in said(open_app("tiny-blocks", None, PAGE))


@pytest.mark.parametrize("numbers", [False, True])
def test_the_paper_s_large_shape_is_drawn_as_two_figures(tmp_path, monkeypatch, open_app, numbers):
    write_wide(tmp_path / "wide")
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    app = open_app("wide", "Hello", PAGE)
    fine(app)
    assert [len(ids(chart)) for chart in charts(app)] == [192, 24 * 2 * 16]
    if numbers:
        app.toggle(key="widget.kernel_numbers").set_value(True).run()
        fine(app)
        assert "Numbers need cells of 26 px" in said(app)


def test_a_file_with_kernels_only_shows_cards_and_says_that_no_prompt_can_be_run(
    tmp_path, monkeypatch, open_app
):
    write_wide(tmp_path / "wide")
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    app = open_app("wide", "Hello", PAGE, layer=3, head=2, where="post")
    fine(app)
    assert "L3 H2 · after the softmax" in said(app)
    assert "This file holds kernels only" in said(app)
    app = open_app("wide", "Hello", "pages/attention.py")
    fine(app)
    assert "for attention maps open the whole model" in "\n".join(one.value for one in app.info)


def test_definitions_are_one_click_from_the_gallery(open_app):
    from mta_viz.analysis.kernels.definitions import measured_rates

    app = open_app("tiny-mta", "Hello", PAGE)
    app.button(key="to_definitions").click().run()
    fine(app)
    shown = [one.value for one in app.dataframe]
    assert [len(one) for one in shown] == [len(rates) for rates in vars(measured_rates()).values()]
    for table, rates in zip(shown, vars(measured_rates()).values(), strict=True):
        assert table["n"].tolist() == [rate.n for rate in rates]
        told = [float(share.rstrip("%")) / 100 for share in table.iloc[:, 3]]
        assert told == pytest.approx([rate.share for rate in rates], abs=6e-4)
    assert shown[0].iloc[0]["with a name"] == f"{measured_rates().false_names[0].share:.2%}"
    text = " ".join(str(value) for table in app.table for value in table.value["definition"])
    assert "1 where earlier and later keys count alike" in text.replace("\\", "")
    assert "survive Benjamini-Hochberg" in said(app) and "expected by chance" in said(app)


def test_definitions_are_one_click_from_a_card(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, layer=3, head=2, where="post")
    app.button(key="card.definitions").click().run()
    fine(app)
    assert len(app.dataframe) == 3
