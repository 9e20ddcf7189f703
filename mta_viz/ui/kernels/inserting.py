"""Insert kernels into a plain model: the dialog of the Kernels page, which writes an adapter and opens it.

The model that is shown is never changed. What is inserted is the identity; such kernels are trained on the
Train page, whose form opens filled.
"""

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from mta_viz.checkpoint import door
from mta_viz.checkpoint.adapter import ADAPTER
from mta_viz.checkpoint.relatives import made_models
from mta_viz.config import LARGEST_KERNEL, ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError
from mta_viz.model.editing import insert_mta, usual_layers
from mta_viz.printed import layer_label, printable
from mta_viz.run.scoring import LogitChange, logit_change, write_inserted
from mta_viz.ui.shell import cache, models, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import Window, caption, close_window, plain, pressed, window, window_button
from mta_viz.writing import refusals

PLACES = {"pre": "before the softmax", "post": "after the softmax", "both": "both"}
MIXINGS = {"none": "none", **PLACES}
GATES = {"none": "none", "1d": "one a head", "dd": "one an element of its output"}
SIZE = (6, 11)
# of the Train page: what its form asks for, and the training that is shown, "" for the form of a new one
LAYERS = Setting[Any]("train_layers", [])
QUERIES, KEYS = Setting("train_queries", SIZE[0]), Setting("train_keys", SIZE[1])
TRAINING = Setting("training", "", private=True)
MOST_NUMBERED = 1000
NAME = re.compile(r"[\w.-]{1,100}", re.ASCII)


@dataclass(frozen=True)
class Wanted:
    """What to insert: the layers with kernels, and the other arguments of `insert_mta`."""

    layers: tuple[int, ...]
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Written:
    """An adapter that was written: where, the model that it makes, and what came of it."""

    folder: Path
    config: ModelConfig
    change: LogitChange


def draw_inserting(page: Page) -> None:
    """The button that opens the dialog."""
    words = "Kernels at the identity: the model computes what it did, and can be trained from there."
    draw = partial(_draw_dialog, page)
    window_button("Insert kernels", "insert.open", draw, icon=":material/add:", help=words)


@window("Insert kernels", width="medium")
def _draw_dialog(page: Page) -> None:
    form, opened = st.empty(), state.part(Window)
    if opened.made is None:
        with form.container():
            _draw_form(page)
    if opened.made is not None:
        form.empty()  # another container in its place would keep what it does not draw over
        _draw_written(opened.made)


def _draw_form(page: Page) -> None:
    caption(
        "Writes an adapter: a small file with kernels at the identity, whose base is this model. The model "
        "stays as it is."
    )
    wanted = _draw_wanted(page.model.config, page.numbering)
    try:
        folder = pick_folder(Path(page.model_key.path), "inserted", "insert")
        if pressed("Insert", "insert.write", type="primary"):
            with st.spinner("Inserting, and running a short prompt before and after"):
                state.part(Window).made = _write(page, wanted, folder)
    except MtaVizError as error:
        st.error(plain(str(error)))


def _draw_wanted(config: ModelConfig, numbering: int) -> Wanted:
    look: dict[str, Any] = {"format_func": lambda layer: layer_label(layer, numbering)}
    layers, usual = range(config.n_layers), usual_layers(config)
    chosen = st.multiselect("Layers with kernels", layers, usual, key="insert.layers", **look)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        look = {"min_value": 1, "max_value": LARGEST_KERNEL, "width": 130}
        c_q = st.number_input("Queries", value=SIZE[0], key="insert.queries", **look)
        look |= {"step": 2, "help": "An odd number: as many keys on either side."}
        c_k = st.number_input("Keys", value=SIZE[1], key="insert.keys", **look)
        look = {"required": True, "format_func": PLACES.__getitem__}
        place = st.segmented_control("Place", PLACES, default="pre", key="insert.place", **look)
    size = (int(c_q), int(c_k))
    kernels = {
        "kernel": size if place in ("pre", "both") else None,
        "post": size if place in ("post", "both") else None,
    }
    with st.expander("Head mixing, gate, group norm: in every layer"):
        return Wanted(tuple(chosen), kernels | _draw_more(config))


