"""Edits and comparisons in a real chromium: a kernel and the answer are changed, two models compared."""

import re
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from tests.browser.looking import MAP, PROMPT, click_target, settle, wait_for_map

pytestmark = pytest.mark.browser

ASKED = f"p={quote_plus(PROMPT)}"
COMPARED = ".st-key-view .mta-maps"
KERNELS = "[class*='st-key-chart-compare-kernels-pre']"
DATA = "() => JSON.stringify([...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data))"
# Of the three maps beside each other: their cells, and the cell that is chosen in them.
CELLS = f"() => document.querySelector('{COMPARED}').mtaView.store.panels.map(panel => String(panel.values))"
CHOSEN = f"""() => {{
    const {{query, key}} = document.querySelector('{COMPARED}').mtaView.store.cell;
    return [query, key];
}}"""
WHERE = f"""([query, key, panel]) => {{
    const view = document.querySelector('{COMPARED}').mtaView;
    view.map.scrollIntoView({{block: 'center'}});
    return view.at(query, key, panel);
}}"""


def wait_for_maps(page, words):
    """Until the maps beside each other are titled with the words; their cells."""
    page.wait_for_function(
        f"words => document.querySelector('{COMPARED}')?.dataset.title?.includes(words)", arg=words
    )
    settle(page)
    return page.evaluate(CELLS)


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
    page.locator(".st-key-icon-plan-back button").first.click()
    expect(page.locator(".st-key-plan-strip")).to_have_count(0)
    page.wait_for_function("!new URLSearchParams(location.search).has('e')")


def test_two_models_are_compared_head_by_head(visit):
    page = visit(f"/compare?ck=tiny-mta&b=tiny-plain&l=1&h=2&s=kq&{ASKED}")
    first = wait_for_maps(page, "L1 H2")
    assert len(first) == 3
    expect(page.get_by_text(re.compile("^Heads paired by"))).to_be_visible()
    page.locator(".st-key-step-head-Right button").click()
    second = wait_for_maps(page, "L1 H3")
    page.get_by_role("radio", name="Kernels", exact=True).click()
    page.wait_for_selector(f"{KERNELS} .main-svg")
    settle(page)
    click_target(page, KERNELS, [3, 0])
    expect(page).to_have_url(re.compile("l=3&h=0"))
    page.get_by_role("radio", name="Maps and answers", exact=True).click()
    third = wait_for_maps(page, "L3 H0")
    assert len({first[0], second[0], third[0]}) == 3
    page.mouse.click(*page.evaluate(WHERE, [12, 5, 2]))
    expect(page).to_have_url(re.compile("l=3&h=0.*q=12&k=5"))
    wait_for_maps(page, "L3 H0")
    assert page.evaluate(CHOSEN) == [12, 5] and page.evaluate(CELLS) == third  # as in the maps above
    expect(page.locator(f"{MAP} .mta-map")).to_have_attribute("aria-label", re.compile("query.*12.*key.*5"))
    other = follow(visit, page)
    assert wait_for_maps(other, "L3 H0") == third
    assert other.evaluate(CHOSEN) == [12, 5] and other.evaluate(DATA) == page.evaluate(DATA)


def test_prompts_of_other_lengths_are_compared_while_they_agree_and_no_cell_beyond_is_chosen(visit):
    longer = quote_plus(PROMPT[:-1] + " and slept")
    page = visit(f"/compare?ck=tiny-mta&mode=two+prompts&b+prompt={longer}&l=1&h=2&s=kq&q=9&k=3&{ASKED}")
    assert len(wait_for_maps(page, "L1 H2")) == 3
    said = page.locator(f"{COMPARED} .mta-value:visible")
    page.mouse.move(*page.evaluate(WHERE, [28, 3, 0]))
    for panel, words in enumerate(("masked: no token 28 here", "rank ", "masked: the tokens differ")):
        expect(said.nth(panel)).to_contain_text(words)
    assert re.search("from .*s.* to .*e", said.nth(1).inner_text())  # as B has it
    page.mouse.click(*page.evaluate(WHERE, [28, 3, 1]))
    page.mouse.click(*page.evaluate(WHERE, [8, 4, 1]))
    expect(page).to_have_url(re.compile("q=8&k=4"))


def test_numbers_are_typed_into_the_taps_one_after_another(visit):
    """The grid stays where it is when the first has changed the plan: Enter leads to the cell below."""
    page = visit(f"/?ck=tiny-mta&l=1&h=2&s=kq&tab=Taps&{ASKED}")
    grid = page.locator(".st-key-view").get_by_test_id("stDataFrame").first
    settle(page)
    grid.scroll_into_view_if_needed()
    grid.click(position={"x": 96, "y": 47})
    edits = []
    for number in ("0.25", "0.5"):
        page.keyboard.type(number, delay=80)
        page.keyboard.press("Enter")
        expect(page).not_to_have_url(edits[-1] if edits else re.compile(r"^(?!.*[?&]e=)"))
        settle(page)
        edits.append(page.url)
