"""The explorer's views in a real chromium: a click selects what was clicked, a link brings it back."""

import re
from urllib.parse import parse_qs, quote_plus, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.looking import PROMPT, TEXT, at, click, click_target, settle, wait_for_map

pytestmark = pytest.mark.browser


def open_tab(page, name, part):
    """Open a tab, and wait until a part of it is there and the page rests."""
    page.get_by_role("radio", name=name, exact=True).click()
    page.locator(f"[class*='st-key-{part}']").first.wait_for()
    settle(page)


@pytest.fixture
def explorer(visit):
    """The explorer on a prompt, at layer 1, head 0."""
    page = visit(f"/?ck=tiny-mta&l=1&h=0&s=kq&p={quote_plus(PROMPT)}")
    wait_for_map(page, "L1 H0")
    settle(page)
    return page


def test_a_click_on_a_bar_a_point_a_cell_or_a_tile_chooses_and_a_link_brings_it_back(explorer, visit):
    open_tab(explorer, "Row and column", "chart-row-")
    click(explorer, *at(explorer, "[class*='st-key-chart-row-']", 7, 0))
    expect(explorer).to_have_url(re.compile("k=7"))
    for part, target in (("chart-heads-scatter", (3, 1)), ("chart-head-scores", (2, 2))):
        open_tab(explorer, "Which heads", part)
        opens_head(explorer, part, *target)
    open_tab(explorer, "maps", "chart-head-tiles")
    opens_head(explorer, "chart-head-tiles", 2, 3)
    other = visit("/" + explorer.url.split("/", 3)[3])
    wait_for_map(other, "L2 H3")


def opens_head(page, chart, layer, head):
    """A click on the chart's target of a head opens it."""
    click_target(page, f"[class*='st-key-{chart}']", [layer, head])
    wait_for_map(page, f"L{layer} H{head}")
    expect(page).to_have_url(re.compile(f"l={layer}.*h={head}"))
    settle(page)


def choose_row(page, table, row):
    """Click the box at the left of a table's row; tables are drawn on a canvas."""
    canvas = page.locator(f"{table} canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 17, box["y"] + 35 * (row + 1.5))


def test_a_row_of_the_sum_of_the_cells_or_of_the_heads_is_chosen(explorer):
    choose_row(explorer, "[class*='st-key-terms']", 1)
    expect(explorer).to_have_url(re.compile("s=raw"))
    wait_for_map(explorer, "raw scores")
    open_tab(explorer, "Cells", "cells")
    before = explorer.url
    choose_row(explorer, "[class*='st-key-cells']", 4)
    explorer.wait_for_function("before => location.href !== before", arg=before)
    where = re.search(r"q=(\d+)&k=(\d+)", explorer.url)
    expect(explorer.get_by_text(f'query {where[1]} "').first).to_be_visible()
    rows = explorer.locator(".st-key-ranked button")
    words = next(text for text in rows.all_inner_texts() if not text.startswith("L1 H0"))
    layer, head = words.split()[:2]
    rows.filter(has_text=words).first.click()
    wait_for_map(explorer, f"{layer} {head}")
    expect(explorer).to_have_url(re.compile(f"l={layer[1:]}&h={head[1:]}&"))


KEYS = (
    ("w", "s=mix"),
    ("q", "s=kq&"),
    ("n", "q=22"),
    ("m", "q=23"),
    ("ArrowRight", "h=1"),
    ("ArrowDown", "l=2"),
)


def test_keys_step_and_stop_at_the_ends(explorer):
    explorer.locator(f"{TEXT} .mta-title").click()
    for key, now in KEYS:
        explorer.keyboard.press(key)
        expect(explorer).to_have_url(re.compile(now))
        settle(explorer)
    chosen = re.search(r"[?&]k=(\d+)", explorer.url)
    key_at = int(chosen[1]) if chosen else None
    explorer.keyboard.press("m")  # the last query already
    settle(explorer)
    assert "q=23" in explorer.url
    explorer.keyboard.press("j")
    explorer.wait_for_function("() => /[?&]k=/.test(location.search)")
    at_key = int(re.search(r"[?&]k=(\d+)", explorer.url)[1])
    assert key_at is None or at_key == key_at - 1
    explorer.keyboard.press("k")
    expect(explorer).to_have_url(re.compile(f"[?&]k={at_key + 1}"))


def test_letters_typed_in_a_box_do_not_step_and_leaving_it_takes_no_click(explorer):
    before = places(explorer.url)
    type_in(explorer, "Prompt")
    assert places(explorer.url) == before
    explorer.get_by_role("button", name="Find, name").click()  # the prompt is another now, which is said
    type_in(explorer, "Find text")
    assert places(explorer.url) == before and "typed=The+cat+sat+on+the+mat.qwnmjk" in explorer.url


def places(url):
    """What an address chooses, without the text that is typed and not run yet."""
    return {name: value for name, value in parse_qs(urlsplit(url).query).items() if name != "typed"}


def type_in(page, box):
    """The letters of the steps, into a box that takes them."""
    page.get_by_label(box).click()
    page.keyboard.type("qwnmjk", delay=30)
    settle(page)
    assert page.get_by_label(box).input_value().endswith("qwnmjk")


DATA = "() => JSON.stringify([...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data))"


def test_a_copied_link_shows_the_same_figures_in_a_fresh_browser(explorer, visit):
    explorer.get_by_role("button", name="Link").click()
    link = explorer.locator(
        ".stMain code, [data-testid=stPopoverBody] code", has_text="http"
    ).first.inner_text()
    explorer.keyboard.press("Escape")
    settle(explorer)
    other = visit("/?" + link.split("?", 1)[1])
    wait_for_map(other, "L1 H0")
    settle(other)
    assert other.get_by_label("Prompt", exact=True).input_value() == PROMPT
    assert other.evaluate(DATA) == explorer.evaluate(DATA)


def test_a_tap_leads_to_its_source_and_a_named_span_is_chosen_and_outlined(explorer):
    click(explorer, *at(explorer, "[class*='st-key-chart-why']", -1, -1))
    expect(explorer).to_have_url(re.compile("s=raw"))
    wait_for_map(explorer, "raw scores")
    settle(explorer)
    explorer.get_by_role("button", name="Find, name").click()
    explorer.get_by_label("Find text").fill("mat")
    explorer.get_by_label("Find text").press("Enter")
    explorer.get_by_role("button", name="Name it").click()
    expect(explorer.get_by_role("radio", name="B mat")).to_be_checked()
    letter = explorer.locator(
        f"{TEXT} .mta-text b", has_text=re.compile("^B$")
    )  # A is what the story asks about
    expect(letter).to_have_count(1)
