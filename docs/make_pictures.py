"""Do a newcomer's tasks in a real browser, count the clicks, and take the pictures of docs and README again.

    python docs/make_pictures.py     writes docs/tasks.md, docs/tasks/*.webp and assets/screenshots/*.png

Each task begins on the first screen, 1280 x 800, in an empty browser, and stops with an error where it takes
more clicks than it may or does not show what it is for. Its docstring is its text in docs/tasks.md. Typing is
no click, nor is scrolling. Needs a chromium.
"""

import io
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.looking import click_target, settle  # noqa: E402  (the project need not be installed)
from tests.browser.serving import looking, running  # noqa: E402

SIZE = {"width": 1280, "height": 800}
PICTURES, README = ROOT / "docs" / "tasks", ROOT / "assets" / "screenshots"
MOST = 150_000  # bytes of a picture
OWN = (
    "The magic number of Paris is 417. The magic number of Oslo is 923. It rained, and the boats stayed in "
    "the harbour. The magic number of Oslo is"
)
ATLAS = "[class*='st-key-chart-gallery-pre']"
HEADER = """# Tasks

What a newcomer comes to do, from the first screen in a window of 1280 x 800, in an empty browser. Clicks are
counted and the pictures taken by `docs/make_pictures.py`, which stops where a task takes more than it may.
Typing and scrolling are no clicks.
"""


@dataclass
class Visitor:
    """A page in an empty browser, and how often its visitor clicked."""

    page: Page
    clicks: int = 0

    def click(self, what: Locator) -> None:
        """And what follows from it, until the page rests."""
        self.clicks += 1
        what.click()
        self.page.wait_for_timeout(300)  # until the server has it
        settle(self.page)

    def tile(self, kernel: str) -> None:
        """On the page Kernels, a click on the tile of a kernel, "pre 5 7"."""
        self.click(self.page.get_by_role("link", name="Kernels"))
        self.clicks += 1
        click_target(self.page, ATLAS, [kernel])
        settle(self.page)

    def radio(self, name: str) -> Locator:
        """One of the choices in a row."""
        return self.page.get_by_role("radio", name=name, exact=True).first

    def sees(self, words: str) -> None:
        """Waits for them; raises AssertionError where they do not come."""
        expect(self.page.locator(".stApp")).to_contain_text(re.compile(words))


def first(visitor: Visitor) -> None:
    """The sentence over the text says it. The asked needle is outlined in green; the maps open on question x
    needle, on one scale, the kernel between them. A frame shows the window that it reads for the chosen cell.
    """
    visitor.sees("gives the needle “San Salvador” .* % before it, .* % after")
    titles = visitor.page.locator(".mta-panel:not([hidden]) strong")
    expect(titles).to_have_text(["before", "after", "kernel"])


def own_prompt(visitor: Visitor) -> None:
    """A click into the prompt, the text, *Run* (or Ctrl+Enter). Head, kernel, answer and maps are the new
    prompt's.
    """
    visitor.click(visitor.page.get_by_label("Prompt", exact=True))
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.insert_text(OWN)
    visitor.click(visitor.page.get_by_role("button", name="Run Shortcut"))
    visitor.sees("Answer “923”")


def diagonal(visitor: Visitor) -> None:
    """*Kernels*, a tile under *Diagonal*: its card opens beside the tiles, *On your prompt* first."""
    visitor.tile("pre 2 2")
    visitor.sees("L2 H2 .* diagonal .*On your prompt")


def priming(visitor: Visitor) -> None:
    """*Kernels*, a tile under *Priming*."""
    visitor.tile("pre 1 6")
    visitor.sees("L1 H6 .* priming")


def edge(visitor: Visitor) -> None:
    """*Kernels*, a tile under *Edge*."""
    visitor.tile("pre 2 6")
    visitor.sees("L2 H6 .* edge")


def change(visitor: Visitor) -> None:
    """*Edit*, *own tap*: the line over the text says by how much the answer's log-odds move; the maps are
    those of the edited model.
    """
    visitor.click(visitor.radio("Edit"))
    visitor.click(visitor.radio("own tap"))
    strip, words = visitor.page.locator(".st-key-plan-strip"), re.compile(r"answer ([+−-][\d.]+) nats")
    expect(strip).to_contain_text(words)
    moved = words.search(strip.inner_text())
    if moved is None or abs(float(moved[1].replace("−", "-"))) < 1:
        raise RuntimeError(f"The answer did not move by 1 nat: {moved}")


