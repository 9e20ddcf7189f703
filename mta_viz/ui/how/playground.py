"""The playground: a kernel one paints, a map, and what the model's own convolution makes of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.attention.kernel_map import HERE, PRESETS, Scores, preset
from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import cannot_show
from mta_viz.figures.attention.kernels import Playground
from mta_viz.ui.fields import menu
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import draw, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.terms import help_of, texts, worded
from mta_viz.ui.shell.widgets import chart

Taps = Float[Array, "c_q c_k"]
SIZES = {"3 x 5": (3, 5), "4 x 7": (4, 7), "6 x 11": (6, 11)}
OWN = "this head's kernel"
MAPS: tuple[Scores, ...] = ("one match", "diagonal stripe", "block edge", HERE)
SIZE, BEGIN = Setting("paint size", "4 x 7"), Setting("paint from", PRESETS[0])
PAINTED, ON = Setting("painted", ""), Setting[Scores]("paint on", MAPS[1])
LARGEST_TAP, CELL_PX, ROW_PX = 100.0, 46, 24


@dataclass
class _Grid:
    """The grid on the page, and the taps it began with, on top of which comes what is typed in it."""

    key: str = ""
    begun: Taps | None = None


def draw_playground(page: Page, selected: Selected) -> None:
    """The kernel's grid, what the kernel is called, and the map before and after it."""
    at: dict[str, Any] = {name: getattr(selected, name) for name in ("layer", "head", "query", "key")}
    with st.container(horizontal=True, gap="medium"):
        left, right = st.container(width="content"), st.container(width=324, horizontal=True)
    with right:
        own = page.model.blocks[selected.layer].attn.kernel_pre
        begins = PRESETS if own is None else (*PRESETS, OWN)
        begin = menu("Kernel", begins, BEGIN, width=180, help=help_of("kernel", "tap", "identity"))
        size = "" if begin == OWN else menu("Queries x keys", [*SIZES], SIZE, width=120)
        scores: Scores = menu("Scores", MAPS, ON, width=180, help=help_of("score"))
    shape = own.shape[1:] if begin == OWN else SIZES[size]
    offsets = kernel_offsets(page.model.config, *shape)
    usual = preset(begin, offsets)
    if begin == OWN:  # as the model computes with it
        usual = own[selected.head].detach().to(page.model.dtype).double().cpu().numpy()
    with left:
        taps = _paint(f"paint.{begin}.{(at['layer'], at['head']) if begin == OWN else size}", usual, offsets)
    figure = draw(source_of(page), Playground(taps=tuple(map(tuple, taps.tolist())), scores=scores, **at))
    words, lacking = texts("how"), ", ".join(cannot_show(offsets))
    text = words["painted"] + words["cramped"] * bool(lacking)
    st.html(worded(text, names=figure.result.names, lacking=lacking))
    chart(figure.figure, "playground", alt=figure.caption)
    save_line(figure, "The model's own convolution; cells of the future (hatched) read as 0.")


def _paint(key: str, usual: Taps, offsets: Offsets) -> Taps:
    """The grid. What is painted stands in the address; another kernel to begin with lets go of it."""
    grid, painted = state.part(_Grid), PAINTED.declare()
    kept = grid.key in ("", key)
    if not kept or state.widget_value(key) is None:  # another grid, or it comes back to the page
        begun = from_text(painted, usual.shape) if kept else None
        grid.key, grid.begun = key, usual if begun is None else begun
    columns = [f"{offset:+d}" if offset else "0" for offset in offsets.key]
    frame = pd.DataFrame(grid.begun, [str(offset) for offset in offsets.query], columns)
    number = st.column_config.NumberColumn(
        format="%.2f", width=CELL_PX, min_value=-LARGEST_TAP, max_value=LARGEST_TAP
    )
    look: dict[str, Any] = {"column_config": dict.fromkeys(columns, number), "row_height": ROW_PX}
    taps = st.data_editor(frame, key=key, width="content", **look).fillna(0.0).to_numpy(np.float64)
    PAINTED.put("" if np.array_equal(taps, usual) else to_text(taps))
    return taps


def to_text(taps: Taps) -> str:
    """The taps for the address, rows apart by `;`."""
    return ";".join(" ".join(f"{tap:.6g}" for tap in row) for row in taps)


def from_text(text: str, shape: tuple[int, ...]) -> Taps | None:
    """Taps of this shape from an address; None for anything else."""
    try:
        taps = np.array([[float(tap) for tap in row.split(" ")] for row in text.split(";")])
    except ValueError:
        return None
    return taps if taps.shape == shape and bool((np.abs(taps) <= LARGEST_TAP).all()) else None
