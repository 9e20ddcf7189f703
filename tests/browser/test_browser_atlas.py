"""The kernel gallery in a real chromium: a click on a tile opens that kernel."""

import json
import re

import pytest
from playwright.sync_api import expect
from safetensors import safe_open

from mta_viz.checkpoint.history import HISTORY_FILE
from tests.browser.looking import at, click, click_target, settle
from tests.browser.serving import ROOT

pytestmark = pytest.mark.browser

KEY_QUERY = "[class*='st-key-chart-gallery-pre']"


def test_a_click_on_a_tile_opens_its_kernel_and_arrows_go_on(visit):
    page = visit("/kernels?ck=tiny-mta")
    page.get_by_text("Click a tile or a row").wait_for()
    settle(page)
    pitch = page.evaluate(f'document.querySelector("{KEY_QUERY} .js-plotly-plot").layout.xaxis.tickvals[1]')
    rows = page.evaluate(f'document.querySelector("{KEY_QUERY} .js-plotly-plot").layout.yaxis.tickvals')
    x, y = at(page, KEY_QUERY, pitch + 2, rows[3] + 1)  # off the middle of L3 post, H1
    click(page, x, y)
    expect(page.get_by_text("tiny-mta · L3 H1 post")).to_be_visible()
    expect(page).to_have_url(re.compile("l=3&h=1.*w=post"))
    settle(page)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("tiny-mta · L3 H2 post")).to_be_visible()
    settle(page)
    x, y = at(page, KEY_QUERY, pitch + 2, rows[3] + 1)  # the same tile again
    click(page, x, y)
    expect(page.get_by_text("tiny-mta · L3 H1 post")).to_be_visible()


def test_a_click_on_a_training_curve_chooses_its_head_and_step(visit):
    with safe_open(ROOT / "assets/blocks-n5-mta" / HISTORY_FILE, "pt") as stored:
        step = json.loads(stored.metadata()["steps"])[20]
    page = visit("/kernels?ck=blocks-n5-mta&l=1&h=0")
    page.get_by_role("radio", name="Over training").click()
    curves = "[class*='st-key-chart-training-curves']"
    page.locator(curves).wait_for()
    settle(page)
    click_target(page, curves, [1, 20])
    expect(page).to_have_url(re.compile("l=1&h=1"))
    expect(page.get_by_text(f"after {step:,} training steps")).to_be_visible()
