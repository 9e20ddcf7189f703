"""A report from the app's own button: stopped, gone on with, downloaded; and how it prints."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.looking import settle

pytestmark = pytest.mark.browser


def test_a_report_is_stopped_and_gone_on_with_by_its_own_button(visit):
    page = visit("/kernels?ck=tiny-blocks&p=abcde.fghij%23ca", empty=True)
    settle(page)
    page.get_by_role("button", name="Report").click()
    page.get_by_text("prompts of the task “blocks”").click()
    start, stop = (page.get_by_role("button", name=name) for name in ("Make the report", "Stop"))
    start.click()
    stop.click()  # as soon as it is there: on a quick machine the parts pass unseen
    expect(page.get_by_text("What is done stays: it goes on from there.")).to_be_visible()
    expect(page.get_by_role("button", name="Download HTML")).to_have_count(0)
    start.click()
    whole = page.get_by_role("button", name="Download HTML")
    expect(whole).to_be_visible(timeout=120_000)
    with page.expect_download() as saved:
        whole.click()
    text = Path(saved.value.path()).read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.count("<section") == 7 and "data:image/svg" in text
