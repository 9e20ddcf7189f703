"""Batches and parts of a run: layers from one on, answers' log-probabilities, the check of a trace.

What lies below an edit is computed once. An answer's log-probability is a function of what went in, token
ids, embeddings or one layer's maps, for captum to ask. Owns too by how much what was inserted into a model
changed its logits, and the adapter that holds it. Prompts and generation are `tracing.py`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.checkpoint.adapter import AdapterAbout, write_adapter
from mta_viz.checkpoint.relatives import base_of
from mta_viz.errors import MtaVizError
from mta_viz.model.hooking import weights_of
from mta_viz.model.ops import Maps, Resid, weighted_values
from mta_viz.model.stages import Stage, linear_from
from mta_viz.model.transformer import Block, HookedMTA
from mta_viz.run.devices import in_turns, set_threads
from mta_viz.run.files import check_as_read
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import as_batch, check_length, score


def embedded(model: HookedMTA, ids: Int[Tensor, "batch position"]) -> Resid:
    """The residual stream entering layer 0, on the model's device."""
    check_length(model, ids.shape[1])
    with model.lock, torch.no_grad():
        return model.embed(ids.to(model.device))


def after_layer(model: HookedMTA, resid: Resid, layer: int) -> Resid:
    """The residual stream leaving `layer`, from the one entering it."""
    with in_turns(model, resid.shape[1], len(resid)), torch.no_grad():
        return model.blocks[layer](resid)


class Below:
    """Residual streams of batches entering a layer; layers below are run once while it goes upwards.

    A pickle begins anew.
    """

    def __init__(self, model: HookedMTA, ids: Sequence[Int[Tensor, "_ position"]]) -> None:
        self.model, self.ids = model, ids
        self._layer, self._residuals = 0, list[Tensor]()

    def entering(self, layer: int) -> list[Tensor]:
        """Of each batch."""
        if not self._residuals or self._layer > layer:
            self._layer, self._residuals = 0, [embedded(self.model, batch) for batch in self.ids]
        for below in range(self._layer, layer):
            self._residuals = [after_layer(self.model, resid, below) for resid in self._residuals]
        self._layer = layer
        return self._residuals

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_layer": 0, "_residuals": []}


def last_logits(model: HookedMTA, resid: Resid, layer: int, n_last: int) -> Float[Tensor, "batch last vocab"]:
    """Logits of the last `n_last` positions, from the residual stream entering `layer`, float32."""
    for above in range(layer, model.config.n_layers):
        resid = after_layer(model, resid, above)
    with model.lock, torch.no_grad():
        return model.logits(resid[:, -n_last:]).float()


def end_logits_from(
    model: HookedMTA, resid: Resid, layer: int, n_last: int
) -> Float[Tensor, "batch last vocab"]:
    """`last_logits` in the least time; `layer` is one of the model's.

    Of the last layer only these positions' rows are computed, since no other reaches the logits;
    the last bits may differ from a whole pass.
    """
    for below in range(layer, model.config.n_layers - 1):
        resid = after_layer(model, resid, below)
    with model.lock, torch.no_grad():
        set_threads(model.config, resid.shape[1], batch=resid.shape[0])
        return model.logits(model.blocks[-1].last_rows(resid, n_last)).float()


def end_logits(
    model: HookedMTA, ids: Int[Tensor, "batch position"], n_last: int
) -> Float[Tensor, "batch last vocab"]:
    """`end_logits_from` of whole prompts."""
    return end_logits_from(model, embedded(model, ids), 0, n_last)


OfIds = Callable[[Int[Tensor, "batch position"]], Float[Tensor, " batch"]]
OfEmbeddings = Callable[[Resid], Float[Tensor, " batch"]]
OfMaps = Callable[[Maps], Float[Tensor, " batch"]]


@dataclass(frozen=True)
class Question:
    """How probable is `answer` after `prompt`, both ids? log p sums over its tokens, each after the last."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def before(self) -> tuple[int, ...]:
        """The answer's tokens that are read; the last one is only predicted."""
        return self.answer[:-1]


def of_ids(model: HookedMTA, question: Question) -> OfIds:
    """log p(answer) as a function of the prompt's ids."""
    of = of_embeddings(model, question)
    return lambda ids: of(model.embed(ids.to(model.device)))


def of_embeddings(model: HookedMTA, question: Question) -> OfEmbeddings:
    """log p(answer), nats, as a function of the prompt's embeddings."""

    def score(embeddings: Resid) -> Float[Tensor, " batch"]:
        with in_turns(model, embeddings.shape[1], len(embeddings)):
            read = as_batch(model, question.before).expand(len(embeddings), -1)
            resid = torch.cat([embeddings.to(model.dtype), model.embed(read)], dim=1)
            return _finish(model, list(model.blocks), resid, question)

    return score


