"""Which kernel, and which words, a prompt's story is about; and a span's rivals in a row.

Owns the choice: by what is measured beside the weights, by gain at a span, by direct effect; of a model
without kernels by what the answer loses without a head.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.spans import Span, task_of_prompt
from mta_viz.analysis.cause.answers import AnswerMeter, Standing
from mta_viz.analysis.cause.direct_effect import DirectEffect, layer_effect
from mta_viz.analysis.cause.effects import Effects, find_effects
from mta_viz.analysis.kernels.kernels import KEY_QUERY, KernelId
from mta_viz.analysis.labs.finder import Finder
from mta_viz.config import Head, Where
from mta_viz.model.interventions import AblateHead
from mta_viz.model.plans import Edit
from mta_viz.model.stages import Stage, linear_from
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace
from mta_viz.tokenizers.base import Tokens, split_characters

HALF = 0.5  # of the largest weight: neighbours with as much belong to a span that is found
AROUND: Mapping[Where, tuple[Stage, Stage]] = {
    "pre": (Stage.RAW, Stage.KQ),
    "post": (Stage.SOFTMAX, Stage.SOFTMAX_KQ),
}
TRIED = 8  # heads that are switched off, one at a time
REST = 0.5  # of the row: a head that gives as much to the first token, or to it and itself, shows little else
EDITS: tuple[Edit, ...] = ("own-tap", "identity")  # the story takes a kernel to its own tap


def measured_kernel(model: HookedMTA, tokens: Tokens) -> KernelId | None:
    """The kernel whose shape costs most, by the file beside the weights that is of the prompt's task.

    At the own tap only where that is measured, else at the identity; None without a file of these weights.
    """
    if model.plan:  # an edited model has other kernels than the file
        return None
    for edit in EDITS:
        effects = find_effects(model.path, edit)
        if isinstance(effects, Effects) and effects.task == task_of_prompt(tokens):
            harmful = [kernel for kernel in effects.of_each() if kernel.where in KEY_QUERY]
            if harmful:
                return harmful[0]
    return None


def kernel_of_most_gain(finder: Finder) -> KernelId | None:
    """The kernel after which the span's share has risen most; None in a model without kernels.

    Where none adds anything, as kernels that were just inserted, that of the head that gives the span most.
    """
    gains = kernel_gains(finder)

    def worth(kernel: KernelId) -> tuple[float, float]:
        after = finder.share(AROUND[kernel.where][1])[kernel.layer, kernel.head]
        return round(gains[kernel], 6), float(after)

    return max(gains, key=worth, default=None)


def kernel_gains(finder: Finder) -> dict[KernelId, float]:
    """What each key-query kernel adds to the span's share, where that is a number."""
    gains: dict[KernelId, float] = {}
    for where, (before, after) in AROUND.items():
        rise = finder.share(after) - finder.share(before)
        places = rise.isfinite().nonzero().tolist()
        gains |= {KernelId(layer, head, where): float(rise[layer, head]) for layer, head in places}
    return gains


@dataclass(frozen=True)
class HeadChoice:
    """The head without which the answer loses most, of `tried`, and how the answer stands `without` it.

    Tried are the heads that add most to the answer's logit directly, of those that give other tokens than the
    first and the last at least half of the last row, where there are any. `first`: what this head gives the
    first, 0..1; `resting`: how many of all `heads` give it half and more.
    """

    place: Head
    without: Standing
    first: float
    resting: int
    heads: int
    tried: int


def head_of_most_loss(meter: AnswerMeter) -> HeadChoice:
    """Heads are switched off one at a time, others stay. Raises as `layer_effect` does."""
    trace = meter.trace
    rows = _last_rows(trace)
    added = torch.stack([_added(meter, layer).heads for layer in range(len(rows))])
    own = max(rows.shape[2] - 1, 2)  # of two tokens the last is the only other
    rests = rows[:, :, 0] + rows[:, :, own:].sum(-1) >= REST
    open_ones = added if bool(rests.all()) else added.masked_fill(rests, -math.inf)
    order = [divmod(at, rows.shape[1]) for at in open_ones.flatten().argsort(descending=True).tolist()]
    tried = [place for place in order[:TRIED] if open_ones[place] > -math.inf]
    stands = {place: meter.standing((AblateHead(*place),)) for place in tried}
    best = min(tried, key=lambda place: (math.isnan(odds := stands[place].log_odds), odds))
    counts = int((rows[:, :, 0] >= REST).sum()), rests.numel(), len(tried)
    return HeadChoice(best, stands[best], float(rows[*best, 0]), *counts)


