"""Two runs beside each other in one call: two models, two prompts, or a model with and without edits.

The workspace, the command `compare` and a notebook get the same numbers from here. Maps are not among
them: `maps.py` makes those that are looked at.
"""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.attention.cells import top_tokens
from mta_viz.analysis.attention.spans import ASKED, QUESTION, Span, asked_span, needle_spans
from mta_viz.analysis.cause.answers import TOP, Answer, AnswerMeter, answer_after, likeliest, rerun
from mta_viz.analysis.compare import pairs as pairing
from mta_viz.analysis.compare.maps import Agreement, Spans, agreement, asked_spans, same_vocabulary
from mta_viz.analysis.compare.pairs import HeadPairs, KernelPair, Kinship, Rule
from mta_viz.analysis.labs.finder import Parts, find
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.interventions import Intervention
from mta_viz.model.plans import Plan, every_kernel
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Progress, Prompt, Trace, capture, ignore, progress_within
from mta_viz.tables import Printed, Row, Table, number
from mta_viz.tokenizers.base import Tokenizer, Tokens


@dataclass(frozen=True)
class AnswerPair:
    """Log-probability (nats) of one answer after A's prompt and after B's.

    `of`: whose answer it is, A or B. `source`: as of `Answer`.
    """

    of: str
    text: str
    source: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        """A less B, in nats."""
        return self.a - self.b


@dataclass(frozen=True)
class TokenPair:
    """A next token's probability in both runs; None in the run whose vocabulary lacks it."""

    piece: str
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """A less B; None where one run lacks the token."""
        return None if self.a is None or self.b is None else self.a - self.b


def answer_pairs(a: Trace, b: Trace, text: str | None, *, same_ids: bool) -> tuple[AnswerPair, ...]:
    """The answer to A's prompt in both runs and, where B's prompt has another, that one too.

    `text`: the answer; None as in `answer_after`. Raises PromptError for an answer that cannot be written.
    """
    own = answer_after(a, text)
    log_p = AnswerMeter(a, own).before, _other_run(b, own, a, same_ids)
    pairs = [AnswerPair("A", own.text, own.source, *log_p)]
    other = None if text else answer_after(b)
    if other is not None and other.source in ("needle", "block") and other.text != own.text:
        log_p = _other_run(a, other, b, same_ids), AnswerMeter(b, other).before
        pairs.append(AnswerPair("B", other.text, other.source, *log_p))
    return tuple(pairs)


def top_pairs(a: Trace, b: Trace, *, same_ids: bool) -> tuple[TokenPair, ...]:
    """A's five likeliest next tokens, then those of B's five that are not among them.

    Raises MtaVizError where a run's logits are NaN.
    """
    if same_ids:
        return tuple(TokenPair(piece, *p) for _, piece, *p in likeliest(a, b))
    first, second = (top_tokens(run, len(run.tokens) - 1, TOP) for run in (a, b))
    own = tuple(TokenPair(token.piece, token.probability, None) for token in first)
    return (*own, *(TokenPair(token.piece, None, token.probability) for token in second))


def _other_run(run: Trace, answer: Answer, own: Trace, same_ids: bool) -> float:
    """The log-probability of the `own` run's answer in another run, written by that one's tokenizer."""
    if same_ids:
        return AnswerMeter(run, answer).before
    text: str | None = answer.text
    if answer.source == "likeliest":  # its text is only the label of its token
        text = own.model.tokenizer.decode(answer.ids) if own.model.tokenizer else None
    if not text:
        raise MtaVizError(
            "the models write with other tokenizers, and this answer has no text; type an answer"
        )
    return AnswerMeter(run, answer_after(run, text)).before


Heads = Float[np.ndarray, "layer head"]


