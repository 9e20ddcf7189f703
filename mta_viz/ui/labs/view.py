"""What the Labs page draws: a bar of its labs, and the chosen one under it. A lab is a line in `LABS`."""

from mta_viz.ui.labs import blocks, conjunction, needle, questions, text
from mta_viz.ui.labs.fits import LAB, first_lab
from mta_viz.ui.shell import address, state
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.widgets import bar

LABS = {
    "Needle": needle.draw_needle,
    "Two words": needle.draw_pairs,
    "Blocks": blocks.draw_blocks,
    "My prompts": needle.draw_written,
    "Questions": questions.draw_questions,
    "Conjunction": conjunction.draw_conjunction,
    "Text": text.draw_text,
}
OLDER = {"pairs": "Two words", "file": "My prompts"}  # of addresses: these were tasks of the lab Needle


def draw_labs(page: Page) -> None:
    """The page's body: only the chosen lab is computed. At first the one that fits this model."""
    settings = state.session().link.settings
    settings.pop("crop shown", None)  # maps are always shown
    if older := OLDER.get(settings.pop("needle task", "")):
        settings["lab"] = older
    chosen = bar("Lab", [*LABS], LAB, default=first_lab(page), label_visibility="collapsed")
    address.draw_address(f"{state.selection().checkpoint} · {chosen} lab")
    with errors_as_messages():
        LABS[chosen](page)
