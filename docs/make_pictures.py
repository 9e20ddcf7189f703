"""Do a newcomer's tasks in a real browser, count the clicks, and take the pictures of docs and README again.

    python docs/make_pictures.py     writes docs/tasks.md, docs/tasks/*.webp and assets/screenshots/*.png

Each task begins on the first screen, 1280 x 800, in an empty browser, and stops with an error where it takes more
clicks than it may or does not show what it is for. Typing is no click, nor is scrolling. Needs a chromium.
"""

import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Download, Locator, Page, expect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.looking import click_target, settle  # noqa: E402  (the project need not be installed)
from tests.browser.serving import looking, running  # noqa: E402

SIZE = {"width": 1280, "height": 800}
PICTURES, README = ROOT / "docs" / "tasks", ROOT / "assets" / "screenshots"
MOST = 150_000  # bytes of a picture
OWN = (
    "The magic number of Paris is 417. The magic number of Oslo is 923. It rained, and the boats stayed in the "
    "harbour. The magic number of Oslo is"
)
ATLAS = "[class*='st-key-chart-gallery-pre']"
HEADER = """# Tasks

What a newcomer comes to do, from the first screen in a window of 1280 x 800, in an empty browser. Clicks are counted and
the pictures taken by `docs/make_pictures.py`, which stops where a task takes more than it may. Typing and scrolling
are no clicks.
"""


@dataclass
class Visitor:
    """A page in an empty browser, and how often its visitor clicked."""

    page: Page
    address: str
    clicks: int = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()
        self.page.wait_for_timeout(300)  # until the server has it
        settle(self.page)

    def tile(self, kernel: str) -> None:
        """A click on the tile of a kernel, "pre 5 7", in the atlas."""
        self.clicks += 1
        click_target(self.page, ATLAS, [kernel])
        settle(self.page)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    def radio(self, name: str) -> Locator:
        return self.page.get_by_role("radio", name=name, exact=True).first

    def sees(self, words: str) -> None:
        expect(self.page.locator(".stApp")).to_contain_text(re.compile(words))


def own_prompt(visitor: Visitor) -> None:
    visitor.click(visitor.page.get_by_label("Prompt", exact=True))
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.insert_text(OWN)
    visitor.click(visitor.button("Run Shortcut"))
    visitor.sees("Answer “923”")


def first(visitor: Visitor) -> None:
    visitor.sees("gives the needle “San Salvador” .* % before it, .* % after")
    titles = visitor.page.locator(".mta-panel:not([hidden]) strong")
    expect(titles).to_have_text(["before", "after", "kernel"])


def diagonal(visitor: Visitor) -> None:
    visitor.click(visitor.page.get_by_role("link", name="Kernels"))
    visitor.tile("pre 2 2")
    visitor.sees("L2 H2 .* diagonal .*On your prompt")


def priming(visitor: Visitor) -> None:
    visitor.click(visitor.page.get_by_role("link", name="Kernels"))
    visitor.tile("pre 1 6")
    visitor.sees("L1 H6 .* priming")


def edge(visitor: Visitor) -> None:
    visitor.click(visitor.page.get_by_role("link", name="Kernels"))
    visitor.tile("pre 2 6")
    visitor.sees("L2 H6 .* edge")


def change(visitor: Visitor) -> None:
    visitor.click(visitor.radio("Edit"))
    visitor.click(visitor.radio("own tap"))
    strip, words = visitor.page.locator(".st-key-plan-strip"), re.compile(r"answer ([+−-][\d.]+) nats")
    expect(strip).to_contain_text(words)
    moved = words.search(strip.inner_text())
    if moved is None or abs(float(moved[1].replace("−", "-"))) < 1:
        raise RuntimeError(f"The answer did not move by 1 nat: {moved}")


def pdf(visitor: Visitor) -> None:
    visitor.click(visitor.button("Map"))
    visitor.click(visitor.radio("PDF"))
    with visitor.page.expect_download() as saved:
        visitor.click(visitor.button("Save PDF"))
    file: Download = saved.value
    if not Path(file.path()).read_bytes().startswith(b"%PDF"):
        raise RuntimeError(f"{file.suggested_filename} is no PDF.")


def link(visitor: Visitor) -> None:
    """With an edit and another cell; then the page is that of another browser."""
    change(visitor)
    visitor.clicks = 0
    visitor.click(visitor.button("Link"))
    address = visitor.page.locator("[data-testid=stPopoverBody] code").inner_text()
    own, browser = state_of(visitor.page), visitor.page.context.browser
    assert browser is not None
    visitor.page = opened(browser, address)
    if state_of(visitor.page) != own:
        raise RuntimeError(f"The link shows {state_of(visitor.page)} and not {own}.")


