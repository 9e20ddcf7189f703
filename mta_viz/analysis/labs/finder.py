"""Which heads find the asked part of a prompt, at every stage, and one head's maps around it.

The parts are the needles of a needle prompt, or the blocks of a block sequence. Owns no model and
no task: `sample_parts` and `block_parts` turn samples into parts. One row a layer is recomputed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention import spans as named_spans
from mta_viz.analysis.attention.changes import DifferenceMap, difference_steps, layer_steps, subtract
from mta_viz.analysis.attention.heads import SCORES, HeadScores
from mta_viz.analysis.attention.maps import AttentionMap, exact_map
from mta_viz.analysis.attention.spans import QUESTION, Span, check_span, next_letter
from mta_viz.config import KernelPlace
from mta_viz.errors import PromptError, check_index
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Progress, Trace, ignore
from mta_viz.tasks.facts import GoldSpan, NeedleSample
from mta_viz.tasks.questions import QuestionSample, RoleSpan
from mta_viz.tokenizers.base import Tokens


@dataclass(frozen=True)
class Region:
    """`asking` queries x `asked` keys, and the rows and columns shown: these with their neighbours."""

    asking: Span
    asked: Span
    queries: range
    keys: range


@dataclass(frozen=True)
class StepCrop:
    """One head's map on both sides of a convolution in a region."""

    region: Region
    before: AttentionMap
    after: AttentionMap

    @property
    def place(self) -> KernelPlace:
        """Whether the convolution is before or after the softmax."""
        return "pre" if self.after.stage is Stage.KQ else "post"

    @property
    def difference(self) -> DifferenceMap:
        """After minus before."""
        return subtract(self.after, self.before)

    @property
    def asked(self) -> tuple[AttentionMap, AttentionMap]:
        """Both maps in asking queries x asked keys alone."""
        return self._part(self.before), self._part(self.after)

    @property
    def sums(self) -> tuple[float, float]:
        """Of the asked cells before and after; cells with key > query do not count."""
        before, after = (float(_cells(side).sum()) for side in self.asked)
        return before, after

    @property
    def last(self) -> tuple[float, float]:
        """The same of the last asking query's row alone, which predicts the answer."""
        before, after = (float(_cells(side)[-1].sum()) for side in self.asked)
        return before, after

    def _part(self, side: AttentionMap) -> AttentionMap:
        asking, asked = self.region.asking, self.region.asked
        rows = slice(asking.start - side.query_start, asking.stop - side.query_start)
        columns = slice(asked.start - side.key_start, asked.stop - side.key_start)
        values = side.values[rows, columns]
        return replace(side, values=values, query_start=asking.start, key_start=asked.start, row_sums=None)


NEIGHBOURS = 6  # tokens shown around a needle, about what a kernel reaches


def region(
    asking: Span, asked: Span, n_tokens: int, *, above: int = NEIGHBOURS, beside: int = NEIGHBOURS
) -> Region:
    """With `above` rows over the asking queries and `beside` columns on both sides of the asked keys.

    Raises PromptError for a span that is not in the prompt.
    """
    outside = next((span for span in (asking, asked) if span.stop > n_tokens), None)
    if outside is not None:
        raise PromptError(f"{outside.name!r} ends at token {outside.stop}, the prompt at {n_tokens}")
    queries = range(max(asking.start - above, 0), asking.stop)
    keys = range(max(asked.start - beside, 0), min(asked.stop + beside, n_tokens))
    return Region(asking, asked, queries, keys)


def step_crops(trace: Trace, shown: Region, layer: int, head: int) -> tuple[StepCrop, ...]:
    """A crop for each key-query convolution of the layer, in order; none where it has none."""
    rows, columns = (slice(side.start, side.stop) for side in (shown.queries, shown.keys))
    return tuple(
        StepCrop(shown, *(exact_map(trace, layer, s, head, rows, columns) for s in (step.before, step.after)))
        for step in layer_steps(trace.model.config.kernels(layer))
        if step.operation == "convolution" and step.before is not None
    )


def _cells(shown: AttentionMap) -> Float[Tensor, "query key"]:
    return shown.values.double().masked_fill(shown.masked, 0.0)


@dataclass(frozen=True)
class Parts:
    """The parts of a prompt that compete, `asked` among them, and the query that should find it.

    `null`: tokens where passages begin that hold none of the parts, to compare `asked` with.
    """

    asked: Span
    all: tuple[Span, ...]
    query: int
    null: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finder:
    """Every head's attention to each part, on one prompt.

    `scores[part]` has the `span.`, `mass.` and `gain.` scores of `HeadScores`, and the selectivity
    where there are several parts. `shares` [stage, layer, head]: the asked part's share at each
    stage in the order of `Stage`, of scores the share if the softmax came there; NaN where a layer
    lacks the stage. `p` [layer, head]: rank of the asked part's final share among `n_null` passages
    of its length, (1 + those that have as much) / (1 + all): small where chance passages get less.
    """

    parts: Parts
    scores: Mapping[Span, HeadScores]
    shares: Float[Tensor, "stage layer head"]
    p: Float[Tensor, "layer head"]
    n_null: int

    @property
    def asked(self) -> HeadScores:
        """The asked part's scores."""
        return self.scores[self.parts.asked]

    def share(self, stage: Stage) -> Float[Tensor, "layer head"]:
        """The asked part's share at one stage."""
        return self.shares[list(Stage).index(stage)]


