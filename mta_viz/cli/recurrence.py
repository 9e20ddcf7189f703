"""`recurrence PATH [OTHER ...]`: which named kernels come again in other trainings, and over the steps."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.cli.flags import PATH
from mta_viz.cli.output import note
from mta_viz.errors import MtaVizError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from mta_viz.checkpoint.types import Checkpoint
    from mta_viz.config import ModelConfig

HELP = "which named kernels come again in other trainings, and since which step they have their names"


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH)
    about = "checkpoints of other trainings, or safetensors files of their kernels"
    parser.add_argument("others", type=Path, nargs="*", metavar="OTHER", help=about)


def run(arguments: Namespace) -> dict[str, Any]:
    """One entry for each other training, and one for the steps of the first."""
    from mta_viz.analysis.cause.effects import kernels_that_matter
    from mta_viz.analysis.kernels.recurrence import lasting_names, lasting_table, recurrence
    from mta_viz.checkpoint.files import beside
    from mta_viz.checkpoint.history import read_history
    from mta_viz.checkpoint.reading import read_checkpoint

    first = read_checkpoint(arguments.path)
    _check_some(first.config, arguments.path)
    answer: dict[str, Any] = {"others": []}
    also = kernels_that_matter(first.source.path)
    for path in arguments.others:
        other = _kernels(path, first.config)
        _check_some(other[1], path)
        _check_another(first, other[0], path)
        compared = recurrence((first.state_dict, first.config), other, also)
        summary = {
            "named": compared.n_named,
            "same": compared.same,
            "expected": compared.expected,
            "p": compared.p,
        }
        answer["others"].append({"other": str(path), **summary, "kernels": compared.table().records()})
    history = read_history(beside(first.source.path), first.config)
    if history is None:
        note("the checkpoint holds no kernels of earlier steps")
    else:
        answer["steps"] = lasting_table(lasting_names(history, first.config)).records()
    return answer


def _check_some(config: "ModelConfig", path: Path) -> None:
    """Raises MtaVizError for a model without key-query kernels."""
    from mta_viz.analysis.kernels.kernels import KEY_QUERY, layers_having

    if not any(layers_having(config, where) for where in KEY_QUERY):
        raise MtaVizError(f"{path} has no key-query kernels, so none can come again")


def _check_another(first: "Checkpoint", kernels: "Mapping[str, Tensor]", path: Path) -> None:
    """Raises MtaVizError for the first one's own kernels: matched with themselves all names come again."""
    import torch

    from mta_viz.checkpoint.history import kernel_entries

    own, names = first.state_dict, kernel_entries(first.config)
    if names and all(name in kernels and torch.equal(own[name], kernels[name]) for name in names):
        raise MtaVizError(
            f"{path} holds the same kernels as {first.source.path}: matched with itself every name comes "
            "again, which says nothing; give another training"
        )


def _kernels(path: Path, config: "ModelConfig") -> "tuple[Mapping[str, Tensor], ModelConfig]":
    """A checkpoint's kernels, or those of a file that holds kernels alone, of the first's configuration."""
    from mta_viz.checkpoint.adapter import is_adapter
    from mta_viz.checkpoint.history import read_kernels
    from mta_viz.checkpoint.reading import read_checkpoint

    if path.suffix == ".safetensors" and not is_adapter(path):
        return read_kernels(path, config), config
    other = read_checkpoint(path)
    return other.state_dict, other.config
