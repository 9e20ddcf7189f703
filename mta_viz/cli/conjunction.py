"""`conjunction PATH`: do two words together find a span that each alone does not, beside a twin?"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mta_viz.analysis.labs.blocks import check_characters
from mta_viz.analysis.labs.conjunction import (
    Conjunction,
    at_identity,
    check_reads_alike,
    conjunction,
    rows_of,
    strongest,
)
from mta_viz.analysis.labs.four_prompts import PROMPTS, FourPrompts, block_prompts, words_of, written_prompts
from mta_viz.cli.loading import note_length, open_model, valid_text
from mta_viz.cli.output import ProgressLine, check_output, write_json
from mta_viz.errors import PromptError
from mta_viz.exporting.results import conjunction_csv
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.blocks import BlockTask

IDENTITY = "kernels at identity"


def run(arguments: Namespace) -> dict[str, Any] | str:
    """Every head's effects and interaction of each model, on the same samples."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    if arguments.twin is not None and arguments.twin.resolve() == arguments.path.resolve():
        raise PromptError(
            f"--twin names {arguments.path} itself; without --twin it runs beside itself at identity"
        )
    model = open_model(arguments)
    samples = _samples(model, arguments)
    note_length(model, len(samples[0].prompts[0]))
    found = {}
    for name, one in list(_models(model, arguments, samples)):  # all are opened before any is run
        with ProgressLine(name) as progress:
            found[name] = conjunction(one, samples, progress=progress)
    answer = _answer(samples, found)
    if arguments.out:
        write_json(arguments.out, answer)
    return conjunction_csv(found) if arguments.format == "csv" else answer


def _samples(model: HookedMTA, arguments: Namespace) -> tuple[FourPrompts, ...]:
    """Of the text, where one is given; else blocks."""
    if arguments.text is None:
        if arguments.span or arguments.words:
            raise PromptError("--span and --words go with --text; without it blocks of letters are tested")
        check_characters(model)
        return block_prompts(
            BlockTask(arguments.letters, 2, arguments.blocks), arguments.samples, arguments.seed
        )
    if model.tokenizer is None:
        raise PromptError("a text needs the tokenizer; give it with --tokenizer FILE")
    words = words_of("\n".join(arguments.words or ()))
    return written_prompts(model.tokenizer, valid_text(arguments.text), arguments.span or "", words)


def _models(
    model: HookedMTA, arguments: Namespace, samples: Sequence[FourPrompts]
) -> Iterator[tuple[str, HookedMTA]]:
    """The model, and what runs beside it: the twin, or itself at identity where it has kernels."""
    yield str(arguments.path), model
    if arguments.twin is None:
        plain = at_identity(model)
        if plain is not None:
            yield f"{arguments.path}, {IDENTITY}", plain
        return
    twin = open_model(Namespace(**vars(arguments) | {"path": arguments.twin}))
    check_reads_alike(twin, str(arguments.twin), samples)
    yield str(arguments.twin), twin


def _answer(samples: Sequence[FourPrompts], found: dict[str, Conjunction]) -> dict[str, Any]:
    first = samples[0]
    return {
        "samples": len(samples),
        "first": {
            "prompts": dict(zip(PROMPTS, (one.text for one in first.prompts), strict=True)),
            "words": list(first.words),
            "span": {"text": first.span.name, "start": first.span.start, "stop": first.span.stop},
        },
        "models": [
            {
                "model": name,
                "strongest": {part: _told(one, part) for part in ("share", "odds")},
                "heads": rows_of(one),
            }
            for name, one in found.items()
        ],
    }


def _told(found: Conjunction, part: str) -> dict[str, Any] | None:
    best = strongest(found, part)
    if best is None:
        return None
    told = asdict(best) | {"stage": best.measure[1].value.hook}
    return {name: value for name, value in told.items() if name != "measure"}
