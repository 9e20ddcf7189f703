"""The opening story of a prompt: a head and its kernel, what they do to the asked words, what that is worth.

Every number is that of a call of its own: a head's scores on a span (`heads`), an answer under a plan
(`ablate`), a kernel's name (`kernels`). Owns which kernel and which span are chosen, the rule that says when
nothing stands out, and the sentence.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any, Literal

import torch

from mta_viz.analysis.attention.spans import QUESTION, Span, needle_spans, next_letter
from mta_viz.analysis.cause import answers, choosing
from mta_viz.analysis.cause.effects import Absent, without
from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE, KernelId, layer_kernels, layers_having
from mta_viz.analysis.kernels.naming import NONE, STAGES, name_kernels
from mta_viz.analysis.labs.blocks import block_spans
from mta_viz.analysis.labs.finder import Finder, Parts, find
from mta_viz.model.interventions import AblateHead
from mta_viz.model.plans import Plan
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import probability_text
from mta_viz.run.tracing import Progress, Prompt, Trace, capture, generate, ignore
from mta_viz.tables import Printed, Row, Table, number
from mta_viz.tokenizers.base import Tokens

LEAST_CHANGE, LEAST_SHARE = 0.1, 0.05  # nats of the answer's log-odds; of the row's weight
LINE = 120  # characters of a printed line
By = Literal["effects", "gain", "loss", "nothing"]
BY: Mapping[By, str] = {
    "effects": "the kernel without which the task's answer loses most, a mean measured beside the weights",
    "gain": "the kernel whose convolution adds most to what the last token gives the span",
    "loss": "the head without which the answer loses most, of the "
    f"{choosing.TRIED} that add most to it directly and give other tokens than the first and the last "
    "half of their row",
    "nothing": "no head: the last token sees no other key",
}
RULE = (
    f"Something stands out where the answer's log-odds change by at least {LEAST_CHANGE:g} nats without the "
    f"kernel, or where a span the prompt itself asks for gains at least {LEAST_SHARE:.0%} of the row and "
    "more than any other place of its length in the row; in a model without kernels, where they fall by as "
    "much without the head."
)
ASKED = (" (asked)", " (target)")  # how the names of spans end that the prompt itself asks for


@dataclass(frozen=True)
class SpanWeight:
    """What a head's row of the last token gives the span at one stage.

    `score`: log-odds before the softmax, the share after it, as `span.STAGE` of the head's scores. `other`:
    the largest share of another place of the span's length in the row, 0 where there is none.
    """

    stage: Stage
    score: float
    other: float

    @property
    def share(self) -> float:
        """0..1; of scores the share if the softmax came here."""
        return float(torch.tensor(self.score).sigmoid()) if self.stage.value.unit == "score" else self.score


@dataclass(frozen=True, repr=False)
class Story(Printed):
    """What one look at a prompt tells.

    `spans`: the named ones of a needle prompt or of a block sequence, else the one that was found. `asked`:
    the one all weights are about, `asking`: the queries that ask; None, as `place`, where the last token sees
    no other key. `place` (layer, head); `kernel`: None where the model has none. `shape`: the kernel's name.
    `by`: how the head was chosen. `weights`: before and after the kernel; of a plain model the final
    one. `other_gain`: the most another place of the span's length gains in the row. `writes`: the
    likeliest continuation, as long as the answer. `standing` of the answer, `without` the kernel's shape
    (its own tap alone is left).
    """

    tokens: Tokens
    spans: tuple[Span, ...]
    asked: Span | None
    asking: Span
    answer: answers.Answer
    writes: str
    standing: answers.Standing
    twin: answers.TwinAnswer | Absent
    place: tuple[int, int] | None = None
    kernel: KernelId | None = None
    shape: str = ""
    by: By = "nothing"
    weights: tuple[SpanWeight, ...] = ()
    other_gain: float = 0.0
    without: answers.Standing | None = None
    choice: choosing.HeadChoice | None = None

    @property
    def plan(self) -> Plan:
        """What takes the kernel's shape out, of a plain model the head."""
        if self.choice is not None:
            return (AblateHead(*self.choice.place),)
        return () if self.kernel is None else (without(self.kernel, "own-tap"),)

    @property
    def gain(self) -> float:
        """What the kernel adds to the span's share; 0 without a kernel."""
        return self.weights[-1].share - self.weights[0].share if self.weights else 0.0

    @property
    def log_odds_change(self) -> float:
        """What the answer's log-odds gain without the kernel or head, in nats; 0 where there is none."""
        return 0.0 if self.without is None else self.without.log_odds - self.standing.log_odds

    @property
    def stands_out(self) -> bool:
        """By `RULE`."""
        if not self.weights:
            return False
        if self.kernel is None:
            return self.log_odds_change <= -LEAST_CHANGE
        named = self.asked is not None and self.asked.name.endswith(ASKED)
        gains = self.gain >= LEAST_SHARE and self.gain > self.other_gain
        return abs(self.log_odds_change) >= LEAST_CHANGE or (named and gains)

    def sentence(self, numbering: int = 0) -> str:
        """The story in one sentence; layers and heads are labelled from `numbering`."""
        if self.place is None or self.asked is None:
            alone = "The last token sees no other key, so no head has a choice"
            return f"{alone}; the answer is {self.answer_words}."
        layer, head = (at + numbering for at in self.place)
        name, asked = f"L{layer} H{head}", self.asked.words
        if self.kernel is None:
            return self._plain_sentence(name, asked)
        before, after = (percent(weight.share) for weight in self.weights)
        shape = "no named shape" if self.shape == NONE else self.shape
        kernel = f"{name}'s kernel {WHERE[self.kernel.where]} ({shape})"
        given = f"the head gives {asked} {before} before it, {after} after"
        moved = f"without it the answer's log-odds {_moved(self.log_odds_change)}{self._rank_words}"
        return f"{kernel}{'' if self.stands_out else ' does not stand out'}: {given}; {moved}."

    @property
    def _rank_words(self) -> str:
        if self.without is None or self.without.rank == self.standing.rank:
            return ""
        return f", its rank is {self.without.rank} instead of {self.standing.rank}"

    def _plain_sentence(self, name: str, asked: str) -> str:
        """What the head is worth, what it looks at, and how many heads rest on the first token."""
        choice, change = self.choice, self.log_odds_change
        assert choice is not None
        moved = f"without {name} the answer's log-odds {_moved(change)}{self._rank_words}"
        moved = f"{moved}, {'least' if change > 0 else 'most'} of the {choice.tried} heads tried"
        begins = moved[0].upper() + moved[1:] if self.stands_out else f"No head tried stands out: {moved}"
        sink = (
            f", the first token {percent(choice.first)}, which {choice.resting} of {choice.heads} heads give"
        )
        sink = f"{sink} half or more (an attention sink)" if choice.resting else ""
        given = f"it gives {asked} {percent(self.weights[-1].share)} of its weight{sink}"
        return f"{begins}: {given}; this model has no key-query kernels."

    @property
    def answer_words(self) -> str:
        """`“753” (log-odds +9.31, rank 1, probability 1.000)`."""
        return f"{self.answer.words} ({self.standing.words()})"

    @property
    def twin_words(self) -> str:
        """The plain twin's answer in words; why there is none."""
        if isinstance(self.twin, Absent):
            return self.twin.reason
        return self.twin.words(self.answer)

    @property
    def states(self) -> dict[str, answers.Standing]:
        """How the answer stands: in the model, without the kernel, in the twin."""
        states = {"model": self.standing}
        states |= {"head off" if self.choice else "own tap only": self.without} if self.without else {}
        return states | ({} if isinstance(self.twin, Absent) else {self.twin.name: self.twin.standing})

    def table(self) -> Table:
        """A row for each state of the answer."""
        columns = ("state", "log_odds", "log_probability", "rank", "probability")
        rows = [(name, *at.as_data().values()) for name, at in self.states.items()]
        return Table.of(columns, rows)

    def _title(self) -> str:
        return "\n".join(wrap(self.sentence(), LINE))

    def _table(self) -> tuple[Row, list[Row]]:
        """The same in short."""
        rows: list[Row] = [
            (name, number(at.log_odds), at.rank, probability_text(at.probability))
            for name, at in self.states.items()
        ]
        return (f"answer {self.answer.words}", "log-odds", "rank", "probability"), rows

    def as_data(self) -> dict[str, Any]:
        """Plain values, as the command prints them: log-odds and log-probabilities in nats."""
        weights = [
            {"stage": at.stage.value.key, "score": at.score, "share": at.share, "other": at.other}
            for at in self.weights
        ]
        return {
            "sentence": self.sentence(),
            "stands_out": self.stands_out,
            "rule": RULE,
            "spans": [asdict(span) for span in self.spans],
            "asked": self.asked and asdict(self.asked),
            "asking": asdict(self.asking),
            "layer": self.place and self.place[0],
            "head": self.place and self.place[1],
            "kernel": self.kernel and self.kernel.name(),
            "shape": self.shape,
            "chosen": BY[self.by],
            "weights": weights,
            "gain": self.gain,
            "other_gain": self.other_gain,
            "answer": self.answer.as_data(),
            "writes": self.writes,
            "with_kernel": self.standing.as_data(),
            "without_kernel": None if self.choice or not self.without else self.without.as_data(),
            "head_tried": self.choice and asdict(self.choice) | {"without": self.choice.without.as_data()},
            "log_odds_change": self.log_odds_change,
            "twin": _twin_data(self.twin),
        }


