"""`paper-figures PATH --out DIR`: the paper's figures of kernels, with numbers, captions and sidecars."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from mta_viz.analysis.attention.spans import Span, find, needle_spans
from mta_viz.analysis.kernels.kernels import kernel_places, layer_picture, layers_having, mixing_places
from mta_viz.analysis.kernels.mixing import mixing_by_layer, mixing_over_layers
from mta_viz.analysis.attention.kernel_map import Preset, asked_span, gold_spans, kernel_beside_map, needle_sample, question_span, strongest_head
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.files import replacing, write_folder
from mta_viz.cli.loading import open_model, valid_text
from mta_viz.cli.output import ProgressLine, check_output, note
from mta_viz.cli.paper_saved import origin, saved
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.exporting.paper import Result
from mta_viz.exporting.saved import Choices, Saved, all_files, together
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, tokenize
from mta_viz.tokenizers.base import Tokens

LOOKS = Choices(dpi=384)  # drawn at the size they are printed, where print asks for 300
OWN_PROMPT = "give a prompt of your own: --prompt TEXT --keys TEXT"


def run(arguments: Namespace) -> dict[str, Any]:
    """Make every figure that the model has something for, then write all files at once."""
    wanted = _wanted(arguments.which)
    if (arguments.keys or arguments.rows) and not arguments.prompt:
        raise MtaVizError("--keys and --rows name parts of --prompt TEXT, which is missing")
    if arguments.out.suffix.lower() == ".pdf":
        return _one_file(wanted, arguments)
    if arguments.out.exists() and not arguments.out.is_dir():
        raise MtaVizError(f"{arguments.out} is a file; name a folder with --out")
    model = open_model(arguments)
    made, left_out = _make(model, wanted, arguments)
    suffixes = (arguments.format, "csv", "txt", "json")
    names = [figure.file(suffix) for figure in made for suffix in suffixes]
    replaced = _check_free(arguments.out, names, arguments.force)
    with ProgressLine("drawing") as progress:

        def fill(folder: Path) -> None:
            for place, figure in enumerate(made, start=1):
                for name, content in all_files(figure, arguments.format, LOOKS).items():
                    (folder / name).write_bytes(content)
                progress(place / len(made))

        write_folder(arguments.out, fill, overwrite=arguments.force)
    if replaced:
        note(f"replaced in {arguments.out}: {', '.join(replaced)}")
    return {"out": str(arguments.out), "written": names, "left_out": left_out}


def _one_file(wanted: tuple[Preset, ...], arguments: Namespace) -> dict[str, Any]:
    """All figures as pages of one PDF. Raises MtaVizError where another format is asked for."""
    if arguments.format != "pdf":
        raise MtaVizError(
            f"{arguments.out} is one PDF of all figures; leave out --format {arguments.format}, or name a "
            "folder"
        )
    check_output(arguments.out, arguments.force)
    made, left_out = _make(open_model(arguments), wanted, arguments)
    with ProgressLine("drawing") as progress:
        content = together(made, "pdf", choices=LOOKS, progress=progress)
    with replacing(arguments.out) as partial:
        partial.write_bytes(content)
    return {"out": str(arguments.out), "pages": len(made), "left_out": left_out}


def _check_free(out: Path, names: list[str], force: bool) -> list[str]:
    """The files that would be replaced. Raises MtaVizError for any without --force."""
    there = [name for name in names if (out / name).exists()]
    if there and not force:
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise MtaVizError(
            f"{out} holds {', '.join(there[:3])}{more} already; choose another folder, or replace them "
            "with --force"
        )
    return there


def _wanted(names: tuple[str, ...] | None) -> tuple[Preset, ...]:
    """The presets named, in the paper's order; None: all."""
    presets = get_args(Preset)
    unknown = [name for name in names or () if name not in presets]
    if unknown:
        raise MtaVizError(f"there is no figure {', '.join(unknown)}; there are {', '.join(presets)}")
    return tuple(preset for preset in presets if names is None or preset in names)


def _make(
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
