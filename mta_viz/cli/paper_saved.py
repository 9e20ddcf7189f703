"""The paper's figures as `paper-figures` writes them: of which prompt and head, with what makes them again.

Owns the view of the Kernels page that shows one; `exporting.paper` draws, `paper_figures.py` writes.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from torch import Tensor

from mta_viz.analysis.attention.spans import Span, find, needle_spans
from mta_viz.analysis.kernels.figures import (
    KernelBesideMap,
    Preset,
    asked_span,
    gold_spans,
    kernel_beside_map,
    kernel_places,
    layer_picture,
    layers_having,
    mixing_by_layer,
    mixing_over_layers,
    mixing_places,
    needle_sample,
    question_span,
    strongest_head,
)
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.cli.flags import valid_text
from mta_viz.cli.output import ProgressLine, note
from mta_viz.config import DTYPES, ModelConfig
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.exporting.paper import Result, paper_figure, span_words
from mta_viz.exporting.pictures import limits
from mta_viz.exporting.provenance import Provenance
from mta_viz.exporting.saved import Choices, Saved
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.kernels.figures import Width
from mta_viz.run.tracing import capture, tokenize
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import link

LOOKS = Choices(dpi=384)  # drawn at the size they are printed, where print asks for 300
OWN_PROMPT = "give a prompt of your own: --prompt TEXT --keys TEXT"


@dataclass(frozen=True)
class Origin:
    """What all figures of one command share. `name` is the model's, in captions and names of files.

    `checkpoint` is the name of what was opened, the folder of all steps for a step of a run.
    """

    name: str
    checkpoint: str
    sha256: str
    width: Width
    view: dict[str, str]


def origin(model: HookedMTA, arguments: Namespace) -> Origin:
    """Of the model that was opened."""
    location = locate(arguments.path)
    opened = arguments.path if arguments.path.is_dir() else location.folder
    view = {"ck": opened.absolute().name}
    if location.steps:
        view["step"] = str(location.step)
    if arguments.dtype not in (None, DTYPES[0]):
        view["dtype"] = arguments.dtype
    name = (model.source.path if model.source else opened).absolute().name
    return Origin(name, view["ck"], sha256(location.folder), arguments.width, view)


def saved(preset: Preset, result: Result, of: Origin, layers: tuple[int, ...] | None) -> Saved:
    """The figure with all that goes with it; `layers` are those of `--layer`."""
    made = paper_figure(preset, result, of.name, width=of.width)
    view = of.view | made.view(of.width)
    if preset == "head-kernels" and layers is not None:
        view["figure_layers"] = ",".join(map(str, layers))
    said = Provenance(
        "Kernels", "paper", view, of.checkpoint, of.sha256, limits=limits(made.figure), caption=made.caption
    )
    return Saved((of.name, *made.name), made.figure, made.caption, made.csv, _with_prompt(said, result))


def _with_prompt(said: Provenance, result: Result) -> Provenance:
    """A map is also of a prompt, a head, and named tokens of it."""
    if not isinstance(result, KernelBesideMap):
        return said
    tokens, spans = result.tokens, dict.fromkeys((result.keys, result.rows))
    view = {
        "h": str(result.kernel.head),
        "figure_rows": span_words(result.rows),
        "figure_keys": span_words(result.keys),
        **link.place_parameters(None, list(spans)),
    }
    prompt = list(tokens.ids) if tokens.text is None else tokens.text
    return replace(said, view=said.view | view, prompt=prompt, tokens=list(tokens.pieces))


def wanted_presets(names: tuple[str, ...] | None) -> tuple[Preset, ...]:
    """The presets named, in the paper's order; None: all."""
    presets = get_args(Preset)
    unknown = [name for name in names or () if name not in presets]
    if unknown:
        raise MtaVizError(f"there is no figure {', '.join(unknown)}; there are {', '.join(presets)}")
    return tuple(preset for preset in presets if names is None or preset in names)


