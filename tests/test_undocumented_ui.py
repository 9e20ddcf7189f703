"""What the app uses of Streamlit's and Plotly's scripts that neither documents, item by item of the list.

The files that both packages ship are read, and a page in a browser where only that shows it.
"""

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import streamlit
from playwright.sync_api import expect
from plotly.offline import get_plotlyjs

from mta_viz.plots import cells
from tests.browser.looking import click, settle
from tests.browser.serving import running
from tests.undocumented import PLOTLY, STREAMLIT, Item

STYLE = Path(__file__).parents[1] / "assets" / "style.css"
SCRIPTS = Path(streamlit.__file__).parent / "static" / "static" / "js"


@lru_cache
def scripts() -> str:
    """All of Streamlit's JavaScript; Plotly's is in it."""
    return "\n".join(path.read_text("utf-8", "replace") for path in SCRIPTS.glob("*.js"))


@pytest.mark.parametrize("item", STREAMLIT, ids=lambda item: item.text)
def test_streamlit_still_has_it(item: Item) -> None:
    assert item.text in scripts(), f"Streamlit {streamlit.__version__} lost {item.text!r}, used by {item.why}"


@pytest.mark.parametrize("item", PLOTLY, ids=lambda item: item.text)
def test_plotly_still_has_it_here_and_in_streamlit(item: Item) -> None:
    assert item.text in scripts(), f"Streamlit's Plotly lost {item.text!r}, used by {item.why}"
    assert item.text in get_plotlyjs(), f"Plotly lost {item.text!r}, used by {item.why}"


def test_every_foreign_name_in_the_style_is_on_the_list() -> None:
    style = re.sub(r"/\*.*?\*/", "", STYLE.read_text("utf-8"), flags=re.DOTALL)
    listed = {item.text for item in (*STREAMLIT, *PLOTLY)}
    used = {*re.findall(r'data-testid="(\w+)"', style), *re.findall(r"\.(st[A-Z]\w+)", style)}
    used |= {name for name in ("js-plotly-plot", "infolayer") if name in style}
    assert used - listed == set()


def test_a_box_of_traces_takes_them_as_they_are() -> None:
    """plots.parts: a figure made at once of traces and a plain layout is checked once; traces are copies."""
    trace = go.Scatter(x=[1.0], y=[2.0], meta=cells.TARGETS)
    figure = go.Figure(data=[trace], layout={"annotations": [{"text": "a"}], "shapes": []})
    assert figure.data[0].meta == cells.TARGETS and figure.layout.annotations[0].text == "a"
    with pytest.raises(ValueError, match="colour"):
        go.Figure(data=[trace], layout={"colour": "red"})


def test_small_integers_stay_small_on_the_way_to_the_browser() -> None:
    """plots.attention.maps: coordinates of click targets are most of a figure's size."""
    sent = go.Scatter(x=np.arange(3, dtype=np.uint8)).to_plotly_json()
    figure = go.Figure(sent).to_json()
    assert '"dtype":"u1"' in figure and '"bdata"' in figure


def test_a_named_scale_can_be_sampled() -> None:
    """plots.attention.text: letters are white on dark cells."""
    from plotly.colors import get_colorscale, sample_colorscale, unlabel_rgb

    dark, light = sample_colorscale(get_colorscale("dense_r"), [0.0, 1.0])
    assert sum(unlabel_rgb(dark)) < sum(unlabel_rgb(light))


def test_a_notebook_asks_a_figure_for_its_mime_bundle() -> None:
    """figures.base.Drawn shows as its picture."""
    bundle = go.Figure()._repr_mimebundle_(["application/vnd.plotly.v1+json"], None)
    assert isinstance(bundle, dict)


PAGE = """
import numpy as np, plotly.graph_objects as go, streamlit as st
from mta_viz.plots import cells
layout = {"width": 300, "height": 300, "margin": {"l": 0, "t": 0, "r": 0, "b": 0}, "hovermode": "closest"}
layout |= {"xaxis": {"range": [-1, 2]}, "yaxis": {"range": [-1, 2]}}
for name, data in {"pair": np.array([[3, 4], [5, 6]], np.int16), "word": np.array(["a", "b"])}.items():
    trace = cells.targets(np.array([0, 1]), np.array([0, 1]), 20.0, "%{x}", data)
    looks = {"selection_mode": ("points",), "theme": None, "width": "content"}
    st.plotly_chart(go.Figure([trace], layout), key=name, on_select="rerun", **looks)
    points = (st.session_state.get(name) or {}).get("selection", {}).get("points", [])
    if points:
        st.text(f"{name}: {points[0]['x']} {points[0]['y']} {points[0]['customdata']!r}")
with st.container(key="stands-alone"):
    st.segmented_control("Of", ["x", "y"], key="some.key")
"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """A page of Streamlit with two charts whose undrawn points can be chosen, in a browser."""
    script = tmp_path_factory.mktemp("page") / "page.py"
    script.write_text(PAGE)
    with running(script=script) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(300_000)
        page.goto(address)
        page.locator(".st-key-word .js-plotly-plot").wait_for()
        yield page
        page.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("chart", "customdata"), [("pair", "{'0': 5, '1': 6}|[5, 6]"), ("word", "'b'|['b']|{'0': 'b'}")]
)
def test_an_undrawn_point_takes_a_click_and_brings_its_data(page, chart: str, customdata: str) -> None:
    """plots.cells.targets, ui.shell.pickers: x, y and customdata of a point of which no marker is drawn."""
    settle(page)  # the words about the chart above take a place, and this chart is drawn anew below them
    plot = page.locator(f".st-key-{chart} .js-plotly-plot")
    plot.hover(position={"x": 100, "y": 200})  # waits until it is seen and stays where it is
    box = plot.bounding_box()
    click(page, box["x"] + 200, box["y"] + 100)  # the point (1, 1), the second of the trace
    line = page.get_by_test_id("stText").filter(has_text=f"{chart}: ")
    line.wait_for()
    words = line.inner_text().removeprefix(f"{chart}: ")
    assert words in {f"1 1 {shape}" for shape in customdata.split("|")}, words


@pytest.mark.browser
def test_keys_are_classes_and_segments_are_radios(page) -> None:
    """style.css: `.st-key-...` with dots as dashes, and the segments of a control."""
    expect(page.locator(".st-key-stands-alone")).to_have_count(1)
    expect(page.locator(".st-key-some-key [data-testid='stButtonGroup'] [role='radio']")).to_have_count(2)


@pytest.mark.browser
def test_text_without_a_colour_is_drawn_in_the_one_the_style_replaces(page) -> None:
    """style.css: `text[style*="rgb(68, 68, 68)"]` and `[class*="tick"] text`."""
    ticks = page.locator(".st-key-pair .js-plotly-plot [class*='tick'] text")
    assert ticks.count() > 0 and "rgb(68, 68, 68)" in (ticks.first.get_attribute("style") or "")
