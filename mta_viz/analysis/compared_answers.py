"""The answers of two runs side by side: the right answer's log-probability, and the likeliest tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from mta_viz.analysis.answers import Answer, AnswerMeter, answer_after
from mta_viz.analysis.predictions import top_tokens
from mta_viz.errors import MtaVizError
from mta_viz.interventions.plans import Plan
from mta_viz.tracing import Trace

TOP = 5


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


def answer_pairs(
    a: Trace, b: Trace, text: str | None, *, same_ids: bool, plan: Plan = ()
) -> tuple[AnswerPair, ...]:
    """The answer to A's prompt in both runs and, where B's prompt has another, that one too.

    `text`: the answer; None as in `answer_after`. `plan`: what was done to A's model to get B, on the
    same prompt. Raises PromptError for an answer that cannot be written.
    """
    own = answer_after(a, text)
    meter = AnswerMeter(a, own)
    after = meter.log_probability(plan) if plan else _in(b, own, _words(a, own), same_ids)
    found = [AnswerPair("A", own.text, own.source, meter.before, after)]
    other = None if plan or text else answer_after(b)
    if other is not None and other.source == "needle" and other.text != own.text:
        log_p = _in(a, other, _words(b, other), same_ids)
        found.append(AnswerPair("B", other.text, other.source, log_p, AnswerMeter(b, other).before))
    return tuple(found)


def top_pairs(a: Trace, b: Trace, *, same_ids: bool) -> tuple[TokenPair, ...]:
    """A's five likeliest next tokens, then those of B's five that are not among them.

    Raises MtaVizError where a run's logits are NaN.
    """
    first, second = (top_tokens(run, len(run.tokens) - 1, TOP) for run in (a, b))
    if not same_ids:
        return (
            *(TokenPair(one.piece, one.probability, None) for one in first),
            *(TokenPair(one.piece, None, one.probability) for one in second),
        )
    pieces = {one.id: one.piece for one in (*second, *first)}
    ids = list(dict.fromkeys(one.id for one in (*first, *second)))
    p_a, p_b = (_probabilities(run, ids) for run in (a, b))
    return tuple(TokenPair(pieces[at], *p) for at, *p in zip(ids, p_a, p_b, strict=True))


def _probabilities(run: Trace, ids: Sequence[int]) -> list[float]:
    last = len(run.tokens) - 1
    return run.logits(slice(last, last + 1))[0].softmax(0)[list(ids)].tolist()


def _in(run: Trace, answer: Answer, text: str | None, same_ids: bool) -> float:
    """The answer's log-probability in the other run, written there by that run's own tokenizer."""
    if same_ids:
        return AnswerMeter(run, answer).before
    if not text:
        raise MtaVizError(
            "the models write with other tokenizers, and this answer has no text; type an answer"
        )
    return AnswerMeter(run, answer_after(run, text)).before


def _words(run: Trace, answer: Answer) -> str | None:
    """The answer as text: of a likeliest token `text` is only its label."""
    if answer.source != "likeliest":
        return answer.text
    return run.model.tokenizer.decode(answer.ids) if run.model.tokenizer else None