def back(visitor: Visitor) -> None:
    visitor.click(visitor.radio("Edit"))
    before = state_of(visitor.page)
    change(visitor)
    visitor.clicks = 1
    visitor.page.go_back()
    expect(visitor.page.locator(".st-key-plan-strip")).to_have_count(0)
    settle(visitor.page)
    if state_of(visitor.page) != before:
        raise RuntimeError(f"Back shows {state_of(visitor.page)} and not {before}.")


def state_of(page: Page) -> list[str]:
    """Place, prompt, answer under the plan, and what is written over the maps."""
    where = "[data-testid=stText], .st-key-plan-strip p, .st-key-answer p, .mta-panel:not([hidden])"
    parts = page.locator(f".stMain :is({where})").all_inner_texts()
    return [page.get_by_label("Prompt", exact=True).input_value(), *parts]


@dataclass(frozen=True)
class Task:
    """`most`: clicks that it may take; `words`: what is done, and what the picture shows."""

    title: str
    most: int
    do: Callable[[Visitor], None]
    words: str


TASKS = {
    "first": Task(
        "Where the needle is attended, before and after the kernel",
        0,
        first,
        "The sentence over the text says it. The asked needle is outlined in green; the maps open on question x needle, on "
        "one scale, the kernel between them. A frame shows the window that it reads for the chosen cell.",
    ),
    "own": Task(
        "Run a prompt of your own",
        2,
        own_prompt,
        "A click into the prompt, the text, *Run* (or Ctrl+Enter). Head, kernel, answer and maps are those of the new "
        "prompt.",
    ),
    "diagonal": Task(
        "A diagonal kernel, and what it does on this prompt",
        2,
        diagonal,
        "*Kernels*, a tile under *Diagonal*: the card opens beside it with *On your prompt* first.",
    ),
    "priming": Task("A priming kernel", 2, priming, "*Kernels*, a tile under *Priming*."),
    "edge": Task("An edge kernel", 2, edge, "*Kernels*, a tile under *Edge*."),
    "change": Task(
        "Change a kernel and see the answer move",
        2,
        change,
        "*Edit*, *own tap*: the line over the text says by how much the answer's log-odds move, the maps are those of the "
        "edited model.",
    ),
    "pdf": Task("The map as a PDF", 3, pdf, "*Map*, *PDF*, *Save PDF*."),
    "link": Task(
        "A link that shows the same elsewhere",
        2,
        link,
        "*Link* shows it, a second click copies it; the picture is that of another browser which opened it: prompt, head, "
        "cell, plan and inspector are the same.",
    ),
    "back": Task(
        "Back to what was shown",
        1,
        back,
        "The browser's *Back* after a kernel was changed: the plan is gone, and what stood there before stands there again.",
    ),
}


def opened(browser: Browser, address: str) -> Page:
    """A page in an empty browser, at rest."""
    page = browser.new_context(viewport=SIZE, accept_downloads=True).new_page()
    page.set_default_timeout(60_000)
    page.goto(address)
    settle(page)
    return page


def picture_of(page: Page) -> Image.Image:
    page.mouse.move(640, 799)  # off what answers to a pointer
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def film(browser: Browser, name: str, address: str) -> int:
    """The task done and its picture kept: clicks. Raises RuntimeError where they are too many."""
    task, visitor = TASKS[name], Visitor(opened(browser, address), address)
    task.do(visitor)
    if visitor.clicks > task.most:
        raise RuntimeError(f"{task.title}: {visitor.clicks} clicks, {task.most} are wanted.")
    place = PICTURES / f"{name}.webp"
    picture_of(visitor.page).save(place, quality=70, method=6)
    if place.stat().st_size > MOST:
        raise RuntimeError(f"{place.name} has {place.stat().st_size:,} bytes; {MOST:,} are wanted.")
    visitor.page.context.close()
    return visitor.clicks


def write_page(clicks: dict[str, int]) -> None:
    rows = [f"| [{task.title}](#{anchor(task.title)}) | {clicks[name]} | {task.most} |" for name, task in TASKS.items()]
    table = "\n".join(["| task | clicks | may take |", "|---|---|---|", *rows])
    parts = [f"## {task.title}\n\n{task.words}\n\n![{task.title}](tasks/{name}.webp)" for name, task in TASKS.items()]
    (ROOT / "docs" / "tasks.md").write_text("\n\n".join([HEADER.strip(), table, *parts]) + "\n", encoding="utf-8")


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def film_readme(browser: Browser, address: str) -> None:
    for name in ("workspace", "kernels"):
        page = opened(browser, f"{address}/{name}")
        picture_of(page).quantize(256).save(README / f"{name}.png", optimize=True)
        page.context.close()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with running() as address, looking() as page:
        browser = page.context.browser
        assert browser is not None
        write_page({name: film(browser, name, address) for name in TASKS})
        film_readme(browser, address)


if __name__ == "__main__":
    main()