def of_maps(trace: Trace, layer: int, stage: Stage, question: Question) -> OfMaps:
    """log p(answer) as a function of one layer's maps at one stage, which take the place of its own.

    `trace` is of the prompt with `question.before` after it: what enters the layer is kept as it was.
    """
    model, name = trace.model, f"blocks.{layer}.attn.{stage.value.hook}"

    def score(maps: Maps) -> Float[Tensor, " batch"]:
        own, *above = list(model.blocks)[layer:]
        resid = trace.residuals[layer].to(model.dtype).expand(len(maps), -1, -1)
        with model.lock, model.hooks(fwd_hooks=[(name, lambda computed, hook: maps.to(computed))]):
            set_threads(model.config, resid.shape[1], batch=len(resid))
            resid = own(resid)
        with in_turns(model, resid.shape[1], len(resid)):
            return _finish(model, above, resid, question)

    return score


Added = Mapping[str, Float[Tensor, "batch ..."]]


def with_added(trace: Trace, layer: int, added: Added, answer: Sequence[int]) -> Float[Tensor, " batch"]:
    """log p(answer), nats, when activations at hook points get something added; layers from `layer` on run.

    `added` has one value a variant along the first axis, all of them for the trace's own input of the
    layer. The trace is of the prompt with all of the answer but its last token after it.
    """
    model, n_last = trace.model, len(answer)
    batch = len(next(iter(added.values())))
    hooks: list[Any] = [(name, partial(_plus, more)) for name, more in added.items()]
    resid = trace.residuals[layer].to(model.device, model.dtype).expand(batch, -1, -1)
    for block in list(model.blocks)[layer:]:  # they may be in any: others may run between two layers
        with model.lock, torch.no_grad(), model.hooks(fwd_hooks=hooks):
            set_threads(model.config, resid.shape[1], batch=batch)
            resid = block(resid)
    with model.lock, torch.no_grad():
        logits = model.logits(resid[:, -n_last:]).double().log_softmax(-1)
    wanted = as_batch(model, answer)[..., None].expand(batch, -1, 1)
    return logits.gather(-1, wanted).sum((-2, -1)).cpu()


def _plus(more: Tensor, own: Tensor, hook: object) -> Tensor:
    return own + more.to(own)


def attention_output(model: HookedMTA, trace: Trace, layer: int) -> Float[Tensor, "position d_model"]:
    """What `model`'s attention of a layer adds to the residual stream that enters it in `trace`."""
    with model.lock, torch.no_grad():
        block = model.blocks[layer]
        added = block.attn(block.ln1(trace.residuals[layer][None].to(model.dtype)))
        return added[0].float().to(model.device)


@dataclass(frozen=True)
class Rerun:
    """At one position of a run: what a layer's attention adds, and what leaves the last layer."""

    added: Float[Tensor, " d_model"]
    leaving: Float[Tensor, " d_model"]


def without_cell(trace: Trace, layer: int, cell: tuple[int, int, int] | None, position: int) -> Rerun:
    """The run again from `layer` on, with the softmax weight at `cell` (head, query, key) set to 0.

    The row is not renormalised; what follows the cell is computed anew, norms and gates too. None: the run
    as it was, by the same steps. Float32, at `position`.
    """
    model, name, added = trace.model, f"blocks.{layer}", list[Tensor]()
    last = position - len(trace.tokens)  # from the end: the last layer may have computed the end alone

    def zero(maps: Maps, hook: object) -> Maps:
        maps = maps.clone()
        if cell is not None:
            maps[:, cell[0], cell[1], cell[2]] = 0.0
        return maps

    def keep(output: Resid, hook: object) -> None:
        added.append(output[0, last].float())

    cut = linear_from(model.config.kernels(layer)).hook_name(layer)
    hooks: list[Any] = [(cut, zero), (f"{name}.hook_attn_out", keep)]
    own, *above = list(model.blocks)[layer:]
    resid, n_last = trace.residuals[layer][None].to(model.device, model.dtype), -last
    with model.lock, torch.no_grad(), model.hooks(fwd_hooks=hooks):
        set_threads(model.config, resid.shape[1])
        resid = own(resid) if above else own.last_rows(resid, n_last)
    with in_turns(model, resid.shape[1]), torch.no_grad():
        for block in above[:-1]:
            resid = block(resid)
        leaving = (above[-1].last_rows(resid, n_last) if above else resid)[0, last]
    return Rerun(added[0].to(model.device), leaving.float().to(model.device))