def pdf(visitor: Visitor) -> None:
    """*Map*, *PDF*, *Save PDF*."""
    visitor.click(visitor.page.get_by_role("button", name="Map", exact=True))
    visitor.click(visitor.radio("PDF"))
    with visitor.page.expect_download() as saved:
        visitor.click(visitor.page.get_by_role("button", name="Save PDF"))
    if not Path(saved.value.path()).read_bytes().startswith(b"%PDF"):
        raise RuntimeError(f"{saved.value.suggested_filename} is no PDF.")


def link(visitor: Visitor) -> None:
    """With a kernel changed: *Link* shows the address, a second click copies it. The picture is another
    browser's, which opened it: prompt, head, plan and inspector are the same.
    """
    change(visitor)
    visitor.clicks = 1  # the copy
    visitor.click(visitor.page.get_by_role("button", name="Link"))
    address = visitor.page.locator("[data-testid=stPopoverBody] code").inner_text()
    own, browser = state_of(visitor.page), visitor.page.context.browser
    assert browser is not None
    visitor.page = opened(browser, address)
    if state_of(visitor.page) != own:
        raise RuntimeError(f"The link shows {state_of(visitor.page)} and not {own}.")


def back(visitor: Visitor) -> None:
    """The browser's *Back* after a kernel was changed: the plan is gone, and all is as it was before."""
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
    """Prompt, place, answer under the plan, and what is written over the maps."""
    where = "[data-testid=stText], .st-key-plan-strip p, .st-key-answer p, .mta-panel:not([hidden])"
    parts = page.locator(f".stMain :is({where})").all_inner_texts()
    return [page.get_by_label("Prompt", exact=True).input_value(), *parts]


Task = Callable[[Visitor], None]
TASKS: dict[str, tuple[str, int, Task]] = {  # title, and clicks that it may take
    "first": ("Where the needle is attended, before and after the kernel", 0, first),
    "own": ("Run a prompt of your own", 2, own_prompt),
    "diagonal": ("A diagonal kernel, and what it does on this prompt", 2, diagonal),
    "priming": ("A priming kernel", 2, priming),
    "edge": ("An edge kernel", 2, edge),
    "change": ("Change a kernel and see the answer move", 2, change),
    "pdf": ("The map as a PDF", 3, pdf),
    "link": ("A link that shows the same elsewhere", 2, link),
    "back": ("Back to what was shown", 1, back),
}


def opened(browser: Browser, address: str) -> Page:
    """A page in an empty browser, at rest."""
    page = browser.new_context(viewport=SIZE, accept_downloads=True).new_page()
    page.set_default_timeout(300_000)
    page.goto(address)
    settle(page)
    return page


def picture_of(page: Page) -> Image.Image:
    """What the window shows, with the pointer away from what answers to it."""
    page.mouse.move(640, 799)
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def film(browser: Browser, name: str, address: str) -> int:
    """The task done, its picture kept: clicks. Raises RuntimeError where they or its bytes are too many."""
    (title, most, do), visitor = TASKS[name], Visitor(opened(browser, address))
    do(visitor)
    if visitor.clicks > most:
        raise RuntimeError(f"{title}: {visitor.clicks} clicks, {most} are wanted.")
    place = PICTURES / f"{name}.webp"
    picture_of(visitor.page).save(place, quality=70, method=6)
    if place.stat().st_size > MOST:
        raise RuntimeError(f"{place.name} has {place.stat().st_size:,} bytes; {MOST:,} are wanted.")
    visitor.page.context.close()
    return visitor.clicks


def write_page(clicks: Mapping[str, int]) -> None:
    """docs/tasks.md: the table, and each task's text and picture."""
    table, parts = ["| task | clicks | may take |", "|---|---|---|"], []
    for name, (title, most, do) in TASKS.items():
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        table.append(f"| [{title}](#{anchor}) | {clicks[name]} | {most} |")
        text = " ".join((do.__doc__ or "").split())
        parts.append(f"## {title}\n\n{text}\n\n![{title}](tasks/{name}.webp)")
    text = "\n\n".join([HEADER.strip(), "\n".join(table), *parts])
    (ROOT / "docs" / "tasks.md").write_text(f"{text}\n", encoding="utf-8")


def film_readme(browser: Browser, address: str) -> None:
    """The two pictures of README."""
    for name in ("workspace", "kernels"):
        page = opened(browser, address if name == "workspace" else f"{address}/{name}")
        picture_of(page).quantize(256).save(README / f"{name}.png", optimize=True)
        page.context.close()


def main() -> None:
    """All tasks, then README's pictures."""
    PICTURES.mkdir(exist_ok=True)
    with running() as address, looking() as page:
        browser = page.context.browser
        assert browser is not None
        write_page({name: film(browser, name, address) for name in TASKS})
        film_readme(browser, address)


if __name__ == "__main__":
    main()
