"""4,096 tokens through the shipped needle model on the CPU, in a real browser: `make soak`."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.looking import MAP, WINDOW, settle, wait_for_map
from tests.browser.serving import ROOT, running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MAX_BYTES = 2_000_000  # of one view: a figure or a table is one message
TABS = {
    "What changed": "[class*='st-key-chart-difference']",
    "Row and column": "[class*='st-key-chart-row-']",
    "Which heads": "[class*='st-key-chart-head-scores']",
    "Cells": "[class*='st-key-cells-']",
    "What it predicts": "[class*='st-key-chart-next']",
}
SIZES = """() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.calcdata)
    .map(all => all.map(one => one[0].trace).filter(one => one.type === 'heatmap' && one.z)
        .map(one => [one.z.length, one.z[0].length]))"""


@pytest.fixture
def shipped():
    """The address of an app over the shipped models."""
    with running(ROOT / "assets") as address:
        yield address


def prompt(wanted: int) -> str:
    """Text about a ferry, with needles far apart, of at least so many tokens of the needle model."""
    from mta_viz.run.tracing import load, tokenize

    model = load(ROOT / "assets" / "needle-mta")
    filler = "The ferry leaves the old harbour before the market opens and nobody waits for it. "
    needle = "The magic number of Oslo is 88. "
    text = filler * 20 + needle + filler * (wanted // 8)
    ids = tokenize(model, text)
    end = ids.spans[wanted - 2][1]
    return text[:end]


def test_4096_tokens(visit, shipped):
    page = visit("about:blank", address="")
    received = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    page.goto(f"{shipped}/?ck=needle-mta&l=3&h=0&s=kq")
    wait_for_map(page, "L3 H0")
    settle(page)
    box = page.get_by_label("Prompt", exact=True)
    box.fill(prompt(4096))
    box.press("Control+Enter")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped. Press Run to see this prompt.")).to_be_visible()

    page.get_by_role("button", name=re.compile("^Run")).click()
    page.locator("[data-testid=stProgress]").first.wait_for()
    started, begun = time.monotonic(), len(received)
    page.locator(MAP).first.wait_for()
    print(f"\nfirst map {time.monotonic() - started:.1f} s after Run")
    settle(page)
    expect(page.get_by_text("beyond the trained length of 1,024")).to_be_visible()
    expect(
        page.get_by_text(
            re.compile(r"4,09[0-9] tokens( · about [0-9]+ s)? · [0-9.]+ [MG]B · beyond the trained length")
        )
    ).to_be_visible()
    print(f"page: {sum(received[begun:]):,} bytes, the largest view {max(received[begun:]):,}")
    assert max(received[begun:]) <= MAX_BYTES
    shapes = [shape for chart in page.evaluate(SIZES) for shape in chart]
    assert max(max(shape) for shape in shapes) <= 512, shapes
    top, bottom, left, right = page.evaluate(WINDOW)
    assert max(bottom - top, right - left) <= 256
    for name, place in TABS.items():
        begun, started = len(received), time.monotonic()
        page.get_by_role("radio", name=name, exact=True).click()
        if name == "Which heads":
            page.get_by_role("button", name="Score all heads").click()
        page.locator(place).first.wait_for()
        settle(page)
        sent = received[begun:]
        print(f"{name}: {time.monotonic() - started:.1f} s, {sum(sent):,} bytes, the largest {max(sent):,}")
        assert page.locator("[data-testid=stAlertContentError], .stException").count() == 0, name
        assert max(sent) <= MAX_BYTES, name