def moved_inputs(
    trace: Trace, layer: int, moved: Float[Tensor, "position d_model"]
) -> dict[str, Float[Tensor, "position ..."]]:
    """How a layer's queries, keys and values (rotated; by hook name) and its MLP's output change.

    `moved` is added to the residual stream that enters the attention, or for the MLP to what enters it,
    everything else as it was in the run.
    """
    model, block = trace.model, trace.model.blocks[layer]
    with model.lock, torch.no_grad():
        entering = trace.residuals[layer][None].to(block.ln1.weight.device, model.dtype)
        qkv, other = (
            block.attn.project(block.ln1(resid)) for resid in (entering, entering + moved.to(entering))
        )
        middle = entering + block.attn(block.ln1(entering))
        mlp = block.mlp(block.ln2(middle + moved.to(middle))) - block.mlp(block.ln2(middle))
    name = f"blocks.{layer}"
    return {
        f"{name}.attn.hook_rot_q": (other.q - qkv.q)[0],
        f"{name}.attn.hook_rot_k": (other.k - qkv.k)[0],
        f"{name}.attn.hook_v": (other.v - qkv.v)[0],
        f"{name}.hook_mlp_out": mlp[0],
    }


def _finish(
    model: HookedMTA, layers: Sequence[Block], resid: Tensor, question: Question
) -> Float[Tensor, " batch"]:
    n_last = len(question.answer)
    for block in layers[:-1]:
        resid = block(resid)
    resid = layers[-1].last_rows(resid, n_last) if layers else resid[:, -n_last:]
    logits = model.logits(resid).float().log_softmax(-1)
    wanted = as_batch(model, question.answer)[..., None].expand(len(resid), -1, 1)
    return logits.gather(-1, wanted).sum((-2, -1))


@dataclass(frozen=True)
class SelfCheck:
    """Largest difference / largest value; NaN when either side holds a number that is not finite."""

    residual_error: float
    logits_error: float


LookAt = Callable[[int, Float[Tensor, "position head d"], Float[Tensor, "head position"]], None]


def self_check(trace: Trace, look: LookAt = lambda layer, z, sums: None) -> SelfCheck:
    """Recompute every layer from its final weights as `trace.slabs` gives them, then the logits.

    `residual_error` compares each layer's output with the run's; `logits_error` the trace's logits
    with those of a plain run. Costs about two forwards in slabs. `look(layer, weighted values, sums of
    queries' final weights)` sees what is computed on the way.
    """
    model = trace.model
    errors = [
        _relative_error(_after_layer(trace, layer, look), trace.residuals[layer + 1])
        for layer in range(len(model.blocks))
    ]
    plain = score(model, torch.tensor([trace.tokens.ids]))[0].float()
    return SelfCheck(float(torch.tensor(errors).max()), _relative_error(plain, trace.logits()))


def _after_layer(trace: Trace, layer: int, look: LookAt) -> Float[Tensor, "position d_model"]:
    """The residual stream after a layer, from the trace's maps of its final weights.

    Asked for in thirds of the prompt, as crops are: never the rows the run itself went by.
    """
    block, dtype, n_tokens = trace.model.blocks[layer], trace.model.dtype, len(trace.tokens)
    v = trace.project(layer).v
    third = max(n_tokens // 3, 1)
    parts = [range(start, min(start + third, n_tokens)) for start in range(0, n_tokens, third)]
    rows, sums = list[Tensor](), list[Tensor]()
    for slab in (slab for part in parts for _, slab in trace.slabs(layer, Stage.PATTERN, part)):
        rows.append(weighted_values(slab[None].to(v), v[:, : slab.shape[2]]))
        sums.append(slab.sum(-1))
    z = torch.cat(rows, dim=1)
    look(layer, z[0], torch.cat(sums, dim=1))
    with trace.model.lock, torch.no_grad():
        attn_out = block.attn.output(z)
        after = block.finish(trace.residuals[layer][None].to(dtype), attn_out)
        return after[0].float().to(trace.model.device)


def _relative_error(values: Tensor, expected: Tensor) -> float:
    """Largest difference / largest value; NaN, never 0, when a number on either side is not finite."""
    if not (values.isfinite().all() and expected.isfinite().all()):
        return float("nan")
    return float((values - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


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
    """Write the adapter of what `inserted` adds to `base`. Raises as `write_adapter`, `check_as_read`."""
    if base.source is None:
        raise MtaVizError("the base came from no checkpoint, so the adapter could not say which it is")
    check_as_read(base, weights_of(base).marks)
    there = base.state_dict()
    added = {name: tensor for name, tensor in inserted.state_dict().items() if name not in there}
    about = AdapterAbout(base_of(base.source), inserted.config.mta)
    write_adapter(file, inserted.config, added, about, overwrite=overwrite)
