"""The app in a real chromium: what a visitor types, sees, clicks, reads in a hover and saves."""

import re
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from mta_viz.run.tracing import load, run_hooks
from tests.browser.looking import (
    MAP,
    PROMPT,
    TEXT,
    WINDOW,
    at,
    cell_at,
    click,
    run_prompt,
    settle,
    wait_for_map,
)

pytestmark = pytest.mark.browser

ODD = "<b>$x$ :red[hi] \\ عربي 😀"

# What lies outside its chart, is wider than the window, is cut off, or covers a neighbour.
PROBLEMS = """() => {
  const problems = [], shown = e => e.getClientRects().length && getComputedStyle(e).visibility !== 'hidden';
  const seen = e => {  // what a pane that scrolls lets through of it
    const box = e.getBoundingClientRect(), pane = e.closest(".st-key-atlas, .st-key-card");
    if (!pane) return box;
    const view = pane.getBoundingClientRect(), top = Math.max(box.top, view.top);
    const bottom = Math.min(box.bottom, view.bottom), size = Math.max(bottom - top, 0);
    return new DOMRect(box.x, top, box.width, size);
  };
  if (document.documentElement.scrollWidth > innerWidth + 1) problems.push('page wider than the window');
  for (const chart of document.querySelectorAll('.js-plotly-plot')) {
    const box = chart.getBoundingClientRect();
    const frame = chart.closest('[data-testid="stElementContainer"]').getBoundingClientRect();
    if (box.right > frame.right + 1.5 || box.bottom > frame.bottom + 1.5) problems.push('chart cut off');
    for (const text of chart.querySelectorAll('.main-svg text')) {
      const t = text.getBoundingClientRect();
      if (t.width && (t.left < box.left - 1 || t.right > box.right + 1 || t.top < box.top - 1
          || t.bottom > box.bottom + 1)) problems.push('label outside its chart: ' + text.textContent);
    }
  }
  for (const label of document.querySelectorAll('button p, label p')) {
    if (shown(label) && label.scrollWidth > label.clientWidth + 1) problems.push('cut: ' + label.textContent);
  }
  const blocks = [...document.querySelectorAll('.stMain [data-testid="stElementContainer"]')].filter(shown)
    .map(e => [e, seen(e)]).filter(([e, r]) => r.width > 2 && r.height > 2);
  for (const [a, r] of blocks) for (const [b, s] of blocks) {
    if (a === b || a.contains(b) || b.contains(a)) continue;
    const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
    const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
    const words = [a, b].map(e => e.innerText.slice(0, 30)).join(' / ');
    if (wide > 2 && high > 2) problems.push('overlap: ' + words);
  }
  return [...new Set(problems)];
}"""


def hover(page, query, key):
    """The text shown over one cell of the large map."""
    page.mouse.move(*cell_at(page, query, key, 1))
    words = page.locator(f"{TEXT} .mta-says")
    expect(words).to_contain_text(f"query {query} ")
    expect(words).to_contain_text(f"key {key} ")
    return words.text_content()


def test_a_visitor_types_a_prompt_changes_the_view_reads_a_value_and_clicks_a_cell(visit, models_folder):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    run_prompt(page, PROMPT)
    settle(page)

    page.locator(".st-key-step-head-Right button").click()
    wait_for_map(page, "L1 H1 · after key-query conv")
    model = load(models_folder / "tiny-mta")
    hook = "blocks.1.attn.hook_scores_kq"
    expected = float(run_hooks(model, PROMPT, [hook])[hook][1, 20, 7])
    text = hover(page, 20, 7)
    shown = re.search(r"after: ([+-][\d.e+-]+) \(score\)", text)
    assert shown, text
    assert float(shown.group(1)) == float(f"{expected:.4g}")

    page.locator(".st-key-step-layer-Down button").click()
    wait_for_map(page, "L2 H1")
    page.get_by_role("radio", name="raw", exact=True).click()
    wait_for_map(page, "raw scores")
    expect(page).to_have_url(re.compile("l=2.*h=1.*s=raw"))

    page.mouse.click(*cell_at(page, 20, 12))
    expect(page).to_have_url(re.compile("q=20.*k=12"))
    expect(page.get_by_text('query 20 "').first).to_be_visible()
    box = page.get_by_label("Prompt", exact=True)
    box.click()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):  # letters of the prompt, no steps
        box.press(key)
    settle(page)
    assert "l=2" in page.url and "h=1" in page.url


