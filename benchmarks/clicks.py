"""How long a visitor waits: process start to the first map, and click to drawn, in a real browser.

    python -m benchmarks.clicks [--prompt-tokens 128 512] [--clicks 10] [--beside CHECKOUT]

Prints one line a number: seconds from starting `streamlit run app.py` to the first drawn map, and
the median of changing layer, head and stage, each from the click to the frame in which the large
map shows the new selection. Before every click the prompt is changed, outside the measured time, so
that what the click asks for was never drawn before. Then, on one prompt: from a move of the pointer over the
map to the frame with the new words, from the press on a cell to the frame with the new sum and its picture,
and the bytes that came after the press. `--cells`: these alone. Then, from a click on each page's link to its
first picture, and from an address to two models side by side. `--beside`: the app of another checkout of
this project in the same run, click by click in turn, with the ratio of the medians. Needs a chromium (see
tests/browser/serving.py).
"""

import argparse
import itertools
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urljoin

from playwright.sync_api import Page

from tests.browser.serving import APP, ARGUMENTS, find_chromium, looking, running

MAP = ".mta-maps, .st-key-exact .js-plotly-plot"  # of older versions
LOOK_MS = 700  # a visitor looks before the next click
TITLE = """(document.querySelector('.mta-maps')?.dataset.title
    || [...document.querySelectorAll('.st-key-exact .js-plotly-plot .infolayer text')]
    .map(text => text.textContent).find(text => /^L[0-9]+ H[0-9]+/.test(text)) || '')"""
# Clicks in the page itself and waits for two frames after the change: no round trip of the driver counts.
CLICK = """([selector, before]) => new Promise(done => {
    const start = performance.now();
    document.querySelector(selector).click();
    const look = () => TITLE !== before || performance.now() - start > 20000
        ? requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - start) / 1000)))
        : requestAnimationFrame(look);
    look();
})""".replace("TITLE", TITLE)  # 20 s: a click that was lost
# Which run the large map is of: its place in the page is named after the run.
SHOWN = """(document.querySelector('.mta-maps')?.dataset.run
    || document.querySelector('.st-key-exact [class*=st-key-chart-map]')?.className)"""
WORDS = """([...document.querySelectorAll('.mta-says, .st-key-exact .hoverlayer')]
    .map(words => words.textContent).join(''))"""
WHY = """([...document.querySelectorAll('[class*=st-key-chart-why]')]
    .filter(chart => chart.querySelector('.main-svg')).map(chart => chart.className).join(''))"""
# A place in the cells of the large map, by its parts of their width and height.
PLACE = """([across, down]) => {
    const view = document.querySelector('.mta-maps')?.mtaView;
    const map = view ? view.map : document.querySelector('.st-key-exact .js-plotly-plot');
    map.scrollIntoView({block: 'center'});
    const box = map.getBoundingClientRect();
    if (view) {
        const {x, y, wide, high} = view.plots.at(-1);
        return [box.left + x + across * wide, box.top + y + down * high];
    }
    const {xaxis: x, yaxis: y} = map._fullLayout;
    return [box.left + x._offset + across * x._length, box.top + y._offset + down * y._length];
}"""
# Seconds from an event, as the page gets it, to the second frame after what it changes.
AWAIT = """event => { window.measured = new Promise(done => {
    setTimeout(() => done(20), 20000);  // one that was lost
    addEventListener(event, () => {
        const start = performance.now(), before = WHAT;
        const look = () => WHAT !== before
            ? requestAnimationFrame(() => requestAnimationFrame(
                () => done((performance.now() - start) / 1000)))
            : requestAnimationFrame(look);
        look();
    }, {once: true, capture: true});
}); }"""
# Seconds from a click on a page's link (one that is not there: the first page's) to its first picture.
GO = """name => new Promise(done => {
    const links = [...document.querySelectorAll('[data-testid=stSidebar] a')], start = performance.now();
    const link = links.find(each => each.textContent.endsWith(name)) ?? links[0];
    document.querySelectorAll('.js-plotly-plot, .mta-maps').forEach(each => each.dataset.before = 1);
    link.click();
    const there = () => link.textContent.endsWith(document.title.split(' · ')[0])
        && document.querySelector(':is(.js-plotly-plot:has(.main-svg), .mta-maps):not([data-before])');
    const look = () => there() || performance.now() - start > 20000
        ? requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - start) / 1000)))
        : requestAnimationFrame(look);
    look();
})"""
COMPARED = """() => document.querySelector('.st-key-view .mta-maps')?.mtaView?.plots?.length === 3
    || [...document.querySelectorAll('[class*="st-key-chart-compare"]')]
        .filter(chart => chart.querySelector('.main-svg')).length >= 3"""  # of older versions
