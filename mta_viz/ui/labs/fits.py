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
TRAINED_ON = {
    "needle": "needles",
    "pairs": "names and cities",
    "blocks": "block finding",
    "questions": "questions about stories",
}


def first_lab(page: Page) -> str:
    """Of the task the model was trained on, as its card says; else of what its vocabulary can write."""
    if page.model.config.vocab_size == VOCAB_SIZE:
        return "Blocks"
    return LABS.get(trained_for(page.model.path) or "", "Needle")


def draw_unfit(page: Page, task: str, words: str) -> None:
    """A lab that this model cannot do: why, the lab that it can do, and a model that can do this one."""
    st.info(plain(words))
    with st.container(horizontal=True):
        _lab_button(first_lab(page))
        _model_button(task)


def draw_untrained(page: Page, task: str) -> bool:
    """A lab of another task than the model's card names, and whether it is; nothing where it names none."""
    trained = trained_for(page.model.path)
    if trained == task or trained not in LABS:
        return False
    name = state.selection().checkpoint
    with st.container(horizontal=True, vertical_alignment="center"):
        caption(
            f"{name} was trained on {TRAINED_ON[trained]}, not on this: it was never taught what is asked."
        )
        _lab_button(LABS[trained])
        there, plain_model = _model_button(task), page.model.config.variant == "transformer"
        trainable = task == "pairs" and not there and plain_model
        if trainable and st.button("Train kernels for it", key="fit.train"):
            st.switch_page("pages/train.py")
    return True


def draw_length(n_tokens: int, n_ctx: int, length: Setting[int]) -> None:
    """Where a prompt is longer than what the model was trained on: that it is, and the way back."""
    if n_tokens <= n_ctx:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        caption(f"{n_tokens:,} tokens: this model was trained on up to {n_ctx:,}, and may fail beyond them.")
        st.button(f"Shorten to {n_ctx:,}", key="fit.length", on_click=length.put, args=(n_ctx,))


def _lab_button(lab: str) -> None:
    st.button(f"Open the lab {lab}", key="fit.lab", on_click=LAB.put, args=(lab,))


def _model_button(task: str) -> bool:
    """Whether there is a model of this task to open here."""
    found = cache.discovery(tuple(map(str, models.roots()))).found
    names = [model.name for model in found]
    fitting = [model for model in found if trained_for(model.path) == task and models.can_run(model)]
    if not fitting:
        return False
    name = models.identity(fitting[0], names)

    def choose() -> None:
        state.session().selection = Selection(checkpoint=name)

    st.button(f"Open {fitting[0].name} here", key="fit.model", on_click=choose)
    return True
