"""What the Train page draws: the trainings there are, the chosen one, and the form of another."""

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from mta_viz.printed import printable
from mta_viz.ui.shell import cache, models, state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.trainings import Training, find_trainings, start
from mta_viz.ui.shell.uploads import READ_ONLY, read_only
from mta_viz.ui.shell.widgets import plain
from mta_viz.ui.train.form import draw_form
from mta_viz.ui.train.running import draw_training, state_word

CHOSEN = Setting("training", "", private=True)
NONE = ""


def draw_train(page: Page) -> None:
    """The page's body."""
    draw_address(f"{state.selection().checkpoint} · train kernels")
    trainings = {str(each.folder): each for each in find_trainings(models.roots())}
    with errors_as_messages():
        chosen = _choose(page, trainings)
        if chosen is not None:
            draw_training(page, chosen)
    with errors_as_messages():
        _draw_new(page, chosen is None)


def _choose(page: Page, trainings: dict[str, Training]) -> Training | None:
    """The training that is shown: the visitor's choice, else the usual one; None: a new one."""
    if not trainings:
        return None
    options, words = [NONE, *trainings], {NONE: "a new one"}
    words |= {
        folder: f"{printable(each.folder.name)} · {state_word(each)}" for folder, each in trainings.items()
    }
    with st.container(horizontal=True, vertical_alignment="bottom"):
        look = CHOSEN.widget(options, default=usual(page.model_key.path, list(trainings.values())))
        folder = st.selectbox("Training", options, format_func=words.__getitem__, **look)
        if folder != NONE:
            st.button("Train another", key="train.another", on_click=CHOSEN.put, args=(NONE,))
    return trainings.get(folder)


def usual(base: str, newest_first: Sequence[Training]) -> str:
    """The folder of one that runs, else of the newest of this base, else of none."""
    running = [each for each in newest_first if each.alive]
    of_base = [each for each in newest_first if each.job.settings.base == base]
    return next((str(each.folder) for each in [*running, *of_base]), NONE)


def _draw_new(page: Page, shown: bool) -> None:
    """The form, or which models fit; nothing while a training is looked at."""
    if not shown:
        return
    if problem := why_not(page):
        st.info(plain(problem))
        return
    wanted = draw_form(page)
    if wanted is not None:
        with st.spinner("Starting"):
            start(wanted.settings, wanted.folder)
        CHOSEN.put(str(wanted.folder))
        st.rerun()


def why_not(page: Page) -> str:
    """Why no kernels can be trained into the page's model, and which models fit; empty where they can."""
    if read_only():
        return READ_ONLY
    if page.model.kernels_only:
        problem = "this file holds kernels only, and training needs the whole model"
    elif page.model.config.variant != "transformer":
        problem = f"it has its own already ({VARIANTS[page.model.config.variant]})"
    else:
        return ""
    name = Path(page.model_key.path).name
    fitting = plain_models()
    there = f": {', '.join(fitting)}" if fitting else ", such as a Llama folder or a GGUF file"
    return (
        f"Kernels are trained into a plain model, and {name} is none: {problem}. Choose a plain one at the "
        f"left{there}."
    )


def plain_models() -> Sequence[str]:
    """The names of those that can be chosen."""
    found = cache.discovery(tuple(map(str, models.roots()))).found
    return [
        printable(model.name)
        for model in found
        if model.problem is None
        and model.summary is not None
        and model.summary.format not in ("params", "kernels", "adapter")
        and model.summary.config.variant == "transformer"
    ]
