"""How long figures take to leave the page in a real browser: one more export, and all kernels in one file.

    python -m benchmarks.saving [--repeats 5]

Prints `one more`, medians from a click on Save to the file on the disk, the drawing browser warm, for each
format of an attention map of 128 tokens (the numbers beside it, which need no drawing, are the baseline);
then `all kernels`, from Make the file to the file being there, for the paper's 880M shape (6 layers x 16
heads x 2 of 6 x 11, mixing in 24 layers, random taps), as PDF and as ZIP. Needs a chromium.
"""

import argparse
import re
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.looking import run_prompt, settle, wait_for_map
from tests.browser.serving import looking, running
from tests.tiny_models import write_models, write_wide

PROMPT = "The cat sat on the mat and looked at the dog. " * 3  # one byte is one token
FORMATS = ("PNG", "SVG", "PDF", "HTML")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        models = write_models(Path(folder))
        write_wide(models / "wide")
        with running(models) as address, looking() as page:
            page.goto(f"{address}/?ck=tiny-mta&l=1&h=2&s=kq")
            _one_more(page, repeats)
            page.goto(f"{address}/kernels?ck=wide")
            _all_kernels(page)


def _one_more(page: Page, repeats: int) -> None:
    wait_for_map(page, "L1 H2")
    run_prompt(page, PROMPT[:127])
    settle(page)
    page.locator("[class*='st-key-save-attention-map'] button").first.click()
    page.get_by_role("dialog").locator("img").first.wait_for()
    for format in FORMATS:
        page.get_by_role("dialog").get_by_role("radio", name=format).click()
        page.get_by_role("button", name=f"Save {format}").wait_for()
        settle(page)
        print(f"one more {format}: {_median(page, f'^Save {format}', repeats):.2f} s")
    print(f"numbers: {_median(page, '^Numbers', repeats):.2f} s")


def _median(page: Page, button: str, repeats: int) -> float:
    return statistics.median(_save(page, button) for _ in range(repeats))


def _save(page: Page, button: str) -> float:
    start = time.perf_counter()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(button)).click()
    download.value.path()
    return time.perf_counter() - start


def _all_kernels(page: Page) -> None:
    page.get_by_role("radio", name="Paper figures", exact=True).click()
    page.get_by_text("All kernels in one file").click()
    for form in ("one PDF", "ZIP"):
        page.get_by_text(re.compile(f"^{form}")).last.click()
        settle(page)
        start = time.perf_counter()
        page.get_by_role("button", name="Make the file").click()
        page.locator(".st-key-all_kernels-save button").wait_for()
        print(f"all kernels, {form}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