@dataclass(frozen=True)
class NeedleShares:
    """Share of |final weights| that each prompt's last token gives a span, for every head of A and of B.

    `difference` [layer, head of A]: A's share less its partner's, NaN without one.
    """

    spans: Spans
    a: Heads
    b: Float[np.ndarray, "other_layer other_head"]
    difference: Heads


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """Run A beside run B: what of the prompts can be compared, which heads are, and what they do.

    `needle` is None where a prompt has no needle and no span was named.
    """

    shared: Agreement
    same_ids: bool
    pairs: HeadPairs
    answers: tuple[AnswerPair, ...]
    top: tuple[TokenPair, ...]
    needle: NeedleShares | None
    kernels: tuple[KernelPair, ...]

    def _title(self) -> str:
        return f"A beside B: {self.shared.n} tokens compared, heads paired by {self.pairs.rule}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Each answer's log-probability in both runs, in nats."""
        rows: list[Row] = [
            (pair.of, pair.text, *map(number, (pair.a, pair.b, pair.difference))) for pair in self.answers
        ]
        return ("answer of", "answer", "A", "B", "A - B"), rows

    def answers_table(self) -> Table:
        """A line an answer (log-probability, nats), then one a next token (probability)."""
        answers = [("answer", pair.of, pair.text, pair.a, pair.b, pair.difference) for pair in self.answers]
        tokens = [("next token", None, pair.piece, pair.a, pair.b, pair.difference) for pair in self.top]
        return Table.of(("kind", "of", "text", "a", "b", "a_minus_b"), [*answers, *tokens])

    def shares_table(self) -> Table:
        """A line a head of A: its share, its partner in B, that one's share, the difference; or none."""
        columns = ("layer", "head", "a", "layer_b", "head_b", "b", "a_minus_b", "pair_r")
        if self.needle is None:
            return Table(columns, ())
        rows: list[Row] = []
        for place in np.ndindex(*self.needle.a.shape):
            partner, r = self.pairs.of(*place), float(self.pairs.r[place])
            beside: Row = (None,) * 4
            if partner is not None:
                beside = (*partner, float(self.needle.b[partner]), float(self.needle.difference[place]))
            rows.append((*place, float(self.needle.a[place]), *beside, None if np.isnan(r) else r))
        return Table.of(columns, rows)

    def kernels_table(self) -> Table:
        """A line a kernel of A's head beside its partner's: the distance and both shapes."""
        names = {"off_a": "a_from_identity", "off_b": "b_from_identity"}
        columns = [names.get(field.name, field.name) for field in fields(KernelPair)]
        return Table.of(columns, map(astuple, self.kernels))

    def as_data(self) -> dict[str, Any]:
        """As JSON-ready values; log-probabilities in nats, heads as [layer, head] counted from 0."""
        needle, pairs = self.needle, dict(vars(self.pairs))
        pairs |= {name: pairs[name].tolist() for name in ("partner", "r", "next_r")}
        data: dict[str, Any] = {
            "compared_tokens": self.shared.n,
            "unlike_positions": list(self.shared.unlike),
            "tokens": self.shared.why or "The prompts hold the same tokens.",
            "answers": [asdict(pair) | {"difference": pair.difference} for pair in self.answers],
            "top": [asdict(token) for token in self.top],
            "pairs": pairs,
            "kernels": [asdict(kernel) for kernel in self.kernels],
        }
        if needle is not None:
            shares = {name: getattr(needle, name).tolist() for name in ("a", "b", "difference")}
            data["needle"] = {"spans": [asdict(span) for span in needle.spans]} | shares
        return data


def compare(
    model: HookedMTA,
    other: HookedMTA | None,
    prompt: Prompt,
    *,
    prompt_b: Prompt | None = None,
    plan: Sequence[Intervention] = (),
    answer: str | None = None,
    pair_by: Rule | None = None,
    progress: Progress = ignore,
) -> Comparison:
    """`model` on `prompt` (A) beside B: the `other` model, another prompt, or `model` under `plan`.

    With none of the three B is the same model with its kernels and head mixing at the identity. Raises
    PromptError where more than one is given, or for what cannot be run; as `compare_runs` does.

    >>> mta_viz.compare(model, None, trace.tokens).shared.n
    21
    """
    if sum((other is not None, prompt_b is not None, bool(plan))) > 1:
        raise PromptError(
            "give one thing that differs: another model, another prompt, or a plan of interventions"
        )
    a = capture(model, prompt)
    if other is not None or prompt_b is not None:
        b = capture(other or model, prompt if prompt_b is None else prompt_b)
    else:
        b = rerun(a, tuple(plan) or identity_plan(model))
    return compare_runs(a, b, answer=answer, pair_by=pair_by, progress=progress)


def identity_plan(model: HookedMTA) -> Plan:
    """What makes a model its own plain twin. Raises PromptError for a model without kernels."""
    plan = every_kernel(model.config)
    if not plan:
        raise PromptError(
            "this model has no kernels and no head mixing, so with them at the identity it is itself; "
            "choose a second model"
        )
    return plan


@dataclass(frozen=True)
class Paired:
    """What of two runs can be compared and which heads are: all that their maps beside each other need.

    `shares` of the spans, of each head of A and of B, where heads are paired by them.
    """

    spans: Spans | None
    shared: Agreement
    same_ids: bool
    pairs: HeadPairs
    shares: tuple[Heads, Heads] | None = None


