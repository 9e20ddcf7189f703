"""How long a visitor waits: process start to the first map, and click to drawn, in a real browser.

    python -m benchmarks.clicks [--prompt-tokens 128 512] [--clicks 10]

Prints one line a number: seconds from starting `streamlit run app.py` to the first drawn map, and
the median of changing layer, head and stage, each from the click to the frame in which the large
map shows the new selection. Before every click the prompt is changed, outside the measured time, so
that what the click asks for was never drawn before. Needs a chromium (see tests/browser/serving.py).
"""

import argparse
import itertools
import re
import statistics
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.serving import looking, running

MAP = ".st-key-exact .js-plotly-plot"
LOOK_MS = 700  # a visitor looks before the next click
TITLE = """([...document.querySelectorAll('.st-key-exact .js-plotly-plot .infolayer text')]
    .map(text => text.textContent).find(text => /^L[0-9]+ H[0-9]+/.test(text)) || '')"""
# Clicks in the page itself and waits for two frames after the change: no round trip of the driver counts.
CLICK = """([selector, before]) => new Promise(done => {
    const start = performance.now();
    document.querySelector(selector).click();
    const look = () => TITLE !== before
        ? requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - start) / 1000)))
        : requestAnimationFrame(look);
    look();
})""".replace("TITLE", TITLE)
# Which run the large map is of: its place in the page is named after the run.
SHOWN = "document.querySelector('.st-key-exact [class*=st-key-chart-map]').className"
RESTING = "document.querySelector('[data-testid=\"stApp\"]').dataset.testScriptState === 'notRunning'"


def main() -> None:
    arguments = _arguments()
    start = time.perf_counter()
    with running(arguments.models) as address, looking() as page:
        page.goto(f"{address}/?ck={arguments.checkpoint}")
        page.wait_for_function(f"() => ({TITLE}) !== ''")
        print(f"process start to first map: {time.perf_counter() - start:.2f} s")
        page.wait_for_function(RESTING)
        for n_tokens in arguments.prompt_tokens:
            for name, seconds in _clicks(page, n_tokens, arguments.clicks).items():
                print(f"{n_tokens} tokens, {name}: median {statistics.median(seconds):.2f} s "
                      f"(worst {max(seconds):.2f})")  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--clicks", type=int, default=10)
    parser.add_argument(
        "--checkpoint", default="blocks-n5-mta", help="a char or bytes model with 2 layers or more"
    )
    parser.add_argument("--models", type=Path, help="a folder of checkpoints besides the shipped ones")
    return parser.parse_args()


def _run_prompt(page: Page, n_tokens: int, number: int) -> None:
    """Draw prompt `number` of so many tokens with BOS: letters, tokens of char and bytes tokenizers."""
    first = chr(ord("a") + number % 26) + chr(ord("a") + number // 26 % 26)
    before = page.evaluate(SHOWN)
    box = page.get_by_label("Prompt")
    box.fill((first + "kemub.crdls.bqgcn.nchrb." * n_tokens)[: n_tokens - 1])
    box.press("Control+Enter")
    page.get_by_text(re.compile(f"^{n_tokens} tokens")).first.wait_for()
    page.wait_for_function(
        f"before => document.querySelector('{MAP}') && {SHOWN} !== before", arg=before, polling=300
    )
    page.wait_for_function(RESTING)
    page.wait_for_timeout(LOOK_MS)


def _clicks(page: Page, n_tokens: int, count: int) -> dict[str, list[float]]:
    """Seconds of `count` changes of each kind, there and back in turn, each on a prompt of its own."""
    pairs = {
        "head": [".st-key-step-head-Right button", ".st-key-step-head-Left button"],
        "layer": [".st-key-step-layer-Down button", ".st-key-step-layer-Up button"],
        "stage": [_stage(page, 0), _stage(page, 1)],
    }
    numbers = itertools.count()
    _run_prompt(page, n_tokens, next(numbers))
    _first(page)
    seconds: dict[str, list[float]] = {name: [] for name in pairs}
    for name, turn in itertools.product(pairs, range(count)):
        _run_prompt(page, n_tokens, next(numbers))
        seconds[name].append(_click(page, pairs[name][turn % 2]))
    return seconds


def _first(page: Page) -> None:
    """Go to layer 0, head 0, the second stage, so that the first click of each kind changes something."""
    for selector in (".st-key-step-layer-Up button", ".st-key-step-head-Left button"):
        while page.locator(selector).is_enabled():
            _click(page, selector)
    if page.evaluate(f"!({TITLE}).includes('conv')"):
        _click(page, _stage(page, 1))


def _stage(page: Page, index: int) -> str:
    return f".st-key-widget-stage button:nth-of-type({index + 1})"


def _click(page: Page, selector: str) -> float:
    seconds = page.evaluate(CLICK, [selector, page.evaluate(TITLE)])
    page.wait_for_timeout(LOOK_MS)
    return seconds


if __name__ == "__main__":
    main()