def _twin_data(twin: answers.TwinAnswer | Absent) -> dict[str, Any]:
    if isinstance(twin, Absent):
        return {"absent": twin.reason}
    own, standing = twin.own.as_data(), twin.standing.as_data()
    return {"name": twin.name, "writes": twin.writes, "own": own, "of_the_answer": standing}


def story(
    model: HookedMTA, prompt: Prompt, *, answer: str | None = None, progress: Progress = ignore
) -> Story:
    """One head and kernel of a prompt, what they do to the asked words, what the answer loses without.

    `answer`: None is the number or block asked for, else the likeliest token. The plain twin is looked for
    beside the model's folder. Raises PromptError for what the model cannot take, and for a model
    that holds kernels only, MtaVizError for logits that are NaN.

    >>> opening = mta_viz.story(model, trace.tokens)
    >>> opening.kernel.name(), opening.stands_out
    ('L2 H0 pre', True)
    """
    trace = capture(model, prompt)
    return story_of(trace, answer=answer, twin=answers.twin_of_model(model), progress=progress)


def story_of(
    trace: Trace,
    *,
    answer: str | None = None,
    twin: HookedMTA | Absent | None = None,
    progress: Progress = ignore,
) -> Story:
    """The same of a run; `twin` is the plain twin, where there is one."""
    spans = needle_spans(trace.tokens) or block_spans(trace.tokens)
    meter = answers.AnswerMeter(trace, answers.answer_after(trace, answer))
    asked = next((span for span in spans if span.name.endswith(ASKED)), None)
    last, standing = len(trace.tokens) - 1, meter.standing()
    measured = None if asked is None else choosing.measured_kernel(trace.model, trace.tokens)
    plain = not any(layers_having(trace.model.config, where) for where in KEY_QUERY)
    choice = choosing.head_of_most_loss(meter) if plain and last else None
    if asked is None or (asked.start == 0 and asked.stop > last):
        span = choosing.answer_span(meter, choice.place if choice else None) if last else None
        asked = span and replace(span, letter=next_letter(spans))
        spans = () if asked is None else (*spans, asked)
    asking = next((span for span in spans if span.letter == QUESTION), None)
    opening = Story(
        tokens=trace.tokens,
        spans=spans,
        asked=asked,
        asking=asking or Span("last token", QUESTION, last, last + 1),
        answer=meter.answer,
        writes=_written(trace, meter.answer, standing),
        standing=standing,
        twin=answers.twin_answer(twin, trace.tokens, meter.answer),
        choice=choice,
    )
    return opening if asked is None else _with_head(opening, meter, measured, progress)