def _last_rows(trace: Trace) -> Float[Tensor, "layer head key"]:
    """What every head gives each key in the last row: shares, the first token's where a row is no number."""
    rows = torch.stack(
        [
            trace.maps(layer, Stage.PATTERN, slice(-1, None))[:, 0].abs().cpu()
            for layer in range(trace.model.config.n_layers)
        ]
    )
    shares = rows / rows.sum(-1, keepdim=True)
    return torch.where(shares.isfinite(), shares, torch.eye(1, rows.shape[-1])[0])


def head_of_most_weight(trace: Trace, asked: Span | None) -> Head:
    """The head whose last row gives `asked` most; without one, a single token between the first and the last.

    It takes no answer, and no second run.
    """
    rows, last = _last_rows(trace), len(trace.tokens) - 1
    start, stop = (asked.start, asked.stop) if asked else (min(1, last), max(last, min(1, last) + 1))
    given = rows[:, :, start:stop]
    most = (given.sum(-1) if asked else given.amax(-1)).flatten().argmax()
    return divmod(int(most), rows.shape[1])


def _added(meter: AnswerMeter, layer: int) -> DirectEffect:
    """What a layer adds to the logit of the token that carries the answer."""
    answer = meter.answer
    return layer_effect(
        meter.run, layer, len(meter.trace.tokens) - 1 + answer.place, answer.ids[answer.place]
    )


def answer_span(meter: AnswerMeter, place: Head | None = None) -> Span:
    """The keys of the softmax cell that adds most to the answer's logit directly.

    With it its neighbours that the head's row gives at least half as much. Where one is given, of the head at
    `place` alone, and not of the first token, nor of the last where there are others.
    """
    trace, last = meter.trace, len(meter.trace.tokens) - 1
    best, where = -math.inf, (0, 0, 0)
    for layer in range(trace.model.config.n_layers) if place is None else (place[0],):
        added = _added(meter, layer).values.sum(1)[:, : last + 1]
        if place is not None:
            added[:, 0] = -math.inf
            added[:, max(last, 2) :] = -math.inf
            added[torch.arange(len(added)) != place[1]] = -math.inf
        if float(added.max()) > best:
            best, where = float(added.max()), (layer, *divmod(int(added.argmax()), added.shape[1]))
    layer, head, key = where
    stage = linear_from(trace.model.config.kernels(layer))
    row = meter.trace.map(layer, stage, head, slice(last, last + 1))[0, : last + 1].abs()
    start = stop = key
    while start > (place is not None) and row[start - 1] >= HALF * row[key]:
        start -= 1
    while stop < last - (place is not None) and row[stop + 1] >= HALF * row[key]:
        stop += 1
    if (start, stop) == (0, last):  # an even row: nothing would be left to compare with
        start = stop = key
    pieces = trace.tokens.pieces
    name = "".join(pieces[start : stop + 1])
    if start == stop:  # of a character that is cut: which part of it
        name = split_characters(pieces).get(start, name)
    return Span(name, "A", start, stop + 1)


def other_places(trace: Trace, place: tuple[int, int], stage: Stage, span: Span) -> Float[Tensor, " start"]:
    """Shares of every other place of the span's length in the last row, NaN where it touches the span."""
    last, length = len(trace.tokens) - 1, span.stop - span.start
    layer, head = place
    row = trace.map(layer, stage, head, slice(last, last + 1))[0, : last + 1].double().cpu()
    weights = row.softmax(0) if stage.value.unit == "score" else row.abs() / row.abs().sum()
    shares = weights.unfold(0, min(length, last + 1), 1).sum(-1)
    starts = torch.arange(len(shares))
    return shares.masked_fill((starts < span.stop) & (starts + length > span.start), torch.nan)


def largest(shares: Float[Tensor, " start"]) -> float:
    """The largest; 0 where there is none."""
    return float(shares[shares.isfinite()].max()) if bool(shares.isfinite().any()) else 0.0
