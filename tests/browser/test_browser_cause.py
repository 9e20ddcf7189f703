"""Surgery and Compare in a real chromium: a kernel and the answer are changed, two models compared."""

import re
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from tests.browser.looking import PROMPT, at, click, click_target, settle

pytestmark = pytest.mark.browser

ASKED = f"p={quote_plus(PROMPT)}"
EDITED, COMPARED = ".st-key-beside-edited", ".st-key-beside-compared"
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


def read_probability(page):
    """p(answer) as edited."""
    metric = page.get_by_test_id("stMetric").filter(has_text="Edited: p(answer)")
    return metric.get_by_test_id("stMetricValue").inner_text()


def follow(visit, page):
    """The page's address in a fresh browser."""
    return visit("/" + page.url.split("/", 3)[3], empty=True)


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
    original, edited, difference = wait_for_maps(page, EDITED, kernel)
    expect(page).to_have_url(re.compile(r"/surgery\?.*e="))
    words = re.compile(f"{kernel} pre .+ identity")
    expect(page.locator(".stMain [data-testid=stCheckbox]", has_text=words)).to_be_visible()
    assert original != edited
    assert re.search("[1-9]", difference)


def edit_tap(page, row, column, value):
    """Type a value into a cell of the grid of taps, which is a canvas."""
    grid = page.locator("[class*='st-key-taps-'] canvas").first
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    x, y = box["x"] + 80 + 46 * (column + 0.5), box["y"] + 35 * (row + 1.5)
    page.mouse.click(x, y)
    page.wait_for_timeout(500)
    page.mouse.dblclick(x, y)
    cell = page.locator("#portal input")
    cell.fill(value)
    cell.press("Enter")


def test_a_tap_is_edited_undone_and_in_the_link(visit):
    page = visit(f"/surgery?ck=tiny-mta&l=1&h=2&s=kq&{ASKED}")
    before = wait_for_maps(page, EDITED, "L1 H2")
    learned = read_probability(page)
    edit_tap(page, 5, 4, "9")
    expect(page).to_have_url(re.compile("e="))
    after = wait_for_maps(page, EDITED, "L1 H2")
    assert before[0] == before[1] == after[0] != after[1]
    assert read_probability(page) != learned
    other = follow(visit, page)
    assert wait_for_maps(other, EDITED, "L1 H2") == after
    assert other.evaluate(DATA) == page.evaluate(DATA)
    assert read_probability(other) == read_probability(page)
    page.locator(".st-key-plan-undo button").first.click()
    expect(page.get_by_text("Nothing is edited.")).to_be_visible()
    assert wait_for_maps(page, EDITED, "L1 H2") == before
    assert read_probability(page) == learned


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
