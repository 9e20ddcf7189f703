"""Pictures come out as what they claim to be, on white, and a missing browser is said."""

import html
import struct
import time

import plotly.graph_objects as go
import pytest
import torch
from choreographer.browsers.chromium import Chromium

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.errors import MtaVizError
from mta_viz.exporting import pictures
from mta_viz.exporting.pictures import figure_bytes, printable
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import attention_map
from mta_viz.tokenizers.base import Tokens


def figure() -> go.Figure:
    attention = AttentionMap(0, 0, Stage.RAW, torch.ones(3, 3), 0, 0)
    tokens = Tokens((0, 1, 2), ("<s>", "$x$", "a"), ((0, 0),) * 3, None)
    return attention_map(attention, tokens, limit=1.0, size=(300, 320))


@pytest.mark.browser
def test_pictures_and_a_warm_second_one() -> None:
    png = figure_bytes(figure(), "png")
    assert png.startswith(b"\x89PNG") and struct.unpack(">II", png[16:24]) == (600, 640)
    start = time.process_time(), time.perf_counter()
    svg = html.unescape(figure_bytes(figure(), "svg").decode())
    assert time.process_time() - start[0] < 1
    assert svg.startswith("<svg") and "1 $x$<" in svg and "0 <s><" in svg
    assert figure_bytes(figure(), "pdf").startswith(b"%PDF")


def test_html_needs_no_browser_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chromium, "find_browser", lambda **_: None)
    page = figure_bytes(figure(), "html").decode()
    assert "Plotly.newPlot" in page and '<script src="http' not in page and len(page) > 1_000_000


def test_a_missing_browser_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chromium, "find_browser", lambda **_: None)
    with pytest.raises(MtaVizError, match=r"png needs Chrome or Chromium.*apt-get install -y chromium"):
        figure_bytes(figure(), "png")


def test_paper_is_white_and_click_targets_are_gone() -> None:
    drawn = figure()
    copy = printable(drawn)
    assert copy.layout.paper_bgcolor == "white" and drawn.layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert len(copy.data) == len(drawn.data) - 2


@pytest.mark.parametrize(("n_ended", "words"), [(1, None), (2, "its process ended")])
def test_a_browser_that_was_ended_is_replaced_once(monkeypatch, n_ended, words):
    made: list[object] = []

    class Drawer:
        def __init__(self):
            made.append(self)

        def draw(self, figure, options):
            if len(made) <= n_ended:
                raise RuntimeError("its process ended")
            return b"drawn"

        def has_ended(self):
            return True

        def end(self, seconds):
            pass

    monkeypatch.setattr(pictures, "_Drawer", Drawer)
    monkeypatch.setattr(pictures, "_drawers", [])
    monkeypatch.setattr(pictures, "find_browser", lambda format: "chromium")
    if words is None:
        assert pictures.figure_bytes(go.Figure(), "png") == b"drawn"
    else:
        with pytest.raises(MtaVizError, match=words):
            pictures.figure_bytes(go.Figure(), "png")
    assert len(made) == 2