SENT: dict[Page, list[int]] = {}  # bytes of each message that came
RESTING = "document.querySelector('[data-testid=\"stApp\"]').dataset.testScriptState === 'notRunning'"


def main() -> None:
    arguments = _arguments()
    scripts = [APP, *([arguments.beside.absolute() / "app.py"] if arguments.beside else [])]
    with ExitStack() as stack, looking() as page:
        pages = [page, *([_other_browser(page)] if scripts[1:] else [])]
        for script, tab in zip(scripts, pages, strict=True):
            stack.enter_context(_opened(arguments, script, tab))
        for n_tokens in arguments.prompt_tokens:
            for measure in (_cells,) if arguments.cells else (_clicks, _cells):
                for name, turns in measure(pages, n_tokens, arguments.clicks).items():
                    _print(f"{n_tokens} tokens, {name}", turns, "kB" if "sent" in name else "s")
        for name, turns in ({} if arguments.cells else _pages(pages, arguments.clicks)).items():
            _print(name, turns, "s")


def _other_browser(page: Page) -> Page:
    """A page of a browser of its own: one behind another in the same browser draws no frames."""
    assert page.context.browser is not None
    browser = page.context.browser.browser_type.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
    return browser.new_page(viewport=page.viewport_size)


@contextmanager
def _opened(arguments: argparse.Namespace, script: Path, page: Page) -> Iterator[None]:
    """The first page of an app, its first map drawn and its run at rest."""
    start = time.perf_counter()
    page.set_default_timeout(300_000)
    received = SENT.setdefault(page, [])
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    with running(arguments.models, script) as address:
        page.goto(f"{address}/?ck={arguments.checkpoint}")
        page.wait_for_function(f"() => ({TITLE}) !== ''")
        where = "" if script == APP else " (beside)"
        print(f"process start to first map{where}: {time.perf_counter() - start:.2f} s", flush=True)
        page.wait_for_function(RESTING)
        yield


def _print(name: str, turns: list[list[float]], unit: str) -> None:
    medians = [statistics.median(seconds) for seconds in zip(*turns, strict=True)]
    line = f"{name}: median {medians[0]:.3f} {unit} (worst {max(turn[0] for turn in turns):.3f})"
    if len(medians) > 1:
        line += f"; beside {medians[1]:.3f} {unit}, ratio {medians[0] / medians[1]:.2f}"
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--clicks", type=int, default=10)
    parser.add_argument(
        "--checkpoint", default="blocks-n5-mta", help="a char or bytes model with 2 layers or more"
    )
    parser.add_argument("--models", type=Path, help="a folder of checkpoints besides the shipped ones")
    parser.add_argument("--cells", action="store_true", help="hover and cells alone")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout, measured in turn")
    return parser.parse_args()


