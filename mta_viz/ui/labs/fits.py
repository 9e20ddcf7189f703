"""Which lab fits a model; where one does not, words that say so and buttons to what does."""

import streamlit as st

from mta_viz.analysis.labs.cards import trained_for
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.ui.shell import cache, models, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Selection, Setting
from mta_viz.ui.shell.widgets import caption, plain

LAB = Setting("lab", "Needle")
LABS = {"needle": "Needle", "pairs": "Two words", "blocks": "Blocks", "questions": "Questions"}  # by task


def first_lab(page: Page) -> str:
    """Of the task the model was trained on, as its card says; else of what its vocabulary can write."""
    if page.model.config.vocab_size == VOCAB_SIZE:
        return "Blocks"
    return LABS.get(trained_for(page.model.path) or "", "Needle")


def draw_unfit(page: Page, task: str, words: str) -> None:
    """A lab that this model cannot do: why, the lab that it can do, and a model that can do this one."""
    st.info(plain(words))
    with st.container(horizontal=True):
        _offer(first_lab(page), task)


def draw_untrained(page: Page, task: str) -> bool:
    """A lab of another task than the model's card names, and whether it is; nothing where it names none."""
    trained = trained_for(page.model.path) or ""
    if trained == task or trained not in LABS:
        return False
    with st.container(horizontal=True, vertical_alignment="center"):
        caption(
            f"This model was trained for the lab {LABS[trained]}: it was never taught what is asked here."
        )
        if not _offer(LABS[trained], task) and task == "pairs":
            st.page_link("pages/train.py", label="Train kernels for it", icon=":material/model_training:")
    return True


def draw_length(n_tokens: int, n_ctx: int, length: Setting[int]) -> None:
    """Where a prompt is longer than what the model was trained on: that it is, and the way back."""
    if n_tokens > n_ctx:
        with st.container(horizontal=True, vertical_alignment="center"):
            caption(f"{n_tokens:,} tokens: this model was trained on up to {n_ctx:,}, and may fail beyond.")
            st.button(f"Shorten to {n_ctx:,}", key="fit.length", on_click=length.put, args=(n_ctx,))


def _offer(lab: str, task: str) -> bool:
    """Buttons to the lab, and to the first model that was trained on the task; whether there is one."""
    st.button(f"Open the lab {lab}", key="fit.lab", on_click=LAB.put, args=(lab,))
    found = cache.discovery(tuple(map(str, models.roots()))).found
    names = [model.name for model in found]
    fitting = next(
        (model for model in found if trained_for(model.path) == task and models.can_run(model)), None
    )
    if fitting is None:
        return False
    name = models.identity(fitting, names)

    def choose() -> None:
        state.session().selection = Selection(checkpoint=name)

    st.button(f"Open {fitting.name} here", key="fit.model", on_click=choose)
    return True
