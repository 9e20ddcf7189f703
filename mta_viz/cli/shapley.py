"""`shapley PATH --task TASK`: each kernel necessary, sufficient, and its share of the whole effect."""

from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.effects import task_of
from mta_viz.cli.flags import add_file, add_model, add_on, add_task, open_model, refuse_length
from mta_viz.cli.output import ProgressLine
from mta_viz.cli.values import positive
from mta_viz.errors import MtaVizError

HELP = "what each kernel is worth to a task: alone out, alone kept, over sampled orders"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser)
    add_on(parser)
    add_task(parser, "blocks", required=True)
    about = "what a kernel taken out becomes: own-tap (default): its gain and sign stay; identity; zero"
    add("--edit", choices=("own-tap", "identity", "zero"), default="own-tap", help=about)
    add("--samples", type=positive, metavar="N", help="blocks: 64; else 16, or all a file has")
    add("--length", type=positive, metavar="T", help="tokens a prompt; needle: 160; pairs: 256")
    add("--most", type=positive, default=400, metavar="N", help="pairs of orders at most (default 400)")
    add("--seed", type=int, default=0, metavar="S", help="of the samples and orders (default 0)")
    about = "also keep the answer; as shapley.json beside the weights the app shows it"
    add_file(parser, "--out", about, out_is="answer")


def run(arguments: Namespace) -> dict[str, Any]:
    """Sample orders until the largest standard error is at most 5 % of the whole effect."""
    from mta_viz.analysis.cause.effects import kernel_ids
    from mta_viz.analysis.cause.shapley import shapley_values
    from mta_viz.analysis.cause.shapley_file import SAMPLES, TaskShapley
    from mta_viz.analysis.labs.task_samples import LENGTHS, task_batches
    from mta_viz.run.files import weights_digest

    refuse_length(arguments)
    model, edit, seed = open_model(arguments), arguments.edit, arguments.seed
    if not kernel_ids(model, edit):
        raise MtaVizError("this checkpoint has no kernels: there is no effect to share out")
    name = task_of(arguments)
    length = min(arguments.length or LENGTHS.get(name, 1), model.config.n_ctx)
    setting, batches = task_batches(
        model, arguments.task, arguments.samples, seed, usual=SAMPLES[name], length=length
    )
    digest = weights_digest(model)
    with ProgressLine("measuring") as progress:
        how = {"seed": seed, "most": arguments.most, "progress": progress, "on": arguments.on}
        shared = shapley_values(model, batches, edit, **how)
    return TaskShapley(digest, name, setting, seed, shared).as_data()