def _draw_more(config: ModelConfig) -> dict[str, Any]:
    """What comes into every layer; a gate or norm only where the model has none."""
    mixing = st.selectbox("Head mixing", MIXINGS, format_func=MIXINGS.__getitem__, key="insert.mixing")
    gate, norm = "none", False
    if config.mta.gate is None:
        help = "It begins at 0.9975, not at 1, from where it could not learn: logits change a little."
        gate = st.selectbox("Gate", GATES, format_func=GATES.__getitem__, key="insert.gate", help=help)
    if not config.mta.group_norm:
        help = "It has no identity: it rescales every head's output, and logits change much."
        norm = st.toggle("Group norm", key="insert.norm", help=help)
    return {
        "head_pre": mixing in ("pre", "both"),
        "head_post": config.n_heads if mixing in ("post", "both") else None,
        "gate": None if gate == "none" else gate,
        "group_norm": norm,
    }


def pick_folder(base: Path, suffix: str, key: str) -> Path:
    """A new folder, in one where models are looked for. Raises MtaVizError where none can be made.

    Not among the shipped ones, nor the uploads: what is new there goes with the next version, or the process.
    """
    made, named = made_models(), [root for root in models.given_roots() if root.is_dir()]
    here = [base.parent] if any(base.parent.is_relative_to(root) for root in named) else []
    alone = {model.path for model in models.found()}  # a model named itself: no other is looked for in it
    folders = dict.fromkeys([*here, *named, *filter(None, [made])])
    places = [place for place in folders if place not in alone and _can_be_written(place)]
    if not places:
        raise MtaVizError(
            "there is no folder for models that can be written to; start the app with --models FOLDER"
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        place = st.selectbox("In", places, format_func=printable, key=f"{key}.root")
        usual = free_name(place, f"{base.stem}-{suffix}")
        name = st.text_input("New folder", usual, key=f"{key}.name.{base.stem}", max_chars=100)
    if place == made:
        caption("A folder of yours, where models are looked for each time; --models FOLDER names others.")
    return place / name.strip()


def _can_be_written(folder: Path) -> bool:
    """Whether something new can be put there, or the folder be made."""
    return os.access(next(place for place in (folder, *folder.parents) if place.exists()), os.W_OK)


def free_name(place: Path, name: str) -> str:
    """The name, with a number where there is something of that name."""
    numbered = (name, *(f"{name}-{number}" for number in range(2, MOST_NUMBERED)))
    return next((each for each in numbered if not door.is_there(place / each)), name)


def check_name(folder: Path) -> None:
    """Raises MtaVizError for a name that not every system takes."""
    if not NAME.fullmatch(folder.name) or not folder.name.strip("."):
        raise MtaVizError("the new folder needs a name of letters, digits, points, dashes and underscores")


def _write(page: Page, wanted: Wanted, folder: Path) -> Written:
    """Raises MtaVizError for what cannot be inserted, or not be written there."""
    check_name(folder)
    base = cache.stores().models.get(page.model_key) or page.model  # the former without interventions
    inserted = insert_mta(base, wanted.layers, **wanted.arguments)
    with refusals(folder):
        folder.mkdir(parents=True)
    write_inserted(folder / ADAPTER, base, inserted)
    cache.discovery.clear()
    return Written(folder, inserted.config, logit_change(base, inserted))


def _draw_written(written: Written) -> None:
    """What came of it, the way to it, and to the form that trains the same."""
    change = written.change
    if change.largest:
        words = f"Logits of a short prompt changed by up to {change.largest:.2g} of {change.scale:.2g}"
        st.info(plain(f"{words}: {change.why}."))
    else:
        st.info("Logits of a short prompt are the same, bit for bit.")
    caption(f"Written: {printable(written.folder / ADAPTER)}")
    with st.container(horizontal=True):
        if pressed("Open it", "insert.show", type="primary"):
            open_adapter(written.folder)
            close_window()
            st.rerun()
        if pressed("Train such kernels", "insert.train", icon=":material/model_training:"):
            train_such(written.config)
    mta = written.config.mta
    if mta != MTAOptions(pre_kernel=mta.pre_kernel, mta_layers=mta.mta_layers):
        caption("Kernels before the softmax are trained; the rest of this adapter needs code of your own.")


def train_such(config: ModelConfig) -> None:
    """Go to the form of the Train page, filled with the layers and the size of a model's kernels."""
    size = config.mta.pre_kernel or config.mta.post_kernel or SIZE
    shapes = map(config.kernels, range(config.n_layers))
    LAYERS.put([layer for layer, there in enumerate(shapes) if there.pre or there.post])
    QUERIES.put(size[0])
    KEYS.put(size[1])
    TRAINING.put("")
    st.switch_page("pages/train.py")


def open_adapter(folder: Path, **selection: Any) -> None:
    """Have the picker look again, and choose the adapter in `folder`; with it a kernel, say."""
    cache.discovery.clear()
    chosen = next((name for name, model in models.named().items() if model.path == folder), None)
    state.session().selection = state.Selection(checkpoint=chosen, **selection)
