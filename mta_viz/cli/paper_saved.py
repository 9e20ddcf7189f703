"""Which figures `paper-figures` makes of a model: of which layers, of which prompt and which head."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from mta_viz.analysis.attention.kernel_map import needle_sample, strongest_head
from mta_viz.analysis.attention.spans import asked_span, find, needle_spans
from mta_viz.analysis.kernels.kernels import kernel_places, layers_having, mixing_places
from mta_viz.checkpoint.locate import sha256_as_read
from mta_viz.checkpoint.types import Source as Origin
from mta_viz.cli.flags import check_place
from mta_viz.cli.output import ProgressLine, note
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.exporting.saved import Choices, Saved, saved
from mta_viz.figures.base import NamedFigure, Source, drawn
from mta_viz.figures.kernels.paper import PAPER, HeadDiagonal, HeadKernels, HeadRatio, KernelMap, Kernels
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, tokenize
from mta_viz.tokenizers.base import Tokens

LOOKS = Choices(dpi=384)  # drawn at the size they are printed, where print asks for 300
OWN_PROMPT = "give a prompt of your own: --prompt TEXT --keys TEXT"
FIGURES = tuple(figure.name for figure in PAPER)
Drawable = tuple[NamedFigure[Any], Source]


def wanted_figures(names: tuple[str, ...] | None) -> tuple[str, ...]:
    """The figures named, in the paper's order; None: all."""
    unknown = [name for name in names or () if name not in FIGURES]
    if unknown:
        raise MtaVizError(f"there is no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    return tuple(name for name in FIGURES if names is None or name in names)


def make(
    model: HookedMTA, wanted: tuple[str, ...], arguments: Namespace
) -> tuple[list[Saved], dict[str, str]]:
    """The figures, and why others are left out. A figure that was named must be there."""
    for layer, head in (*((layer, None) for layer in arguments.layer or ()), arguments.head or (None, None)):
        check_place(model.config, layer, head)
    made, left_out = list[Saved](), dict[str, str]()
    for name in wanted:
        try:
            made += [
                saved(drawn(figure, source), _digest) for figure, source in _figures(model, name, arguments)
            ]
        except MtaVizError as error:
            if arguments.which is not None:
                raise MtaVizError(f"{name}: {error}") from error
            left_out[name] = str(error)
            note(f"{name} is left out: {error}")
    if not made:
        raise MtaVizError("nothing to draw: this checkpoint has none of what the figures show")
    return made, left_out


@cache
def _digest(origin: Origin) -> str:
    """Read once for all figures."""
    return sha256_as_read(origin)


def _figures(model: HookedMTA, name: str, arguments: Namespace) -> Iterator[Drawable]:
    if name == KernelMap.name:
        yield from _kernel_maps(model, arguments)
        return
    for figure in _of_kernels(name, model.config, arguments):
        yield figure, Source(model)


def _of_kernels(name: str, config: ModelConfig, arguments: Namespace) -> Iterator[NamedFigure[Any]]:
    """Those that no prompt is run for."""
    if name == Kernels.name:
        yield from _layers(config, arguments)
    elif name == HeadKernels.name:
        for place in mixing_places(config):
            yield HeadKernels(place, arguments.layer or (), arguments.width)
    else:
        yield (HeadDiagonal if name == HeadDiagonal.name else HeadRatio)(arguments.width)


def _layers(config: ModelConfig, arguments: Namespace) -> Iterator[NamedFigure[Any]]:
    """The kernels of the layers named, else of all that have some."""
    places = kernel_places(config)
    having = sorted({layer for place in places for layer in layers_having(config, place)})
    for layer in having if arguments.layer is None else arguments.layer:
        for place in places:
            yield Kernels(layer, place, arguments.width)


def _kernel_maps(model: HookedMTA, arguments: Namespace) -> Iterator[Drawable]:
    """Before and after the softmax: the head named, else the one that attends most to the keys."""
    places, tokens = kernel_places(model.config), _prompt(model, arguments)
    keys, rows = (_place(tokens, arguments, option) for option in ("keys", "rows"))
    figure = KernelMap(rows=rows, keys=keys, width=arguments.width)
    if keys is None and asked_span(needle_spans(tokens)) is None:
        raise PromptError("the prompt asks for no needle; name the keys to show with --keys TEXT")
    with ProgressLine("running the prompt") as progress:
        source = Source(model, capture(model, tokens, progress=progress))
    shown, of = figure.spans(source)
    for place in places:
        layer, head = arguments.head or strongest_head(source.trace, shown, of, place)
        if arguments.head is None:
            name = of.name if arguments.keys is None else arguments.keys
            note(f"layer {layer}, head {head} attends most to “{name}”; choose another with --head")
        yield replace(figure, layer=layer, head=head, where=place), source


def _prompt(model: HookedMTA, arguments: Namespace) -> Tokens:
    """The user's, else one of the needle task."""
    if arguments.prompt is not None or model.kernels_only:
        return tokenize(model, arguments.prompt or "")
    try:
        return needle_sample(model).tokens
    except MtaVizError as error:
        raise PromptError(
            f"the needle task does not fit this model ({str(error).rstrip('.')}); {OWN_PROMPT}"
        ) from error


def _place(tokens: Tokens, arguments: Namespace, option: str) -> tuple[int, int] | None:
    """The first place of the text for keys, the last one for rows: a question stands at the end."""
    text = vars(arguments)[option]
    if text is None:
        return None
    places = find(tokens, text)
    if not places:
        raise PromptError(f"the prompt does not hold {text!r}, which --{option} names")
    place = places[0] if option == "keys" else places[-1]
    return place.start, place.stop