def sample_parts(sample: NeedleSample | QuestionSample) -> Parts:
    """The needles or facts of a sample, seen from its last token; letters as the workspace gives them.

    Asked is the needle that is asked for, or the last fact that supports the answer. Raises PromptError for a
    sample without one.
    """
    spans: list[Span] = []
    asked = None
    for part in _competing(sample):
        if isinstance(part, GoldSpan):
            name, sign = part.subject, " (asked)" if part.kind == "asked" else ""
        else:
            name, sign = part.text, " (support)" if part.role == "support" else ""
        spans.append(Span(name + sign, next_letter(spans), part.start, part.stop))
        if sign:
            asked = spans[-1]
    if asked is None:
        raise PromptError(
            "no span of this sample is marked as asked, so there is nothing for heads to find; mark the fact "
            'that gives the answer: {"kind": "asked", "start": ..., "stop": ...}'
        )
    return Parts(asked, tuple(spans), len(sample.tokens) - 1, sample.sentences)


def prompt_spans(sample: NeedleSample | QuestionSample, tokens: Tokens | None = None) -> tuple[Span, ...]:
    """The needles or facts, then the question, as the workspace names them.

    `tokens`: the sample's text encoded anew, which may be cut into other tokens at the joints.
    """
    question = sample.question
    spans = (*sample_parts(sample).all, Span("question", QUESTION, question.start, question.stop))
    if tokens is None or tokens.ids == sample.tokens.ids:
        return spans
    texts = [*(part.text for part in _competing(sample)), question.text]
    places = [named_spans.find(tokens, text)[-1] for text in texts]
    return tuple(replace(span, start=at.start, stop=at.stop) for span, at in zip(spans, places, strict=True))


def _competing(sample: NeedleSample | QuestionSample) -> tuple[GoldSpan | RoleSpan, ...]:
    return sample.needles if isinstance(sample, NeedleSample) else sample.facts


def needle_region(sample: NeedleSample) -> Region:
    """Question x asked needle, with a few tokens of text around."""
    *_, asking = prompt_spans(sample)
    return region(asking, sample_parts(sample).asked, len(sample.tokens))


def find(trace: Trace, parts: Parts, *, progress: Progress = ignore) -> Finder:
    """Measure every head of every layer. Raises PromptError for parts the query cannot weigh.

    `progress(share done)` is called after every layer; raise `Cancelled` in it to stop.
    """
    check_index("query", parts.query, len(trace.tokens))
    for part in parts.all:
        check_span(part, parts.query)
    n_layers, per_layer = trace.model.config.n_layers, []
    for layer in range(n_layers):
        per_layer.append(_layer(trace, layer, parts))
        progress((layer + 1) / n_layers)
    scores = {part: _stacked([results[part] for results, _ in per_layer], parts, part) for part in parts.all}
    p, values = torch.stack([ranks for _, ranks in per_layer]), scores[parts.asked].values
    nothing = torch.full_like(next(iter(values.values())), torch.nan)
    shares = [values.get(f"span.{stage.value.key}", nothing) for stage in Stage]
    shares = [
        share.sigmoid() if stage.value.unit == "score" else share
        for stage, share in zip(Stage, shares, strict=True)
    ]
    return Finder(parts, scores, torch.stack(shares), p, len(_null(parts)))


def lit_most(finder: Finder, before: Stage, after: Stage) -> tuple[int, int] | None:
    """(layer, head) where the asked part's share rises most from one stage to another; None if nowhere."""
    gain = (finder.share(after) - finder.share(before)).nan_to_num(-1.0)
    return divmod(int(gain.argmax()), gain.shape[1]) if float(gain.max()) > 0 else None


def _layer(trace: Trace, layer: int, parts: Parts) -> tuple[dict[Span, dict[str, Tensor]], Tensor]:
    """The scores of each part by key, and the asked part's rank, of a layer's heads."""
    ((_, slabs),) = trace.stage_slabs(layer, range(parts.query, parts.query + 1))
    rows = {stage: slab[:, 0, : parts.query + 1] for stage, slab in slabs.items()}
    steps = difference_steps(trace.model.config.kernels(layer))
    results = {part: named_spans.span_results(rows, part, steps) for part in parts.all}
    if len(parts.all) > 1:
        for part in parts.all:
            results[part]["selectivity"] = named_spans.selectivity(rows[Stage.PATTERN], part, parts.all)
    return results, _rank(rows[Stage.PATTERN], parts)


def _null(parts: Parts) -> list[int]:
    """Where passages of the asked part's length begin that touch no part and that the query sees."""
    length = parts.asked.stop - parts.asked.start
    return [
        start
        for start in parts.null
        if start + length <= parts.query + 1
        and all(start + length <= part.start or part.stop <= start for part in parts.all)
    ]


def _rank(row: Float[Tensor, "head key"], parts: Parts) -> Float[Tensor, " head"]:
    """(1 + passages whose |P| is at least the asked part's) / (1 + passages); NaN without passages."""
    starts = _null(parts)
    if not starts:
        return torch.full((row.shape[0],), torch.nan)
    length = parts.asked.stop - parts.asked.start
    windows = row.abs().double().unfold(1, length, 1).sum(-1).cpu()
    at_least = (windows[:, starts] >= windows[:, parts.asked.start, None]).sum(1)
    ranks = ((1 + at_least) / (1 + len(starts))).float()
    return ranks.masked_fill(windows[:, parts.asked.start].isnan(), torch.nan)


def _stacked(layers: Sequence[Mapping[str, Tensor]], parts: Parts, part: Span) -> HeadScores:
    """One part's scores of all layers; NaN where a layer lacks the stage."""
    nothing = torch.full_like(next(iter(layers[0].values())), torch.nan)
    there = [score.key for score in SCORES if any(score.key in results for results in layers)]
    values = {
        key: torch.stack([results.get(key, nothing).float().cpu() for results in layers]) for key in there
    }
    return HeadScores(parts.query, part, values, torch.zeros(len(layers), len(nothing)).long(), {})
