"""`shapley PATH --task TASK`: each kernel necessary, sufficient, and its share of the whole effect."""

from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.effects import task_samples
from mta_viz.cli.flags import add_file, add_model, open_model, positive
from mta_viz.cli.output import ProgressLine
from mta_viz.errors import MtaVizError

HELP = "what each kernel is worth to a task: alone removed, alone kept, over all orders"
SAMPLES = {"needle": 16, "blocks": 64}
LENGTH = 160


def add_flags(parser: ArgumentParser) -> None:
    """A model, a task, what is made of a kernel, and how long to sample."""
    add = parser.add_argument
    add_model(parser)
    add("--task", choices=tuple(SAMPLES), required=True, help="what to measure it at")
    add(
        "--edit",
        choices=("own-tap", "identity", "zero"),
        default="own-tap",
        help="what a kernel taken out becomes: own-tap (default): its gain and sign stay; identity; zero",
    )
    add("--samples", type=positive, metavar="N", help="needle: 16; blocks: 64")
    add("--length", type=positive, default=LENGTH, metavar="T", help=f"tokens a needle prompt ({LENGTH})")
    add("--most", type=positive, default=400, metavar="N", help="pairs of orders at most (default 400)")
    add("--seed", type=int, default=0, metavar="S", help="of the samples and orders (default 0)")
    add_file(parser, "--out", "also keep the answer in a file", out_is="answer")


def run(arguments: Namespace) -> dict[str, Any]:
    """Sample orders until the largest standard error is at most 5 % of the whole effect."""
    from mta_viz.analysis.cause.shapley import kernel_ids, shapley_values

    model = open_model(arguments)
    if not kernel_ids(model, arguments.edit):
        raise MtaVizError("this checkpoint has no kernels: there is no effect to share out")
    samples = arguments.samples or SAMPLES[arguments.task]
    length = min(arguments.length, model.config.n_ctx)
    setting, batches = task_samples(model, arguments, samples, length)
    with ProgressLine("measuring") as progress:
        shared = shapley_values(
            model, batches, arguments.edit, seed=arguments.seed, most=arguments.most, progress=progress
        )
    return {"task": arguments.task, "setting": setting, "seed": arguments.seed} | shared.as_data()
