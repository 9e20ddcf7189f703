"""One of the paper's figures with all that goes with it: picture, caption, numbers, and the file's name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.kernels.kernels import LayerPicture, layer_picture, layers_having
from mta_viz.analysis.kernels.mixing import MixingByLayer, MixingOverLayers, mixing_over_layers
from mta_viz.analysis.attention.kernel_map import KernelBesideMap, Preset
from mta_viz.analysis.kernels.kernels import MixPlace, Place
from mta_viz.config import ModelConfig
from mta_viz.exporting.data import Row, number, table
from mta_viz.plots.kernels import figures
from mta_viz.plots.kernels.figures import Bars, Width

Result = LayerPicture | KernelBesideMap | MixingOverLayers | MixingByLayer
BARS: dict[Preset, Bars] = {"head-diagonal": "diagonal", "head-ratio": "ratio"}


@dataclass(frozen=True)
class PaperFigure:
    """`name`: the parts of a file's name, counted from 0 as in all files; `csv` too."""

    name: tuple[object, ...]
    figure: go.Figure
    caption: str
    csv: str

    def view(self, width: Width) -> dict[str, str]:
        """The parameters of the Kernels page's address that show it; of a map only some."""
        preset, *place = map(str, self.name)
        found = {"part": "Paper figures", "figure": preset, "figure_width": width}
        if preset in ("kernels", "kernel-map"):
            found |= {"l": place[0].removeprefix("L"), "figure_where": place[-1]}
        return found | {"figure_mixing": place[0]} if preset == "head-kernels" else found


def paper_figure(
    preset: Preset, result: Result, model: str, *, width: Width = "page", numbering_from: int = 0
) -> PaperFigure:
    """The figure of a preset from what `analysis.paper_figures` computed for it."""
    look: dict[str, Any] = {"width": width, "numbering_from": numbering_from}
    if isinstance(result, LayerPicture):
        figure = figures.layer_figure(result, **look)
        caption = figures.layer_caption(result, model, numbering_from)
        return PaperFigure((preset, f"L{result.layer}", result.where), figure, caption, _layer_csv(result))
    if isinstance(result, KernelBesideMap):
        figure = figures.kernel_map_figure(result, **look)
        caption = figures.kernel_map_caption(result, model, numbering_from)
        name = (preset, f"L{result.kernel.layer}", f"H{result.kernel.head}", result.kernel.where)
        return PaperFigure(name, figure, caption, _kernel_map_csv(result))
    if isinstance(result, MixingOverLayers):
        figure = figures.mixing_figure(result, **look)
        caption = figures.mixing_caption(result, model, numbering_from)
        return PaperFigure((preset, result.where), figure, caption, _mixing_csv(result))
    figure = figures.bars_figure(result, BARS[preset], **look)
    caption = figures.bars_caption(result, BARS[preset], model, numbering_from)
    return PaperFigure((preset,), figure, caption, _means_csv(result))


def span_words(span: Span) -> str:
    """A part of the prompt as the map's pickers list it: letter, name, first and last token."""
    return f"{span.letter} {span.name}, {span.start}–{span.stop - 1}"


def every_kernel(
    weights: Mapping[str, Tensor],
    config: ModelConfig,
    model: str,
    *,
    width: Width = "page",
    numbering_from: int = 0,
) -> Iterator[PaperFigure]:
    """All a model's kernels: a figure a layer and place, then one of each kind of head mixing over layers."""
    look: dict[str, Any] = {"width": width, "numbering_from": numbering_from}
    for place in get_args(Place):
        for layer in layers_having(config, place):
            yield paper_figure("kernels", layer_picture(weights, config, layer, place), model, **look)
    for mixing in get_args(MixPlace):
        if layers_having(config, mixing):
            yield paper_figure("head-kernels", mixing_over_layers(weights, config, mixing), model, **look)


def _layer_csv(picture: LayerPicture) -> str:
    """A line a tap."""
    rows = [
        (picture.layer, picture.where, head, query, key, number(float(taps[a, b])))
        for head, taps in enumerate(picture.taps)
        for a, query in enumerate(picture.offsets.query)
        for b, key in enumerate(picture.offsets.key)
    ]
    return table(("layer", "where", "head", "query_offset", "key_offset", "value"), rows)


def _kernel_map_csv(found: KernelBesideMap) -> str:
    """The kernel's taps, then the map's cells; a masked cell has no value."""
    header = ("part", "layer", "head", "where", "query_offset", "key_offset")
    cells = ("query", "query_token", "key", "key_token", "value", "masked")
    return table((*header, *cells), [*_tap_rows(found), *_cell_rows(found)])


def _tap_rows(found: KernelBesideMap) -> Iterable[Row]:
    kernel = (found.kernel.layer, found.kernel.head, found.kernel.where)
    for a, query in enumerate(found.offsets.query):
        for b, key in enumerate(found.offsets.key):
            yield ("kernel", *kernel, query, key, "", "", "", "", number(float(found.taps[a, b])), 0)


def _cell_rows(found: KernelBesideMap) -> Iterable[Row]:
    kernel = (found.kernel.layer, found.kernel.head, found.kernel.where)
    values, pieces = found.attention.values.tolist(), found.tokens.pieces
    for query, row in zip(found.rows.positions, values, strict=True):
        for key, value in zip(found.keys.positions, row, strict=True):
            shown = "" if key > query else number(value)
            tokens = (query, pieces[query], key, pieces[key])
            yield ("map", *kernel, "", "", *tokens, shown, int(key > query))


def _mixing_csv(stack: MixingOverLayers) -> str:
    """A line a weight, heads counted over all groups."""
    size = stack.matrices.shape[-1]
    rows = [
        (layer, stack.where, group, group * size + target, group * size + source, number(float(weight)))
        for layer, groups in zip(stack.layers, stack.matrices, strict=True)
        for (group, target, source), weight in np.ndenumerate(groups)
    ]
    return table(("layer", "where", "group", "target_head", "source_head", "value"), rows)


def _means_csv(found: MixingByLayer) -> str:
    """A line a place and layer: means of sizes and of signed values, their ratios, weights that are NaN."""
    header = ("where", "layer", "key_query_kernels", "mean_abs_diagonal", "mean_diagonal")
    more = ("mean_abs_off_diagonal", "mean_off_diagonal", "ratio_of_abs", "ratio_of_signed", "nan_weights")
    rows = []
    for means in found.places:
        columns = (
            means.diagonal_size, means.diagonal, means.off_diagonal_size, means.off_diagonal,
            means.ratio, means.signed_ratio,
        )  # fmt: skip
        for layer, marked in enumerate(found.key_query):
            numbers = [repr(float(column[layer])) for column in columns]
            rows.append((means.where, layer, int(marked), *numbers, means.n_bad[layer]))
    return table((*header, *more), rows)
