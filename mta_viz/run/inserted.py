"""What was inserted into a model: by how much it changed the logits, and the adapter that holds it."""

from dataclasses import dataclass
from pathlib import Path

import torch

from mta_viz.checkpoint.adapter import AdapterAbout, write_adapter
from mta_viz.checkpoint.basing import base_of
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import score

PROMPT = 32  # tokens, spread over the vocabulary


@dataclass(frozen=True)
class LogitChange:
    """The largest change of a logit on a short prompt, and the largest logit there; `why` it changed."""

    largest: float
    scale: float
    why: str


def logit_change(base: HookedMTA, inserted: HookedMTA) -> LogitChange:
    """How far `inserted` is from `base` on a prompt of token ids spread over the vocabulary."""
    ids = torch.linspace(0, base.config.vocab_size - 1, PROMPT).long()[None]
    before, after = (score(model, ids.to(model.device)).float() for model in (base, inserted))
    own, new = base.config.mta, inserted.config.mta
    causes = {
        "the group norm rescales every head's output": new.group_norm and not own.group_norm,
        "the gate begins at 0.9975": bool(new.gate) and not own.gate,
    }
    why = ", ".join(words for words, there in causes.items() if there) or "rounding"
    return LogitChange((after - before).abs().max().item(), before.abs().max().item(), why)


def write_inserted(file: Path, base: HookedMTA, inserted: HookedMTA, *, overwrite: bool = False) -> None:
    """Write the adapter of what `inserted` has and `base` lacks. Raises as `write_adapter`."""
    if base.source is None:
        raise MtaVizError("the base came from no checkpoint, so the adapter could not say which it is")
    there = base.state_dict()
    added = {name: tensor for name, tensor in inserted.state_dict().items() if name not in there}
    about = AdapterAbout(base_of(base.source), inserted.config.mta)
    write_adapter(file, inserted.config, added, about, overwrite=overwrite)