def make(
    model: HookedMTA, wanted: tuple[Preset, ...], arguments: Namespace
) -> tuple[list[Saved], dict[str, str]]:
    """The figures, and why others are left out. A figure that was named must be there."""
    of, made, left_out = origin(model, arguments), list[Saved](), dict[str, str]()
    for preset in wanted:
        try:
            results = list(_results(model, preset, arguments))
        except MtaVizError as error:
            if arguments.which is not None:
                raise MtaVizError(f"{preset}: {error}") from error
            left_out[preset] = str(error)
            note(f"{preset} is left out: {error}")
            continue
        made += [saved(preset, result, of, arguments.layer) for result in results]
    if not made:
        raise MtaVizError("nothing to draw: this checkpoint has none of what the figures show")
    return made, left_out


def _results(model: HookedMTA, preset: Preset, arguments: Namespace) -> Iterator[Result]:
    weights, config = model.state_dict(), model.config
    if preset == "kernels":
        yield from _layers(weights, config, arguments.layer)
    elif preset == "kernel-map":
        yield from _kernel_maps(model, arguments)
    elif preset == "head-kernels":
        for place in mixing_places(config):
            yield mixing_over_layers(weights, config, place, arguments.layer)
    else:
        yield mixing_by_layer(weights, config, off_diagonal=preset == "head-ratio")


def _layers(
    weights: Mapping[str, Tensor], config: ModelConfig, layers: tuple[int, ...] | None
) -> Iterator[Result]:
    """The kernels of the layers named, else of all that have some."""
    places = kernel_places(config)
    having = sorted({layer for place in places for layer in layers_having(config, place)})
    for layer in having if layers is None else layers:
        for place in places:
            yield layer_picture(weights, config, layer, place)


def _kernel_maps(model: HookedMTA, arguments: Namespace) -> Iterator[Result]:
    """Before and after the softmax: the head named, else the one that attends most to the keys."""
    places = kernel_places(model.config)
    tokens, rows, keys = _prompt(model, arguments)
    with ProgressLine("running the prompt") as progress:
        trace = capture(model, tokens, progress=progress)
    for place in places:
        if arguments.head is not None:
            layer, head = arguments.head
        else:
            layer, head = strongest_head(trace, rows, keys, place)
            note(f"layer {layer}, head {head} attends most to “{keys.name}”; choose another with --head")
        yield kernel_beside_map(trace, KernelId(layer, head, place), rows, keys)


def _prompt(model: HookedMTA, arguments: Namespace) -> tuple[Tokens, Span, Span]:
    """The prompt, the queries and the keys to show: the user's, else one of the needle task."""
    if arguments.prompt is None and not model.kernels_only:
        try:
            sample = needle_sample(model)
        except MtaVizError as error:
            raise PromptError(
                f"the needle task does not fit this model ({str(error).rstrip('.')}); {OWN_PROMPT}"
            ) from error
        return sample.tokens, *gold_spans(sample)
    tokens = tokenize(model, valid_text(arguments.prompt or ""))
    named = needle_spans(tokens)
    keys = asked_span(named) if arguments.keys is None else _found(tokens, arguments.keys, "--keys")
    if keys is None:
        raise PromptError("the prompt asks for no needle; name the keys to show with --keys TEXT")
    if arguments.rows is not None:
        return tokens, _found(tokens, arguments.rows, "--rows"), keys
    kernel = model.config.mta.pre_kernel or model.config.mta.post_kernel or (1, 1)
    return tokens, question_span(named, len(tokens), kernel[0]), keys


def _found(tokens: Tokens, text: str, option: str) -> Span:
    """The first place of the text for keys, the last one for rows: a question stands at the end."""
    places = find(tokens, text)
    if not places:
        raise PromptError(f"the prompt does not hold {text!r}, which {option} names")
    place = places[0] if option == "--keys" else places[-1]
    return Span(text, "A", place.start, place.stop)
