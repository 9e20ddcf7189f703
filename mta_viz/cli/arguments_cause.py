"""Flags of the commands that ask what an answer rests on."""

from argparse import ArgumentParser
from pathlib import Path

from mta_viz.cli.flags import Commands, add_answer, add_model, add_output, add_prompt, positive, span_list


def add_effects(commands: Commands) -> None:
    """The flags of `effects`."""
    effects = commands.add_parser("effects", help="what a task loses without each kernel")
    add_model(effects, dtype="float32")
    effects.add_argument("--task", choices=("needle", "blocks"), required=True, help="what to measure it at")
    effects.add_argument("--samples", type=positive, metavar="N", help="needle: 120; blocks: 500")
    effects.add_argument("--heads", action="store_true", help="measure every head switched off as well")
    effects.add_argument("--seed", type=int, default=0, metavar="S", help="of the samples (default 0)")
    effects.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="default: effects.json beside the weights (the app reads it)",
    )
    effects.add_argument("--force", action="store_true", help="overwrite a file of another measurement")


def add_ablate(commands: Commands) -> None:
    """The flags of `ablate`."""
    ablate = commands.add_parser("ablate", help="what changed kernels and heads do to a prompt's answer")
    add_model(ablate)
    add_prompt(ablate)
    ablate.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar='"L3 H5 pre"',
        help="to the identity; pre, post, head_pre or head_post; may be repeated",
    )
    ablate.add_argument(
        "--head", action="append", default=[], metavar='"L3 H5"', help="switched off; may be repeated"
    )
    ablate.add_argument(
        "--plan", type=Path, metavar="FILE", help="a JSON list of interventions, acting first"
    )
    add_answer(ablate)
    ablate.add_argument("--sweep", action="store_true", help="also each kernel, mixing row and head alone")
    ablate.add_argument("--needed", action="store_true", help="also the smallest set of kernels it needs")
    add_output(ablate)


def add_attribute(commands: Commands) -> None:
    """The flags of `attribute`."""
    attribute = commands.add_parser("attribute", help="what the answer after a prompt rests on")
    _add_question(attribute)
    attribute.add_argument("--method", choices=("gradients", "ablation"), default="gradients")
    attribute.add_argument("--baseline", metavar="B", help="zero, mean (default), bos or a token's id")
    attribute.add_argument("--spans", type=span_list, metavar="3:8,20:25", help="positions ablated together")
    attribute.add_argument("--layer", type=int, metavar="L", help="of this layer's maps, not of the tokens")
    attribute.add_argument("--stage", metavar="NAME", help="for example hook_scores_kq")
    attribute.add_argument(
        "--heads", action="store_true", help="of every head's map at --stage: gradients and ablation"
    )
    attribute.add_argument(
        "--seconds", type=positive, default=300, metavar="S", help="most time for gradients (default 300)"
    )
    add_output(attribute)


def add_compare(commands: Commands) -> None:
    """The flags of `compare`."""
    compare = commands.add_parser("compare", help="two models, two prompts, or with and without edits")
    add_model(compare)
    compare.add_argument(
        "other",
        type=Path,
        nargs="?",
        metavar="B",
        help="a second checkpoint; without B, --prompt-b and --plan: PATH with its kernels at the identity",
    )
    add_prompt(compare)
    compare.add_argument("--prompt-b", metavar="TEXT", help="another prompt for the same model")
    compare.add_argument(
        "--plan", type=Path, metavar="FILE", help="a JSON list of interventions that make B of the model"
    )
    add_answer(compare)
    compare.add_argument(
        "--pair-by",
        choices=("index", "similarity", "needle"),
        help="which heads are compared (default: by index where the models are related, else by their maps)",
    )
    add_output(compare)


def add_responsibility(commands: Commands) -> None:
    """The flags of `responsibility`."""
    command = commands.add_parser("responsibility", help="the softmax cells an answer's logit rests on")
    _add_question(command)
    command.add_argument(
        "--answer-token", type=int, default=0, metavar="N", help="which token of the answer (default 0)"
    )
    command.add_argument("--layer", type=int, metavar="L", help="also this layer's cells")
    add_output(command)


def _add_question(command: ArgumentParser) -> None:
    """A model, a prompt, the answer and where it stands."""
    add_model(command)
    add_prompt(command)
    add_answer(command)
    command.add_argument("--position", type=int, metavar="N", help="its last token (default: the prompt's)")
