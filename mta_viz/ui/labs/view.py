"""What the Labs page draws: a bar of its labs, and the chosen one under it. A lab is a line in `LABS`."""

from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.ui.fields import bar
from mta_viz.ui.labs import blocks, conjunction, needle, questions, text
from mta_viz.ui.shell import address, state
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting

LABS = {
    "Needle": needle.draw_needle,
    "Blocks": blocks.draw_blocks,
    "Questions": questions.draw_questions,
    "Conjunction": conjunction.draw_conjunction,
    "Text": text.draw_text,
}

LAB = Setting("lab", "Needle")


def draw_labs(page: Page) -> None:
    """The page's body: only the chosen lab is computed. At first the one this model has a vocabulary for."""
    first = "Blocks" if page.model.config.vocab_size == VOCAB_SIZE else "Needle"
    chosen = bar("Lab", [*LABS], LAB, default=first, label_visibility="collapsed")
    address.draw_address(f"{state.selection().checkpoint} · {chosen} lab")
    with errors_as_messages():
        LABS[chosen](page)
