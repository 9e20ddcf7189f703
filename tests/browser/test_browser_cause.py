"""Edits and comparisons in a real chromium: a kernel and the answer are changed, two models compared."""

import re
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from tests.browser.looking import PROMPT, at, click, click_target, settle, wait_for_map

pytestmark = pytest.mark.browser

ASKED = f"p={quote_plus(PROMPT)}"
COMPARED = ".st-key-beside-compared"
DATA = "() => JSON.stringify([...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data))"
# Of the three maps beside each other: their cells, and the titles over them.
CELLS = """place => [...document.querySelectorAll(place + ' .js-plotly-plot')]
    .map(plot => JSON.stringify(plot.data.find(trace => trace.type === 'heatmap').z))"""
TITLES = """place => [...document.querySelectorAll(place + ' .js-plotly-plot')]
    .map(plot => plot.layout.annotations.at(-1).text)"""


def wait_for_maps(page, place, words):
    """Until all three maps are there and the first is titled with the words; their cells."""
    page.wait_for_function(
        f"([place, words]) => {{ const found = ({TITLES})(place);"
        " return found.length === 3 && found[0].includes(words) }",
        arg=[place, words],
    )
    settle(page)
    return page.evaluate(CELLS, place)


def strip(page):
    """What the plan's strip says."""
    return page.locator(".st-key-plan-strip").inner_text()


def follow(visit, page):
    """The page's address in a fresh browser."""
    return visit("/" + page.url.split("/", 3)[3])


@pytest.mark.parametrize(
    ("path", "kernel"),
    [
        (f"/?ck=tiny-mta&l=1&h=2&s=kq&{ASKED}", "L1 H2"),
        (f"/kernels?ck=tiny-mta&l=3&h=1&w=pre&s=kq&{ASKED}", "L3 H1"),
    ],
    ids=["why panel", "kernel card"],
)
def test_a_kernel_is_tested_from_where_it_is_shown(visit, path, kernel):
    page = visit(path)
    page.get_by_role("button", name="Test: set this kernel to identity").click()
    expect(page).to_have_url(re.compile(r"/[?].*inspector=Effect.*e=|/[?].*e=.*inspector=Effect"))
    expect(page.locator(".st-key-plan-strip")).to_contain_text(f"{kernel} pre")
    expect(page.locator(".st-key-plan-strip")).to_contain_text("log-odds")
    wait_for_map(page, kernel)


def edit_tap(page, row, column, value):
    """Type a value into a cell of the grid of taps, which is a canvas."""
    grid = page.locator("[class*='st-key-taps-'] canvas").first
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    x, y = box["x"] + 80 + 46 * (column + 0.5), box["y"] + box["height"] / 7 * (row + 1.5)
    page.mouse.click(x, y)
    page.wait_for_timeout(500)
    page.mouse.dblclick(x, y)
    cell = page.locator("#portal input")
    cell.fill(value)
    cell.press("Enter")


def test_a_tap_is_edited_undone_and_in_the_link(visit):
    page = visit(f"/surgery?ck=tiny-mta&l=1&h=2&s=kq&{ASKED}")
    wait_for_map(page, "L1 H2")
    settle(page)
    edit_tap(page, 5, 4, "9")
    expect(page).to_have_url(re.compile("e="))
    settle(page)
    words = strip(page)
    assert "L1 H2 pre" in words and "nats" in words
    page.get_by_role("radio", name="difference", exact=True).click()
    page.get_by_text("difference", exact=True).first.wait_for()
    settle(page)
    other = follow(visit, page)
    wait_for_map(other, "L1 H2")
    settle(other)
    assert strip(other) == words and other.evaluate(DATA) == page.evaluate(DATA)
    page.locator(".st-key-plan-back button").first.click()
    expect(page.locator(".st-key-plan-strip")).to_have_count(0)
    page.wait_for_function("!new URLSearchParams(location.search).has('e')")


def test_two_models_are_compared_head_by_head(visit):
    page = visit(f"/compare?ck=tiny-mta&b=tiny-plain&l=1&h=2&s=kq&{ASKED}")
    first = wait_for_maps(page, COMPARED, "L1 H2")
    expect(page.get_by_text(re.compile("^Heads paired by"))).to_be_visible()
    page.locator(".st-key-step-head-Right button").click()
    second = wait_for_maps(page, COMPARED, "L1 H3")
    assert second[0] != first[0]
    click_target(page, "[class*='st-key-chart-compare-kernels-pre']", [3, 0])
    third = wait_for_maps(page, COMPARED, "L3 H0")
    assert len({first[0], second[0], third[0]}) == 3
    click(page, *at(page, f"{COMPARED} [class*='st-key-chart-compare-A-B']", 5, 12))
    expect(page).to_have_url(re.compile("l=3&h=0.*q=12&k=5"))
    wait_for_maps(page, COMPARED, "L3 H0")
    other = follow(visit, page)
    assert wait_for_maps(other, COMPARED, "L3 H0") == third
    assert other.evaluate(DATA) == page.evaluate(DATA)
