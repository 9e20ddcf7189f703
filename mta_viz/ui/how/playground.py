"""The playground: a kernel one paints, a map, and what the model's own convolution makes of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.attention.playing import PRESETS, Scores, preset
from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import cannot_show
from mta_viz.figures.attention.path import Playground, named_words
from mta_viz.ui.fields import menu
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import draw, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.terms import help_of, worded
from mta_viz.ui.shell.widgets import chart

SIZES = {"3 x 5": (3, 5), "4 x 7": (4, 7), "6 x 11": (6, 11)}
OWN = "this head's kernel"
MAPS: tuple[Scores, ...] = ("one match", "diagonal stripe", "block edge", "this head's scores")
SIZE, BEGIN = Setting("paint size", "4 x 7"), Setting("paint from", PRESETS[0])
PAINTED, ON = Setting("painted", ""), Setting[Scores]("paint on", MAPS[1])
LARGEST_TAP = 100.0
CELL_PX, ROW_PX = 50, 27


@dataclass
class _Grid:
    """The grid on the page, and the taps that it began with; what is typed in it comes on top of these."""

    key: str = ""
    begun: Float[Array, "c_q c_k"] | None = None


def draw_playground(page: Page, selected: Selected) -> None:
    """The kernel's grid with what it is called, and under it before, kernel, after."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        begin, size = _pick_kernel(page, selected)
        scores: Scores = menu("On", MAPS, ON, width=200, help=help_of("score"))
    own = _own_kernel(page, selected)
    shape = own.shape if begin == OWN and own is not None else SIZES[size]
    offsets = kernel_offsets(page.model.config, *shape)
    usual = own if begin == OWN and own is not None else preset(begin, offsets)
    place = (selected.layer, selected.head) if begin == OWN else ()
    taps = _paint(f"{size}.{begin}.{place}", usual, offsets)
    at: dict[str, Any] = {name: getattr(selected, name) for name in ("layer", "head", "query", "key")}
    spec = Playground(taps=tuple(map(tuple, taps.tolist())), scores=scores, **at)
    figure = draw(source_of(page), spec)
    lacking = ", ".join(cannot_show(offsets))
    rest = f" A kernel of {shape[0]} x {shape[1]} has no room for: {lacking}." if lacking else ""
    st.html(worded("Each [tap] multiplies the [score] at its [offset]; by its taps alone this [kernel] is named {name}." + rest,
                   name=named_words(figure.result)))  # fmt: skip
    chart(figure.figure, "playground", alt="Scores before, the kernel, and scores after the convolution")
    save_line(figure, "The model's own convolution, in which cells of the future (hatched) read as 0.")


def _pick_kernel(page: Page, selected: Selected) -> tuple[str, str]:
    begins = [*PRESETS, OWN] if _own_kernel(page, selected) is not None else [*PRESETS]
    begin = menu("Begin with", begins, BEGIN, width=200, help=help_of("kernel", "identity"))
    size = menu("Queries x keys", [*SIZES], SIZE, width=130, disabled=begin == OWN)
    return begin, size


def _own_kernel(page: Page, selected: Selected) -> Float[Array, "c_q c_k"] | None:
    """The head's kernel before the softmax, as the model computes with it."""
    kernels = page.model.blocks[selected.layer].attn.kernel_pre
    if kernels is None:
        return None
    return kernels[selected.head].detach().to(page.model.dtype).double().cpu().numpy()


def _paint(name: str, usual: Float[Array, "c_q c_k"], offsets: Offsets) -> Float[Array, "c_q c_k"]:
    """The grid. What is painted stands in the address; another kernel to begin with lets go of it."""
    grid, key = state.part(_Grid), f"paint.{name}"
    painted = PAINTED.declare()
    if grid.key not in ("", key):
        PAINTED.put("")
        painted = ""
    if grid.key != key or grid.begun is None or state.widget_value(key) is None:
        begun = from_text(painted, usual.shape)
        grid.key, grid.begun = key, usual if begun is None else begun
    columns = [f"{offset:+d}" if offset else "0" for offset in offsets.key]
    frame = pd.DataFrame(grid.begun, [str(offset) for offset in offsets.query], columns)
    number = st.column_config.NumberColumn(
        format="%.2f", width=CELL_PX, min_value=-LARGEST_TAP, max_value=LARGEST_TAP
    )
    look: dict[str, Any] = {"column_config": dict.fromkeys(columns, number), "row_height": ROW_PX}
    edited = st.data_editor(frame, key=key, width="content", num_rows="fixed", **look)
    taps = edited.fillna(0.0).to_numpy(np.float64)
    PAINTED.put("" if np.array_equal(taps, usual) else to_text(taps))
    return taps


def to_text(taps: Float[Array, "c_q c_k"]) -> str:
    """The taps for the address: rows apart by `;`."""
    return ";".join(" ".join(f"{tap:.6g}" for tap in row) for row in taps)


def from_text(text: str, shape: tuple[int, ...]) -> Float[Array, "c_q c_k"] | None:
    """Taps of this shape from an address; None for anything else."""
    try:
        taps = np.array([[float(tap) for tap in row.split(" ")] for row in text.split(";")])
    except ValueError:
        return None
    return taps if taps.shape == shape and bool((np.abs(taps) <= LARGEST_TAP).all()) else None
