"""The app in a real chromium: what a visitor sees, clicks, reads in a hover and saves."""

import json
import re

import pytest
from tests.tiny_models import FULL, config

pytestmark = pytest.mark.browser

PROMPT = "The cat sat on the mat."
ODD = "<b>$x$ :red[hi] \\ عربي 😀"
DRAWN = ".st-key-single .js-plotly-plot .hm image, .st-key-single .js-plotly-plot .heatmaplayer image"
WIDTHS = (1280, 1920)


@pytest.fixture
def visit(browser, app_address):
    """`visit("/?ck=tiny-mta", width=1280, theme="light")`: a page, settled."""
    contexts = []

    def go(path, width=1280, theme="light", height=1100):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(app_address + path)
        return page

    yield go
    for context in contexts:
        context.close()


def settle(page):
    """Until the script has run and nothing is being loaded."""
    page.wait_for_function(
        """() => {
            const app = document.querySelector('[data-testid="stApp"]');
            return app && app.getAttribute('data-test-script-state') === 'notRunning'
                && !document.querySelector('[data-testid="stSkeleton"]');
        }"""
    )
    page.wait_for_timeout(300)


def map_of(page):
    """The figure of the large map, as plotly holds it."""
    return page.locator(".st-key-single .js-plotly-plot").first


def map_title(page) -> str:
    return map_of(page).evaluate("plot => plot.layout.title.text")


def run_prompt(page, text):
    page.get_by_label("Prompt").fill(text)
    page.get_by_label("Prompt").press("Control+Enter")


def test_type_a_prompt_then_change_layer_head_and_stage(visit):
    page = visit("/?ck=tiny-mta&l=1&h=0&s=kq")
    page.wait_for_selector(DRAWN)
    run_prompt(page, PROMPT)
    page.get_by_text(f"{len(PROMPT) + 1} tokens").wait_for()
    settle(page)
    assert map_title(page).startswith("L1 H0 · after key-query conv")

    page.locator(".st-key-step\\.head\\.Right button").click()
    page.wait_for_function("() => document.querySelector('.st-key-single .js-plotly-plot').layout.title.text.startsWith('L1 H1')")
    page.locator(".st-key-step\\.layer\\.Down button").click()
    page.wait_for_function("() => document.querySelector('.st-key-single .js-plotly-plot').layout.title.text.startsWith('L2 H1')")
    page.get_by_role("radio", name="raw").click()
    page.wait_for_function("() => document.querySelector('.st-key-single .js-plotly-plot').layout.title.text.includes('raw scores')")
    assert "l=2" in page.url and "h=1" in page.url and "s=raw" in page.url
