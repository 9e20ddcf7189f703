"""What frame.js does: deliberate acts have places in the browser's history, a window keeps the focus."""

import pytest
from playwright.sync_api import expect

from tests.browser.looking import run_prompt, settle

pytestmark = pytest.mark.browser
CONTROLS = (
    "button",
    "link",
    "checkbox",
    "switch",
    "radio",
    "combobox",
    "textbox",
    "spinbutton",
    "slider",
    "tab",
)


def entries(page):
    """How many addresses the browser keeps."""
    return page.evaluate("history.length")


def wait_for(page, **wanted):
    """Until the address holds them."""
    page.wait_for_function(
        "wanted => Object.entries(wanted).every(([name, value]) =>"
        " new URLSearchParams(location.search).get(name) === value)",
        arg=wanted,
    )
    settle(page)


def test_back_and_forward_restore_each_view(visit):
    page = visit("/?ck=tiny-mta&p=Hello&l=0&h=0", empty=True)
    page.wait_for_function("location.search.includes('s=')")
    settle(page)
    before = entries(page)
    page.keyboard.press("ArrowRight")
    wait_for(page, h="1")
    page.keyboard.press("n")  # another cell: no entry of its own
    wait_for(page, q="4")
    page.keyboard.press("ArrowDown")
    wait_for(page, l="1", h="1")
    run_prompt(page, "Other words")
    wait_for(page, p="Other words")
    assert entries(page) == before + 3
    for wanted in ({"p": "Hello", "l": "1", "h": "1"}, {"l": "0", "h": "1"}, {"l": "0", "h": "0"}):
        page.go_back()
        wait_for(page, **wanted)
        box = page.get_by_label("Prompt", exact=True)
        expect(box).to_have_count(1)  # the one of the run before stands beside it for a moment
        expect(box).to_have_value("Hello")
        assert f"L{wanted['l']}" in page.locator(".st-key-address").inner_text()
    page.go_forward()
    wait_for(page, h="1")
    assert entries(page) == before + 3


def test_back_returns_to_the_page_before_with_its_view(visit):
    page = visit("/?ck=tiny-mta&p=Hello&l=1&h=1", empty=True)
    page.wait_for_function("location.search.includes('s=')")
    settle(page)
    before = entries(page)
    page.get_by_test_id("stSidebar").get_by_text("Kernels", exact=True).click()
    page.wait_for_url("**/kernels?**")
    settle(page)
    assert entries(page) == before + 1
    page.go_back()
    wait_for(page, l="1", h="1", p="Hello")
    assert "/kernels" not in page.url


def test_a_window_keeps_the_focus_and_its_keys_after_a_download(visit):
    page = visit("/?ck=tiny-mta&p=Hello")
    settle(page)
    page.locator(".stMain [class*=st-key-save] button").first.click()
    window = page.get_by_role("dialog")
    window.get_by_text("PDF", exact=True).click()
    button = window.get_by_role("button", name="Save PDF")
    with page.expect_download():
        button.click()
    expect(button).to_be_focused()
    page.keyboard.press("Escape")
    expect(window).to_have_count(0)


@pytest.mark.parametrize(
    "path",
    ["/?ck=tiny-mta&tab=Taps", "/kernels?ck=tiny-mta", "/labs?ck=tiny-mta", "/train", "/how?ck=tiny-mta"],
)
def test_every_control_has_a_name_for_who_hears_the_page(visit, path):
    page = visit(path)
    settle(page)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in tree if not node["ignored"] and node["role"]["value"] in CONTROLS]
    names = [node["name"]["value"].strip() for node in shown]
    assert "Run Shortcut Ctrl + Enter" in names
    assert not [name for name in names if not name or name.split(" Shortcut")[0].endswith(" icon")]