def pair_runs(
    a: Trace,
    b: Trace,
    *,
    spans: Spans | Literal["asked"] | None = "asked",
    pair_by: Rule | None = None,
    progress: Progress = ignore,
) -> Paired:
    """Two runs; B may be A's prompt under a plan.

    `spans`: what shares are measured of in each prompt, "asked" its asked needle, None nothing. `pair_by`:
    None pairs by index where the models are related, else by similarity or, without enough tokens in common,
    by the needle. Raises PromptError where heads cannot be paired so; raise in `progress` to stop.
    """
    same_ids = same_vocabulary(a.model, b.model)
    spans = asked_spans(a, b) if spans == "asked" else spans
    shared, kin = agreement(a.tokens, b.tokens, same_ids=same_ids), pairing.kinship(a.model, b.model)
    n_tokens = shared.unlike[0] if shared.unlike else shared.n
    if pair_by is None:  # the best that can be told
        last: Rule | None = None if spans is None else "needle"
        pair_by = "index" if kin.related else "similarity" if n_tokens >= pairing.FEWEST else last
    shares = _both_shares(a, b, spans, progress) if pair_by == "needle" and spans is not None else None
    pairs = _pairs(a, b, n_tokens, kin, shares, pair_by, progress)
    return Paired(spans, shared, same_ids, pairs, shares)


def compare_runs(
    a: Trace,
    b: Trace,
    *,
    answer: str | None = None,
    paired: Paired | None = None,
    spans: Spans | Literal["asked"] | None = "asked",
    pair_by: Rule | None = None,
    progress: Progress = ignore,
) -> Comparison:
    """Two runs that are `paired`, else that `pair_runs` pairs, which says what the rest is and raises."""
    steps = [progress_within(progress, start, 0.25) for start in (0.0, 0.25, 0.5)]
    paired = paired or pair_runs(a, b, spans=spans, pair_by=pair_by, progress=steps[0])
    pairs, same_ids, needle = paired.pairs, paired.same_ids, None
    if paired.spans is not None:
        shares = paired.shares or _both_shares(a, b, paired.spans, steps[1])
        layers, heads = np.moveaxis(pairs.partner, -1, 0)
        beside = np.where(layers < 0, np.nan, shares[1][layers, heads])
        needle = NeedleShares(paired.spans, *shares, shares[0] - beside)
    kernels = pairing.kernel_pairs(a.model, b.model, pairs, steps[2])
    answers = answer_pairs(a, b, answer, same_ids=same_ids)
    progress(1.0)
    top = top_pairs(a, b, same_ids=same_ids)
    return Comparison(paired.shared, same_ids, pairs, answers, top, needle, kernels)


def _both_shares(a: Trace, b: Trace, spans: Spans, progress: Progress) -> tuple[Heads, Heads]:
    halves = [progress_within(progress, start, 0.5) for start in (0.0, 0.5)]
    return _shares(a, spans[0], halves[0]), _shares(b, spans[1], halves[1])


def _shares(run: Trace, span: Span, progress: Progress) -> Heads:
    parts = Parts(span, (span,), len(run.tokens) - 1)
    return find(run, parts, progress=progress).share(Stage.PATTERN).double().numpy()


def _pairs(
    a: Trace,
    b: Trace,
    n_tokens: int,
    kin: Kinship,
    shares: tuple[Heads, Heads] | None,
    rule: Rule | None,
    progress: Progress,
) -> HeadPairs:
    size = a.model.config.n_layers, a.model.config.n_heads
    if rule is None:
        return pairing.no_pairs(*size, n_tokens, kin)
    if rule == "index" and not kin.related:
        raise PromptError(f"heads cannot be paired by index: {kin.why}")
    if rule == "index":
        return pairing.pairs_by_index(*size, kin)
    if rule == "similarity":
        return pairing.pairs_by_similarity(a, b, n_tokens, kin, progress)
    if shares is None:
        raise PromptError("heads cannot be paired by the needle: a prompt asks for none")
    return pairing.pairs_by_needle(*shares, kin)


def other_question(tokens: Tokens, tokenizer: Tokenizer | None) -> str:
    """A needle prompt that asks for another of its needles: a minimal pair; "" for other prompts.

    For the needle of equally many tokens if there is one, so that every position can be compared.
    """
    spans = needle_spans(tokens)
    asked = asked_span(spans)
    others = [span.name for span in spans if span.letter != QUESTION and span is not asked]
    if asked is None or not others or tokens.text is None:
        return ""
    before, after = tokens.text.rsplit(asked.name.removesuffix(ASKED), 1)
    texts = [before + name + after for name in others]
    alike = (text for text in texts if tokenizer and len(tokenizer.encode(text)) == len(tokens))
    return next(alike, texts[-1])