def _with_head(
    opening: Story, meter: answers.AnswerMeter, measured: KernelId | None, progress: Progress
) -> Story:
    """The story with its head and kernel: the chosen head, or the measured kernel, else that of most gain."""
    trace, asked = meter.trace, opening.asked
    assert asked is not None
    last = len(trace.tokens) - 1
    finder = find(trace, Parts(asked, (asked,), last), progress=progress)
    if opening.choice is not None:
        place, off = opening.choice.place, opening.choice.without
        weights = (_weight(trace, finder, place, Stage.PATTERN),)
        return replace(opening, place=place, by="loss", weights=weights, without=off)
    kernel = measured or choosing.kernel_of_most_gain(finder)
    assert kernel is not None
    place = (kernel.layer, kernel.head)
    around = choosing.AROUND[kernel.where]
    rows = [choosing.other_places(trace, place, stage, asked) for stage in around]
    return replace(
        opening,
        place=place,
        kernel=kernel,
        shape=_shape(trace.model, kernel),
        by="effects" if measured else "gain",
        weights=tuple(_weight(trace, finder, place, stage) for stage in around),
        other_gain=choosing.largest(rows[1] - rows[0]),
        without=meter.standing((without(kernel, "own-tap"),)),
    )


def _weight(trace: Trace, finder: Finder, place: tuple[int, int], stage: Stage) -> SpanWeight:
    score = float(finder.asked.values[f"span.{stage.value.key}"][place])
    others = choosing.other_places(trace, place, stage, finder.parts.asked)
    return SpanWeight(stage, score, choosing.largest(others))


def _shape(model: HookedMTA, kernel: KernelId) -> str:
    """The kernel's name, by the rules of the kernel table."""
    taps, offsets = layer_kernels(model.state_dict(), model.config, kernel.layer).taps(kernel.where)
    return name_kernels(taps[kernel.head : kernel.head + 1].numpy(), offsets, STAGES)[0].shape


def _written(trace: Trace, answer: answers.Answer, standing: answers.Standing) -> str:
    """The likeliest continuation of as many tokens as the answer has: the answer itself at rank 1."""
    same = standing.rank == 1
    return answers.written(
        trace.model, answer.ids if same else generate(trace.model, trace.tokens, len(answer.ids))
    )


def percent(share: float) -> str:
    """`12 %`, `0.3 %`, `99.6 %`: no share short of everything is 100 %, none above nothing 0 %."""
    if share == 0 or 0.01 <= share < 0.99:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1g} %" if share < 0.01 else f"{min(100 * share, 99.9 if share < 1 else 100):.3g} %"


def _moved(change: float) -> str:
    if not math.isfinite(change):
        return "are not finite"
    if abs(change) < 0.005:
        return "stay as they are"
    return f"{'fall' if change < 0 else 'rise'} by {abs(change):.2f}"
