"""`shapley PATH --task TASK`: each kernel necessary, sufficient, and its share of the whole effect."""

from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.flags import add_file, add_model, open_model, positive
from mta_viz.cli.output import ProgressLine
from mta_viz.errors import MtaVizError

HELP = "what each kernel is worth to a task: alone out, alone kept, over sampled orders"
TASKS, LENGTH = ("needle", "blocks"), 160


def add_flags(parser: ArgumentParser) -> None:
    """A model, a task, what is made of a kernel, and how long to sample."""
    add = parser.add_argument
    add_model(parser)
    add("--task", choices=TASKS, required=True, help="what to measure it at")
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
    about = "also keep the answer; as shapley.json beside the weights the app shows it"
    add_file(parser, "--out", about, out_is="answer")


def run(arguments: Namespace) -> dict[str, Any]:
    """Sample orders until the largest standard error is at most 5 % of the whole effect."""
    from mta_viz.analysis.cause.shapley import kernel_ids, shapley_values
    from mta_viz.analysis.cause.shapley_file import SAMPLES, TaskShapley
    from mta_viz.analysis.labs.task_samples import task_batches
    from mta_viz.checkpoint.locate import sha256

    model, edit, seed = open_model(arguments), arguments.edit, arguments.seed
    if not kernel_ids(model, edit):
        raise MtaVizError("this checkpoint has no kernels: there is no effect to share out")
    samples = arguments.samples or SAMPLES[arguments.task]
    length = min(arguments.length, model.config.n_ctx)
    setting, batches = task_batches(model, arguments.task, samples, seed, length)
    with ProgressLine("measuring") as progress:
        shared = shapley_values(model, batches, edit, seed=seed, most=arguments.most, progress=progress)
    digest = sha256(model.folder or arguments.path)
    return TaskShapley(digest, arguments.task, setting, seed, shared).as_data()
