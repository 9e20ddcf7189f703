"""The explorer's views in a real chromium: a click selects what was clicked, a link brings it back."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.looking import PROMPT, at, run_prompt, settle, wait_for_map

pytestmark = pytest.mark.browser


def click_target(page, chart, data):
    """Click the invisible target whose customdata begins with `data`."""
    x, y = page.evaluate(
        """([chart, data]) => {
            const plot = document.querySelector(chart + ' .js-plotly-plot');
            for (const trace of plot.calcdata) {
                const all = trace[0].trace.customdata;
                if (!all) continue;
                for (let index = 0; index < trace.length; index++) {
                    const own = [...(all[index].length === undefined ? [all[index]] : all[index])];
                    const same = data.every((value, part) => own[part] === value);
                    if (same) return [trace[index].x, trace[index].y];
                }
            }
        }""",
        [chart, data],
    )
    page.mouse.move(*at(page, chart, x, y + 0.01))
    page.mouse.move(*at(page, chart, x, y))
    page.mouse.down()
    page.mouse.up()


def open_tab(page, name):
    page.get_by_role("radio", name=name, exact=True).click()
    settle(page)
    page.wait_for_timeout(1500)


@pytest.fixture
def explorer(visit):
    """The explorer on a prompt, at layer 1, head 0."""
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    run_prompt(page, PROMPT)
    settle(page)
    return page


def test_a_click_on_a_bar_selects_its_token(explorer):
    open_tab(explorer, "Row and column")
    x, y = at(explorer, "[class*='st-key-chart-bars'][class*='keys']", 7, 0)
    explorer.mouse.move(x - 1, y)
    explorer.mouse.move(x, y)
    explorer.mouse.down()
    explorer.mouse.up()
    expect(explorer).to_have_url(re.compile("k=7"))


def test_a_click_on_a_letter_makes_its_token_the_query(explorer):
    open_tab(explorer, "Text")
    click_target(explorer, "[class*='st-key-chart-text']", [9])
    expect(explorer).to_have_url(re.compile("q=9"))
    expect(explorer.get_by_text('query 9 "').first).to_be_visible()


def test_a_click_on_a_tile_opens_that_head_and_a_link_brings_it_back(explorer, visit):
    open_tab(explorer, "Heads")
    click_target(explorer, "[class*='st-key-chart-tiles']", [2, 3])
    wait_for_map(explorer, "L2 H3")
    expect(explorer).to_have_url(re.compile("l=2.*h=3"))
    other = visit("/" + explorer.url.split("/", 3)[3])
    wait_for_map(other, "L2 H3")


def test_a_tap_of_the_window_leads_to_its_source(explorer):
    x, y = at(explorer, "[class*='st-key-chart-why']", -1, -1)
    explorer.mouse.move(x - 1, y)
    explorer.mouse.move(x, y)
    explorer.mouse.down()
    explorer.mouse.up()
    expect(explorer).to_have_url(re.compile("s=raw"))
    wait_for_map(explorer, "raw scores")


def test_a_named_span_is_chosen_and_outlined(explorer):
    explorer.get_by_label("Find text").fill("mat")
    explorer.get_by_label("Find text").press("Enter")
    explorer.get_by_role("button", name="Name it").click()
    expect(explorer.get_by_role("radio", name="A mat")).to_be_checked()
    letter = explorer.locator(".st-key-exact .infolayer .annotation-text", has_text=re.compile("^A$"))
    expect(letter).to_have_count(1)
