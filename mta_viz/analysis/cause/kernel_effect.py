"""What one kernel does on this prompt: to its head's maps, to the needle, to the next token.

Everything is a comparison with the same model whose kernel is the identity. Owns the comparison;
`model.editing` makes the other model, `analysis.effects` has effects measured on a task.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.changes import EMPTY_ROW, Change, head_statistics
from mta_viz.analysis.attention.spans import Span, check_span, share_and_mass
from mta_viz.analysis.cause.answers import past_white_space
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.model.editing import edited
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import last_logits
from mta_viz.run.tracing import Trace


@dataclass(frozen=True)
class SpanGain:
    """Share of one query's final weights on a span, `with_kernel` and with it at identity.

    share = sum over the span of |P| / sum of |P| over the keys <= query.
    """

    span: Span
    query: int
    with_kernel: float
    without: float

    @property
    def gain(self) -> float:
        """What the kernel adds to the share, -1..1 (the counterfactual needle gain)."""
        return self.with_kernel - self.without


@dataclass(frozen=True)
class AnswerEffect:
    """The model's own most probable next token at the last position, and what it becomes.

    Where that is white space, the token after it: `after` are the ids of the white space, read first.
    `log_probability` and `without` are the token's, in nats, by the model and with the kernel at identity,
    run through all layers above. `token_without`: the most probable token then.
    """

    token: int
    log_probability: float
    without: float
    token_without: int
    after: tuple[int, ...] = ()

    @property
    def change(self) -> float:
        """What setting the kernel to identity adds to the token's log-probability."""
        return self.without - self.log_probability


@dataclass(frozen=True)
class KernelEffect:
    """One kernel on one prompt. `change`: its own step on its head's map (see `Change`).

    `mass_moved` 0..1: the mean over queries of half the sum of |w - w'|, w and w' the head's final
    weights with the kernel and with it at identity, the layer's input the same, each row divided by
    its sum of sizes; NaN without rows. `rows_left_out`: rows where either sum is below 1e-8.
    """

    kernel: KernelId
    change: Change
    mass_moved: float
    rows_left_out: int
    gain: SpanGain | None
    answer: AnswerEffect


def kernel_effect(
    trace: Trace, kernel: KernelId, span: Span | None = None, query: int | None = None
) -> KernelEffect:
    """Measure one kernel, a target's row of head mixing included; about two runs of the prompt.

    `span` asks for its gain at `query` (default: the last token). Raises ConfigError for a kernel
    the model does not have, PromptError for a span the query does not see.
    """
    query = len(trace.tokens) - 1 if query is None else query
    if span is not None:
        check_span(span, query)
    model = edited(trace.model, (without(kernel),))
    other = replace(trace, model=model)  # the same layer inputs, so only this layer differs
    changes = head_statistics(trace, kernel.layer, kernel.head).changes
    change = next(change for change in changes if change.after is MADE_BY[kernel.where])
    gain = None if span is None else _span_gain(trace, other, kernel, span, query)
    answer = _answer_effect(past_white_space(trace), model, kernel.layer, len(trace.tokens))
    return KernelEffect(kernel, change, *_mass_moved(trace, other, kernel), gain, answer)


def moved_mass(
    before: Float[Tensor, "query key"], after: Float[Tensor, "query key"]
) -> Float[Tensor, " query"]:
    """Half the sum of |w - w'| of each row, 0..1; NaN where a row's sizes sum to less than 1e-8."""
    sizes = [part.abs().sum(-1, keepdim=True) for part in (before, after)]
    moved = (before / sizes[0] - after / sizes[1]).abs().sum(-1) / 2
    return moved.masked_fill(~(torch.minimum(*sizes)[:, 0] >= EMPTY_ROW), torch.nan)


def _mass_moved(trace: Trace, other: Trace, kernel: KernelId) -> tuple[float, int]:
    slabs = (run.slabs(kernel.layer, Stage.PATTERN) for run in (trace, other))
    rows = [
        moved_mass(with_kernel[kernel.head].cpu().double(), without[kernel.head].cpu().double())
        for (_, with_kernel), (_, without) in zip(*slabs, strict=True)
    ]
    moved = torch.cat(rows)
    return float(moved.nanmean()), int(moved.isnan().sum())


def _span_gain(trace: Trace, other: Trace, kernel: KernelId, span: Span, query: int) -> SpanGain:
    shares = []
    for run in (trace, other):
        row = run.map(kernel.layer, Stage.PATTERN, kernel.head, queries=slice(query, query + 1))
        share, _ = share_and_mass(row[:, : query + 1], span)
        shares.append(float(share))
    return SpanGain(span, query, *shares)


def _answer_effect(trace: Trace, other: HookedMTA, layer: int, n_prompt: int) -> AnswerEffect:
    original = trace.logits(slice(-1, None))[0].log_softmax(-1)
    resid = trace.residuals[layer][None].to(other.dtype)
    changed = last_logits(other, resid, layer, 1)[0, 0].log_softmax(-1)
    token, after = int(original.argmax()), trace.tokens.ids[n_prompt:]
    return AnswerEffect(token, float(original[token]), float(changed[token]), int(changed.argmax()), after)
