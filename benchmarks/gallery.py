"""How long the kernel atlas takes to be drawn in a real browser, at the paper's 880M shape.

    python -m benchmarks.gallery [--repeats 5]

Writes a model with that many kernels (6 layers x 16 heads x 2 of 6 x 11, mixing in 24 layers) and random
taps. Prints medians of: `warm page`, from choosing Atlas to both mosaics drawn, the page and its libraries
loaded and the model read; `tile`, from a click on a tile to that kernel's card. Needs a chromium.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.looking import at, settle
from tests.browser.serving import looking, running
from tests.tiny_models import write_wide

MOSAICS = "document.querySelectorAll('.st-key-gallery .js-plotly-plot .heatmaplayer image').length >= 2"
CHART = '[class*="st-key-chart-gallery-pre"]'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        write_wide(Path(folder) / "wide")
        with running(Path(folder)) as address, looking() as page:
            page.goto(f"{address}/kernels?ck=wide")
            _measure(page, repeats)


def _measure(page: Page, repeats: int) -> None:
    page.wait_for_function(MOSAICS)
    settle(page)
    print(f"warm page: median {statistics.median(_draw(page) for _ in range(repeats)):.2f} s")
    print(f"tile: median {statistics.median(_open(page, turn) for turn in range(repeats)):.2f} s")


def _draw(page: Page) -> float:
    """Seconds from choosing the gallery, from the part beside it, to both mosaics on the screen."""
    page.get_by_role("radio", name="One layer", exact=True).click()
    page.wait_for_function("!document.querySelector('.st-key-gallery')")
    settle(page)
    start = time.perf_counter()
    page.get_by_role("radio", name="Atlas", exact=True).click()
    page.wait_for_function(MOSAICS)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - start
    settle(page)
    return seconds


def _open(page: Page, turn: int) -> float:
    """Seconds from a click on a tile of the first row to its kernel's title on the card."""
    x, y = at(page, CHART, 4 + 12 * (turn + 1), 3)
    start = time.perf_counter()
    page.mouse.click(x, y)
    page.get_by_text(f"L3 H{turn + 1} · before the softmax").first.wait_for()
    seconds = time.perf_counter() - start
    settle(page)
    return seconds


if __name__ == "__main__":
    main()
