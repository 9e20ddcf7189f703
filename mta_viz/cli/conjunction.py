"""`conjunction PATH`: do two words together find a span that each alone does not, beside a twin?"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.cli import flags, values
from mta_viz.cli.kept import Form, kept_beside
from mta_viz.cli.output import ProgressLine
from mta_viz.errors import PromptError
from mta_viz.tables import Table

if TYPE_CHECKING:
    from mta_viz.analysis.labs.conjunction import Conjunction, Strongest, Values
    from mta_viz.analysis.labs.four_prompts import FourPrompts
    from mta_viz.model.transformer import HookedMTA

HELP = "whether two words together give a span more than they add up to"
IDENTITY = "kernels at identity"
MOST_BLOCKS = 1000  # of any length; the letters' number allows fewer


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    flags.add_model(parser)
    flags.add_on(parser)
    add("--twin", type=Path, metavar="PATH", help="run beside it (default: itself, kernels at identity)")
    add("--task", choices=("blocks", "pairs"), help="blocks of letters (default), or names and cities")
    add("--samples", type=values.positive, default=20, metavar="N", help="of the task")
    add("--seed", type=int, default=0, metavar="S", help="of the samples")
    add("--length", type=values.positive, metavar="T", help="pairs: tokens of a prompt (default 256)")
    add("--letters", type=values.positive, default=5, metavar="N", help="blocks: letters in each")
    add("--blocks", type=values.whole(1, MOST_BLOCKS), default=52, metavar="N", help="blocks: how many")
    add("--text", metavar="TEXT", help="instead of a task: a text with {A?} and {B?}, and {A} and {B} before")
    add("--span", metavar="TEXT", help="the part of the text whose attention is measured")
    about = "A, B, and what stands for each where it is not asked for; again for another sample"
    add("--words", action="append", metavar="'A, B, C, D'", help=about)
    flags.add_format(parser, _heads_as_csv, "json (default) or csv")
    flags.add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """Every head's effects and interaction of each model, on the same samples."""
    from mta_viz.analysis.labs.conjunction import conjunction

    if arguments.twin is not None and arguments.twin.resolve() == arguments.path.resolve():
        raise PromptError(
            f"--twin names {arguments.path} itself; without --twin it runs beside itself at identity"
        )
    model = flags.open_model(arguments)
    samples = _samples(model, arguments)
    flags.note_length(model, len(samples[0].prompts[0]))
    models, results = dict(_models(model, arguments, samples)), {}  # all are opened before any is run
    with kept_beside(arguments.out, Form(_as_data, _from_data), [*models.values()], samples) as kept:
        for name, opened in models.items():
            with ProgressLine(name) as progress:
                how: dict[str, Any] = {"progress": progress, "on": arguments.on, "kept": kept.of(name)}
                results[name] = conjunction(opened, samples, **how)
    return _answer(samples, results)


def _samples(model: "HookedMTA", arguments: Namespace) -> "tuple[FourPrompts, ...]":
    """Of the text, where one is given; else of the task."""
    from mta_viz.analysis.labs.blocks import check_characters
    from mta_viz.figures.labs import measured

    _check_together(arguments)
    drawn = {"samples": arguments.samples, "seed": arguments.seed}
    if arguments.task == "pairs":
        return measured.PairsConjunction(length=arguments.length, **drawn).samples_of(model)
    if arguments.text is None:
        check_characters(model)
        sizes = {"letters": arguments.letters, "blocks": arguments.blocks}
        return measured.BlockConjunction(**sizes, **drawn).samples_of(model)
    text, span = arguments.text or " ", arguments.span or ""  # without a text the figure has an example
    return measured.TextConjunction(text=text, span=span, lines="\n".join(arguments.words or ())).samples_of(
        model
    )


def _check_together(arguments: Namespace) -> None:
    """Raises PromptError for flags of different samples."""
    if arguments.text is not None and arguments.task is not None:
        raise PromptError("--text takes the place of a task; leave --task out")
    if arguments.length and arguments.task != "pairs":
        raise PromptError("--length is of the pairs task; leave it out, or give --task pairs")
    if arguments.text is None and (arguments.span or arguments.words):
        raise PromptError("--span and --words go with --text; without it a task is tested")


def _models(
    model: "HookedMTA", arguments: Namespace, samples: "Sequence[FourPrompts]"
) -> "Iterator[tuple[str, HookedMTA]]":
    """The model, and what runs beside it: the twin, or itself at identity where it has kernels."""
    from mta_viz.analysis.labs.conjunction import at_identity, check_reads_alike

    yield str(arguments.path), model
    if arguments.twin is None:
        plain = at_identity(model)
        if plain is not None:
            yield f"{arguments.path}, {IDENTITY}", plain
        return
    twin = flags.open_model(arguments, arguments.twin)
    check_reads_alike(twin, str(arguments.twin), samples)
    yield str(arguments.twin), twin


def _answer(samples: "Sequence[FourPrompts]", results: "dict[str, Conjunction]") -> dict[str, Any]:
    from mta_viz.analysis.labs.conjunction import strongest
    from mta_viz.analysis.labs.four_prompts import PROMPTS

    first = samples[0]
    return {
        "samples": len(samples),
        "first": {
            "prompts": dict(zip(PROMPTS, (prompt.text for prompt in first.prompts), strict=True)),
            "words": list(first.words),
            "span": {"text": first.span.name, "start": first.span.start, "stop": first.span.stop},
        },
        "models": [
            {
                "model": name,
                "strongest": {part: _place(strongest(result, part)) for part in ("share", "odds")},
                "verdict": _verdict(result),
                "heads": result.table().records(),
            }
            for name, result in results.items()
        ],
    }


def _as_data(values: "Values") -> list[Any]:
    return [[name, stage.name, numbers.tolist()] for (name, stage), numbers in values.items()]


def _from_data(rows: list[Any]) -> "Values":
    import torch

    from mta_viz.model.stages import Stage

    return {(name, Stage[stage]): torch.tensor(numbers) for name, stage, numbers in rows}


def _verdict(result: "Conjunction") -> dict[str, Any]:
    """Whether a conjunction is shown on log-odds, and where; corrected for all heads and stages."""
    from mta_viz.analysis.labs.conjunction import ALPHA, verdict

    own = verdict(result)
    facts = {name: value for name, value in vars(own).items() if name != "best"}
    return {"shown": own.shown, "best": _place(own.best), "alpha": ALPHA, **facts}


def _place(head: "Strongest | None") -> dict[str, Any] | None:
    if head is None:
        return None
    values = asdict(head) | {"stage": head.measure[1].value.hook}
    return {name: value for name, value in values.items() if name != "measure"}


def _heads_as_csv(answer: dict[str, Any]) -> str:
    """One line a model, measure, stage and head: f of the four prompts, both effects, I, with intervals."""
    rows = [{"model": model["model"]} | row for model in answer["models"] for row in model["heads"]]
    return Table.of(rows[0], (tuple(row.values()) for row in rows)).csv()