def _run_prompt(page: Page, n_tokens: int, number: int) -> None:
    """Draw prompt `number` of so many tokens with BOS: letters, tokens of char and bytes tokenizers."""
    first = chr(ord("a") + number % 26) + chr(ord("a") + number // 26 % 26)
    before = page.evaluate(SHOWN)
    box = page.get_by_label("Prompt", exact=True)
    box.fill((first + "kemub.crdls.bqgcn.nchrb." * n_tokens)[: n_tokens - 1])
    box.press("Control+Enter")
    page.get_by_text(re.compile(f"^{n_tokens} tokens")).first.wait_for()
    page.wait_for_function(
        f"before => document.querySelector('{MAP}') && {SHOWN} !== before", arg=before, polling=300
    )
    page.wait_for_function(RESTING)
    page.wait_for_timeout(LOOK_MS)


def _clicks(pages: list[Page], n_tokens: int, count: int) -> dict[str, list[list[float]]]:
    """Seconds of `count` changes of each kind, each on a prompt of its own, page by page."""
    kinds = {
        "head": ".st-key-step-head-Right button",
        "layer": ".st-key-step-layer-Down button",
        "stage": _stage(0),
    }
    seconds: dict[str, list[list[float]]] = {name: [] for name in kinds}
    for number, (name, _) in enumerate(itertools.product(kinds, range(count))):
        for page in pages:
            _run_prompt(page, n_tokens, number)
            _first(page)  # a prompt may open at a head of its own
        seconds[name].append([_click(page, kinds[name]) for page in pages])
    return seconds


def _cells(pages: list[Page], n_tokens: int, count: int) -> dict[str, list[list[float]]]:
    """Seconds of `count` moves over the map and of as many cells chosen, and kB sent for each of these."""
    for page in pages:
        _run_prompt(page, n_tokens, 0)
        _first(page)
    seconds: dict[str, list[list[float]]] = {"hover": [], "cell to why": [], "sent for a cell": []}
    for turn in range(count):
        place = (0.05 + 0.2 * (turn % 3), 0.6 + 0.15 * (turn // 3 % 3))  # another cell of a small part too
        seconds["hover"].append([_hover(page, place) for page in pages])
        chosen = [_choose(page, place) for page in pages]
        seconds["cell to why"].append([spent for spent, _ in chosen])
        seconds["sent for a cell"].append([sent / 1000 for _, sent in chosen])
    return seconds


def _pages(pages: list[Page], count: int) -> dict[str, list[list[float]]]:
    """Seconds of `count` changes to each page, and of as many first views of two models side by side."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in ("Kernels", "Labs", "Workspace")}
    compared: list[list[float]] = []
    for turn in range(count):
        for name, turns in seconds.items():
            turns.append([page.evaluate(GO, name) for page in pages if _rested(page)])
        compared.append([_compare(page, turn) for page in pages])
    return {f"page {name}": turns for name, turns in seconds.items()} | {"two models": compared}


def _rested(page: Page) -> bool:
    page.wait_for_timeout(LOOK_MS)
    page.wait_for_function(RESTING)
    return True


def _compare(page: Page, turn: int) -> float:
    """Seconds from an address of a model beside its twin, on a prompt not seen before, to three maps."""
    prompt = f"abcde.fghij.klmno.pqrst.{chr(ord('a') + turn % 26)}uvwx%23ab"
    browser = page.context.browser
    assert browser is not None
    tab, start = browser.new_page(viewport=page.viewport_size), time.perf_counter()
    tab.goto(urljoin(page.url, f"/compare?ck=blocks-n5-mta&b=blocks-n5-transformer&l=1&h=1&s=kq&p={prompt}"))
    tab.wait_for_function(COMPARED, polling=30)
    spent = time.perf_counter() - start
    tab.close()
    return spent


def _hover(page: Page, place: tuple[float, float]) -> float:
    x, y = page.evaluate(PLACE, place)
    page.mouse.move(x - 40, y)
    page.wait_for_timeout(LOOK_MS)
    page.evaluate(AWAIT.replace("WHAT", WORDS), "pointermove")
    page.mouse.move(x, y)
    return page.evaluate("window.measured")


def _choose(page: Page, place: tuple[float, float]) -> tuple[float, int]:
    """Seconds to the new sum and its picture, and the bytes that came until the page rested."""
    page.mouse.move(*page.evaluate(PLACE, place))
    page.wait_for_timeout(LOOK_MS)
    page.evaluate(AWAIT.replace("WHAT", WHY), "mousedown")
    before = len(SENT[page])
    page.mouse.down()
    page.mouse.up()
    seconds = page.evaluate("window.measured")
    page.wait_for_timeout(LOOK_MS)
    page.wait_for_function(RESTING)
    return seconds, sum(SENT[page][before:])


def _first(page: Page) -> None:
    """Go to layer 0, head 0, the second stage, so that the first click of each kind changes something."""
    for selector in (".st-key-step-layer-Up button", ".st-key-step-head-Left button"):
        while page.locator(selector).is_enabled():
            _click(page, selector)
    if page.evaluate(f"!({TITLE}).includes('conv')"):
        _click(page, _stage(1))


def _stage(index: int) -> str:
    return f".st-key-widget-stage button:nth-of-type({index + 1})"


def _click(page: Page, selector: str) -> float:
    seconds = page.evaluate(CLICK, [selector, page.evaluate(TITLE)])
    page.wait_for_timeout(LOOK_MS)
    page.wait_for_function(RESTING)  # the map comes first, and the buttons follow it
    return seconds


if __name__ == "__main__":
    main()
