"""The figures of the Kernels page: the gallery, a kernel's card, a layer and its training, the paper's.

And how files of the version before named them: by a key of that page, and the parameters of its address.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from mta_viz.analysis.kernels.definitions import NO_SORT
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, MixPlace, Place
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.kernels import training as training
from mta_viz.figures.kernels.card import KernelProbe, KernelScores, KernelTaps, MixingRow
from mta_viz.figures.kernels.gallery import KernelEffects, KernelGallery, KernelTable
from mta_viz.figures.kernels.layer import LayerKernels, LayerMixing, TrainingCurves, TrainingKernels
from mta_viz.figures.kernels.paper import HeadDiagonal, HeadKernels, HeadRatio, KernelMap, Kernels

View = Mapping[str, str]
SHOWN: dict[str, tuple[Place | MixPlace, ...]] = {"pre": ("pre",), "post": ("post",), "head mixing": MIXING}
_TOKENS = re.compile(r"(\d+)–(\d+)$")


def _kernel(view: View) -> dict[str, Any]:
    if "l" not in view:
        return {}
    return {"layer": int(view["l"]), "head": int(view.get("h", 0)), "where": view.get("w", "pre")}


def _chosen(view: View, kind: tuple[str, ...] = (*KEY_QUERY, *MIXING)) -> dict[str, Any]:
    names = view["kernel_places"].split(",") if "kernel_places" in view else [*SHOWN]
    places = tuple(place for name in SHOWN if name in names for place in SHOWN[name] if place in kind)
    query, sort = view.get("kernel_query", ""), view.get("kernel_sort", NO_SORT)
    return {"query": query, "sort": sort, "places": places}


def _gallery(view: View, kind: tuple[str, ...]) -> NamedFigure[Any]:
    look: dict[str, Any] = {"scale": view.get("kernel_scale", "shared"), **_chosen(view, kind)}
    look["numbers"] = view.get("kernel_numbers") == "true"
    return KernelGallery(**look, **_kernel(view), hide_own=view.get("hide_own") != "false")


def _layer(view: View, where: Any) -> NamedFigure[Any]:
    if where in MIXING:
        return LayerMixing(int(view["l"]), where)
    scale: Any = view.get("kernel_scale", "shared")
    return LayerKernels(int(view["l"]), where, scale)


def _trained(view: View) -> dict[str, Any]:
    step = int(view["training_step"]) if "training_step" in view else None
    return {"layer": int(view["l"]), "where": view.get("training_where"), "step": step}


def _paper(view: View) -> NamedFigure[Any]:
    figure, width = view.get("figure", "kernels"), view.get("figure_width", "page")
    look: dict[str, Any] = {"width": width}
    if figure == "head-kernels":
        look["where"] = view.get("figure_mixing")
        layers = tuple(int(at) for at in view.get("figure_layers", "").split(",") if at)
        return HeadKernels(**look, layers=layers)
    if figure in ("head-diagonal", "head-ratio"):
        return HeadDiagonal(**look) if figure == "head-diagonal" else HeadRatio(**look)
    look |= {"layer": int(view["l"]), "where": view.get("figure_where")}
    if figure == "kernels":
        return Kernels(**look)
    rows, keys = (_tokens(view.get(name, "")) for name in ("figure_rows", "figure_keys"))
    return KernelMap(**look, head=int(view.get("h", 0)), rows=rows, keys=keys)


def _tokens(words: str) -> tuple[int, int] | None:
    """The tokens of `A Oslo (asked), 3–7`; None, the figure's own, where none are named."""
    ends = _TOKENS.search(words)
    return None if ends is None else (int(ends[1]), int(ends[2]) + 1)


OLDER: dict[str, Callable[[View, Source], NamedFigure[Any]]] = {
    "table.kernels": lambda view, _: KernelTable(**_chosen(view)),
    "gallery.pre": lambda view, _: _gallery(view, KEY_QUERY),
    "gallery.head_pre": lambda view, _: _gallery(view, MIXING),
    "effects": lambda view, _: KernelEffects(**_kernel(view)),
    "card.taps": lambda view, _: KernelTaps(**_kernel(view), hide_own=view.get("hide_own_tap") == "true"),
    "card.scores": lambda view, _: KernelScores(**_kernel(view)),
    "card.probe": lambda view, _: KernelProbe(**_kernel(view)),
    "card.row": lambda view, _: MixingRow(**_kernel(view)),
    "pre": lambda view, _: _layer(view, "pre"),
    "post": lambda view, _: _layer(view, "post"),
    "head_pre": lambda view, _: _layer(view, "head_pre"),
    "head_post": lambda view, _: _layer(view, "head_post"),
    "training.kernels": lambda view, _: TrainingKernels(**_trained(view)),
    "training.curves": lambda view, _: TrainingCurves(
        **_trained(view), head=int(view.get("h", 0)), score=view.get("training_score", TrainingCurves.score)
    ),
    "paper": lambda view, _: _paper(view),
}
