"""`insert BASE --layers 2,6 --out FILE`: kernels at the identity put into a plain model."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.cli import flags, values
from mta_viz.cli.output import note
from mta_viz.config import LARGEST_KERNEL, Gate
from mta_viz.errors import MtaVizError

if TYPE_CHECKING:
    from mta_viz.model.transformer import HookedMTA

HELP = "kernels at the identity put into a plain model: an adapter to train"
MIXING = ("pre", "post", "both")
KERNEL = values.sizes(LARGEST_KERNEL, "6x11", other="none")
ENDING = ".safetensors"
GATES: dict[str, Gate] = {"head": "1d", "element": "dd"}


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=Path, metavar="BASE", help="a plain model: no kernels and no head mixing")
    look: dict[str, Any] = {"metavar": "2,6,10", "help": "with kernels, from 0; or all"}
    add("--layers", type=lambda text: None if text == "all" else values.layer_list(text), default=(), **look)
    about = "queries x keys before the softmax, or none (default 6x11)"
    add("--kernel", type=KERNEL, default=(6, 11), metavar="6x11", help=about)
    add("--post", type=KERNEL, metavar="6x11", help="the same after the softmax (default none)")
    about = "where an even number of keys lies: left reaches back, right ahead (default both: an odd number)"
    add("--pad-key", choices=("both", "left", "right"), default="both", help=about)
    about = "all heads mixed before or after the softmax, in every layer whatever --layers says"
    add("--head-mixing", choices=MIXING, help=about)
    about = "a gate a head or an element of its output, in every layer; begins at 0.9975, so logits change"
    add("--gate", choices=tuple(GATES), help=about)
    about = "a group norm of every head's output, in every layer: no identity, logits change much"
    add("--norm", action="store_true", help=about)
    about = "the adapter, which holds what was inserted (convert makes a whole checkpoint of it)"
    flags.add_file(parser, "--out", about, required=True, ending=ENDING)
    flags.add_running(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """What was inserted, by how much the logits of a short prompt changed, and what was written."""
    from mta_viz.checkpoint.types import parameter_count
    from mta_viz.run.scoring import logit_change, write_inserted

    if arguments.out.suffix != ENDING:  # by which a file of weights is opened
        raise MtaVizError(f"{arguments.out}: no command opens this name; let it end in {ENDING}")
    base = flags.open_model(arguments)
    inserted = _inserted(base, arguments)
    change = logit_change(base, inserted)
    write_inserted(arguments.out, base, inserted, overwrite=arguments.force)
    if change.largest:
        note(f"the logits changed by up to {change.largest:.3g} of {change.scale:.3g}: {change.why}")
    return {
        "options": asdict(inserted.config.mta),
        "added": parameter_count(inserted.config) - parameter_count(base.config),
        "parameters": parameter_count(inserted.config),
        "largest_logit_change": change.largest,
        "largest_logit": change.scale,
        "adapter": str(arguments.out),
    }


def _inserted(base: "HookedMTA", arguments: Namespace) -> "HookedMTA":
    from mta_viz.model.editing import insert_mta

    layers, mixing = arguments.layers, arguments.head_mixing
    return insert_mta(
        base,
        range(base.config.n_layers) if layers is None else layers,
        kernel=arguments.kernel,
        post=arguments.post,
        pad_key=arguments.pad_key,
        head_pre=mixing in ("pre", "both"),
        head_post=base.config.n_heads if mixing in ("post", "both") else None,
        group_norm=arguments.norm,
        gate=None if arguments.gate is None else GATES[arguments.gate],
    )