def test_a_click_on_the_strip_opens_that_stage(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0 · after key-query conv")
    run_prompt(page, PROMPT)
    page.get_by_role("radio", name="What changed", exact=True).click()
    settle(page)
    for axis, stage, words in (("4", "sm", "softmax"), ("", "raw", "raw scores")):
        x, y = at(page, ".st-key-chart-strip", 11, 11, axis)
        click(page, x, y)
        wait_for_map(page, words)
        expect(page).to_have_url(re.compile(f"s={stage}"))
        settle(page)


def test_a_box_on_the_overview_chooses_the_exact_part(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    run_prompt(page, "abcdefgh" * 130)
    page.wait_for_function(f"document.querySelector('{MAP}')?.mtaView && ({WINDOW})()[1] === 1041")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)  # its end draws the page anew
    settle(page)
    before = page.evaluate(WINDOW)
    page.mouse.move(*at(page, "[class*='st-key-chart-overview']", 120, 600))
    page.mouse.down()
    page.mouse.move(*at(page, "[class*='st-key-chart-overview']", 270, 750), steps=8)
    page.mouse.up()
    page.wait_for_function(f"before => ({WINDOW})()[0] !== before", arg=before[0])
    assert page.evaluate(WINDOW) == pytest.approx([600, 750, 120, 270], abs=9)


def test_stop_ends_a_long_run_and_run_starts_it_again(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    settle(page)
    desk = page.locator(".st-key-desk")
    before = desk.bounding_box()
    box = page.get_by_label("Prompt", exact=True)
    box.fill("a lot of text. " * 800)
    box.press("Control+Enter")
    stop = page.get_by_role("button", name="Stop")
    stop.wait_for()
    assert desk.bounding_box() == before  # nothing moves under the pointer
    stop.click()
    expect(page.get_by_text("Stopped. Press Run to see this prompt.")).to_be_visible()
    assert page.locator(MAP).count() == 0
    box.fill(PROMPT)
    box.press("Control+Enter")
    wait_for_map(page, "L1 H0")
    assert max(page.evaluate(WINDOW)) == 24


def test_what_was_chosen_survives_a_change_of_page_and_nothing_is_fetched_from_another_host(
    visit, app_address
):
    page = visit("about:blank", address="")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{app_address}/?ck=tiny-mta&l=3&h=2&s=final")
    wait_for_map(page, "L3 H2")
    run_prompt(page, PROMPT)
    page.get_by_role("link", name="Kernels").click()
    page.get_by_text("tiny-mta · L3 H2 · before the softmax").wait_for()
    assert page.get_by_label("Prompt", exact=True).input_value() == PROMPT
    page.get_by_role("link", name="Workspace").click()
    wait_for_map(page, "L3 H2 · final weights")
    assert page.get_by_label("Prompt", exact=True).input_value() == PROMPT
    assert asked and not [url for url in asked if not url.startswith((app_address, "data:", "blob:"))]


@pytest.mark.parametrize("name", ["workspace", "attention"])
def test_the_first_page_is_found_by_its_name_and_the_one_before(visit, name):
    named = visit(f"/{name}?ck=tiny-mta&l=1&h=2&s=final")
    wait_for_map(named, "L1 H2 · final weights")
    settle(named)
    assert named.get_by_role("dialog").count() == 0
    run_prompt(named, PROMPT)


def test_a_row_is_in_line_and_a_menu_opens_at_the_first_click_on_a_slow_machine(visit):
    page = visit("/kernels?ck=tiny-mta&l=1")
    page.get_by_text("Each tile on its own colour scale").wait_for()
    page.get_by_role("radio", name="One layer", exact=True).click()
    page.locator(".st-key-step-layer-Up").wait_for()
    settle(page)
    row = page.locator(".stMain [data-testid=stHorizontalBlock]", has=page.locator(".st-key-step-layer-Up"))
    tops = [label.bounding_box()["y"] for label in row.first.locator("[data-testid=stWidgetLabel]").all()]
    assert len(tops) == 2 and max(tops) - min(tops) < 1
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 20})
    page.get_by_role("button", name="?", exact=True).click()  # in its middle, where the arrow is
    page.wait_for_timeout(2000)
    assert page.get_by_text("Rows are queries").count() == 1


SEEN = {
    "text": TEXT,
    "panels": MAP,
    "inspector": ".st-key-inspector",
    "views": ".st-key-tab, .st-key-widget-tab",
}


@pytest.mark.parametrize("width", [1280, 1920])
def test_text_panels_and_inspector_are_seen_without_scrolling(visit, width):
    page = visit("/?ck=needle-mta", width)
    wait_for_map(page, "L5 H7")
    page.get_by_text("L5 H7's kernel before the softmax (diagonal)").wait_for()
    settle(page)
    boxes = {name: page.locator(place).first.bounding_box() for name, place in SEEN.items()}
    assert all(box["y"] + min(box["height"], 400) < 820 for box in boxes.values()), boxes
    assert page.evaluate("document.querySelector('.stMain').scrollHeight") < 1800
    assert page.evaluate(WINDOW)[0] > 200  # the question x the needle, not the whole


@pytest.mark.parametrize("view", ["Row and column", "Rests on", "Beside"])
def test_no_view_is_long_or_scrolls_in_itself(visit, view):
    page = visit(f"/?ck=needle-mta&tab={quote_plus(view)}")
    page.locator(".st-key-view .main-svg, .st-key-view .mta-maps").first.wait_for()
    settle(page)
    assert page.evaluate("document.querySelector('.stMain').scrollHeight") <= 1800
    assert page.evaluate("getComputedStyle(document.querySelector('.st-key-view')).overflowY") == "visible"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1920])
def test_nothing_overlaps_or_is_cut(visit, width, theme):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq2", width, theme)
    wait_for_map(page, "L1 H0")
    settle(page)
    assert page.evaluate(PROBLEMS) == []
    run_prompt(page, ODD)
    settle(page)
    assert page.evaluate(PROBLEMS) == []
    page.get_by_role("link", name="Kernels").click()
    page.get_by_text("Each tile on its own colour scale").wait_for()
    settle(page)
    assert page.evaluate(PROBLEMS) == []
