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
    page = visit("/kernels?ck=tiny-mta&arranged=layer")
    page.get_by_text("Click a tile or a row").wait_for()
    settle(page)
    pitch = page.evaluate(f'document.querySelector("{KEY_QUERY} .js-plotly-plot").layout.xaxis.tickvals[1]')
    rows = page.evaluate(f'document.querySelector("{KEY_QUERY} .js-plotly-plot").layout.yaxis.tickvals')
    x, y = at(page, KEY_QUERY, pitch + 2, rows[3] + 1)  # off the middle of L3 post, H1
    click(page, x, y)
    expect(page.get_by_text("tiny-mta · L3 H1 · after the softmax")).to_be_visible()
    expect(page).to_have_url(re.compile("l=3&h=1.*w=post"))
    settle(page)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("tiny-mta · L3 H2 · after the softmax")).to_be_visible()
    settle(page)
    x, y = at(page, KEY_QUERY, pitch + 2, rows[3] + 1)  # the same tile again
    click(page, x, y)
    expect(page.get_by_text("tiny-mta · L3 H1 · after the softmax")).to_be_visible()


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


CONTRAST = """() => {
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const rgba = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((v, at) => v * a + under[at] * (1 - a));
  const ground = e => !e ? [255, 255, 255]
    : over(rgba(getComputedStyle(e).backgroundColor), ground(e.parentElement));
  const faint = [];
  for (const e of document.querySelectorAll('.stMain :is(p, button, label, h5, li)')) {
    const own = [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(e);
    if (!own || !e.getClientRects().length || e.closest(':disabled, [aria-disabled=true]')) continue;
    const under = ground(e), both = [over(rgba(style.color), under), under];
    const [a, b] = both.map(light).sort((p, q) => q - p);
    const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if ((a + 0.05) / (b + 0.05) < least) faint.push(e.textContent.slice(0, 40));
  }
  return faint;
}"""
ATLAS = "[class*='st-key-chart-gallery-pre']"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_tile_s_card_is_beside_the_atlas_and_its_words_can_be_read(visit, theme):
    page = visit("/kernels?ck=tiny-mta&p=Hello", 1280, theme)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_text("Each tile on its own colour scale").wait_for()
    settle(page)
    click_target(page, ATLAS, ["post 3 1"])
    expect(page.get_by_text("tiny-mta · L3 H1 · after the softmax")).to_be_visible()
    settle(page)
    atlas, card = (page.locator(f".st-key-{name}").bounding_box() for name in ("atlas", "card"))
    assert card["x"] >= atlas["x"] + atlas["width"] and abs(card["y"] - atlas["y"]) < 2
    opens = page.get_by_role("button", name="Open in the workspace").bounding_box()
    assert opens["y"] + opens["height"] <= 800
    assert page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight") <= 1800
    assert page.evaluate(CONTRAST) == []
