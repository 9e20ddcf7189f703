"""The app in a real chromium: what a visitor types, sees, clicks, reads in a hover and saves."""

import re

import pytest
from playwright.sync_api import expect

from mta_viz.run.tracing import load, run_hooks
from tests.browser.looking import MAP, PROMPT, at, click, run_prompt, settle, wait_for_map

pytestmark = pytest.mark.browser

RANGES = """() => {
    const layout = document.querySelector('.st-key-exact .js-plotly-plot')._fullLayout;
    return [layout.xaxis.range, layout.yaxis.range];
}"""
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
    x, y = at(page, ".st-key-exact", key, query)
    page.mouse.move(x - 3, y - 3)
    page.mouse.move(x, y)
    label = page.locator(f"{MAP} .hoverlayer .hovertext").first
    label.wait_for()
    return label.text_content()


def test_a_visitor_types_a_prompt_changes_the_view_reads_a_value_and_saves(visit, models_folder):
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
    shown = re.search(r"after key-query conv: ([+−-][\d.e+-]+)", text)
    assert shown, text
    assert float(shown.group(1).replace("−", "-")) == pytest.approx(expected, rel=6e-4)

    page.locator(".st-key-step-layer-Down button").click()
    wait_for_map(page, "L2 H1")
    page.get_by_role("radio", name="raw", exact=True).click()
    wait_for_map(page, "raw scores")
    expect(page).to_have_url(re.compile("l=2.*h=1.*s=raw"))

    page.locator("[class*='st-key-save-attention-map'] button").first.click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save PNG").click()
    content = download.value.path().read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in content[-16:]
    assert download.value.suggested_filename == "tiny-mta-L2-H1-raw.png"


def test_a_click_selects_query_and_key(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    run_prompt(page, PROMPT)
    settle(page)
    click(page, *at(page, ".st-key-exact", 5, 12))
    expect(page).to_have_url(re.compile("q=12.*k=5"))
    expect(page.get_by_text('query 12 "').first).to_be_visible()


def test_a_click_on_the_strip_opens_that_stage(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0 · after key-query conv")
    run_prompt(page, PROMPT)
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
    run_prompt(page, "abcdefgh" * 40)
    settle(page)
    before = page.evaluate(RANGES)
    page.mouse.move(*at(page, "[class*='st-key-chart-overview']", 41, 200))
    page.mouse.down()
    page.mouse.move(*at(page, "[class*='st-key-chart-overview']", 90, 250), steps=8)
    page.mouse.up()
    page.wait_for_function(f"before => ({RANGES})()[0][0] !== before", arg=before[0][0])
    (left, right), (bottom, top) = page.evaluate(RANGES)
    assert (left, right) == (pytest.approx(41, abs=3), pytest.approx(90, abs=3))
    assert (top, bottom) == (pytest.approx(200, abs=3), pytest.approx(250, abs=3))


def test_stop_ends_a_long_run_and_run_starts_it_again(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    settle(page)
    box = page.get_by_label("Prompt", exact=True)
    box.fill("a lot of text. " * 800)
    box.press("Control+Enter")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped. Press Run to see this prompt.")).to_be_visible()
    assert page.locator(MAP).count() == 0
    box.fill(PROMPT)
    box.press("Control+Enter")
    wait_for_map(page, "L1 H0")
    assert len(page.evaluate(RANGES)) == 2


def test_letters_typed_in_the_prompt_are_no_shortcuts(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    box = page.get_by_label("Prompt", exact=True)
    box.click()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        box.press(key)
    settle(page)
    assert "l=1" in page.url and "h=0" in page.url


def test_what_was_chosen_survives_a_change_of_page(visit):
    page = visit("/?ck=tiny-mta&l=3&h=2&s=final")
    wait_for_map(page, "L3 H2")
    run_prompt(page, PROMPT)
    page.get_by_role("link", name="Kernels").click()
    page.get_by_text("tiny-mta · L3 H2 pre").wait_for()
    assert page.get_by_label("Prompt", exact=True).input_value() == PROMPT
    page.get_by_role("link", name="Attention").click()
    wait_for_map(page, "L3 H2 · final weights")
    assert page.get_by_label("Prompt", exact=True).input_value() == PROMPT


def test_the_first_page_is_found_by_its_name_too(visit):
    page = visit("/?ck=tiny-mta&l=3&h=2")
    wait_for_map(page, "L3 H2")
    named = visit("/attention?ck=tiny-mta&l=1&h=2&s=final")
    wait_for_map(named, "L1 H2 · final weights")
    settle(named)
    assert named.get_by_role("dialog").count() == 0
    run_prompt(named, PROMPT)


def test_a_menu_opens_at_the_first_click_on_a_slow_machine(visit):
    page = visit("/kernels?ck=tiny-mta&l=1")
    page.get_by_text("Each tile on its own colour scale").wait_for()
    settle(page)
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 20})
    page.get_by_role("button", name="?", exact=True).click()  # in its middle, where the arrow is
    page.wait_for_timeout(2000)
    assert page.get_by_text("Rows are queries").count() == 1


def test_nothing_is_fetched_from_another_host(visit, app_address):
    page = visit("about:blank", address="")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{app_address}/?ck=tiny-mta&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    page.get_by_role("link", name="Kernels").click()
    page.get_by_text("Each tile on its own colour scale").wait_for()
    settle(page)
    assert asked and not [url for url in asked if not url.startswith((app_address, "data:", "blob:"))]


def test_labels_and_controls_of_a_row_are_in_line(visit):
    for path, controls in (("/?ck=tiny-mta&l=1&h=0&s=kq", 4), ("/kernels?ck=tiny-mta&l=1", 2)):
        page = visit(path)
        page.get_by_role("button", name="?", exact=True).wait_for()
        settle(page)
        if "kernels" in path:
            page.get_by_role("radio", name="One layer", exact=True).click()
            page.locator(".st-key-step-layer-Up").wait_for()
            settle(page)
        arrow = page.locator(".st-key-step-layer-Up")
        row = page.locator(".stMain [data-testid=stHorizontalBlock]", has=arrow)
        labels = row.first.locator("[data-testid=stWidgetLabel]").all()
        tops = [label.bounding_box()["y"] for label in labels]
        assert len(tops) == controls and max(tops) - min(tops) < 1


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
