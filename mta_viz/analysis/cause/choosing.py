"""Which kernel, and which words, a prompt's story is about; and a span's rivals in a row.

Owns the choice: by what is measured beside the weights, by gain at a span, by direct effect.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.spans import Span, task_of_prompt
from mta_viz.analysis.cause.answers import AnswerMeter
from mta_viz.analysis.cause.direct_effect import layer_effect
from mta_viz.analysis.cause.effects import Effects, find_effects
from mta_viz.analysis.kernels.kernels import KEY_QUERY, KernelId
from mta_viz.analysis.labs.finder import Finder
from mta_viz.config import Where
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
    """The kernel after which the span's share has risen most; None in a model without kernels."""
    gains = kernel_gains(finder)
    return max(gains, key=gains.__getitem__, default=None)


def kernel_gains(finder: Finder) -> dict[KernelId, float]:
    """What each key-query kernel adds to the span's share, where that is a number."""
    gains: dict[KernelId, float] = {}
    for where, (before, after) in AROUND.items():
        rise = finder.share(after) - finder.share(before)
        places = rise.isfinite().nonzero().tolist()
        gains |= {KernelId(layer, head, where): float(rise[layer, head]) for layer, head in places}
    return gains


def answer_span(meter: AnswerMeter) -> Span:
    """The keys of the softmax cell that adds most to the answer's logit directly.

    With it its neighbours that the head's row gives at least half as much.
    """
    trace, answer = meter.run, meter.answer
    last, at = len(meter.trace.tokens) - 1, len(meter.trace.tokens) - 1 + answer.place
    best, where = -math.inf, (0, 0, 0)
    for layer in range(trace.model.config.n_layers):
        added = layer_effect(trace, layer, at, answer.ids[answer.place]).values.sum(1)[:, : last + 1]
        if float(added.max()) > best:
            best, where = float(added.max()), (layer, *divmod(int(added.argmax()), added.shape[1]))
    layer, head, key = where
    stage = linear_from(trace.model.config.kernels(layer))
    row = meter.trace.map(layer, stage, head, slice(last, last + 1))[0, : last + 1].abs()
    start = stop = key
    while start > 0 and row[start - 1] >= HALF * row[key]:
        start -= 1
    while stop < last and row[stop + 1] >= HALF * row[key]:
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
