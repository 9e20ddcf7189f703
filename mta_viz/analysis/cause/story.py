"""The opening story of a prompt: one head and its kernel, what they do to the asked words, what the answer loses.

Every number is that of a call of its own: a head's scores on a span (`heads`), an answer under a plan
(`ablate`), a kernel's name (`kernels`). Owns which kernel and which span are chosen, the rule that says when
nothing stands out, and the sentence.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.spans import QUESTION, Span, needle_spans
from mta_viz.analysis.cause.answers import Answer, AnswerMeter, Standing, answer_after
from mta_viz.analysis.cause.direct_effect import layer_effect
from mta_viz.analysis.cause.effects import Absent, Effects, find_effects, without
from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE, KernelId, Place, layer_kernels
from mta_viz.analysis.kernels.naming import STAGES, name_kernels
from mta_viz.analysis.labs.blocks import asked_block, block_spans
from mta_viz.analysis.labs.finder import Finder, Parts, find
from mta_viz.checkpoint.relatives import plain_twin
from mta_viz.errors import MtaVizError
from mta_viz.model.plans import Plan
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import Printed, Row, number
from mta_viz.run.tracing import Progress, Prompt, Trace, capture, generate, load
from mta_viz.tables import Table
from mta_viz.tokenizers.base import Tokens

LEAST_CHANGE, LEAST_SHARE = 0.1, 0.05  # nats of the answer's log-odds; of the row's weight
HALF = 0.5  # of the largest weight: neighbours with as much belong to a span that is found
AROUND: Mapping[Place, tuple[Stage, Stage]] = {
    "pre": (Stage.RAW, Stage.KQ),
    "post": (Stage.SOFTMAX, Stage.SOFTMAX_KQ),
}
By = Literal["effects", "gain", "share", "nothing"]
BY: Mapping[By, str] = {
    "effects": "the kernel without whose shape the task's answer loses most, as measured beside the weights",
    "gain": "the kernel whose convolution adds most to what the last token gives the span",
    "share": "the head that gives the span most",
    "nothing": "no head: the last token sees no other key",
}
RULE = (
    f"Something stands out where the answer's log-odds change by at least {LEAST_CHANGE:g} nats without the "
    f"kernel, or where a span that the prompt itself asks for gains at least {LEAST_SHARE:.0%} of the row and "
    "more than any other place of its length in the row; in a model without kernels, where the head gives the "
    "span that much."
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
        """0..1: of scores the share if the softmax came here."""
        return float(torch.tensor(self.score).sigmoid()) if self.stage.value.unit == "score" else self.score


@dataclass(frozen=True)
class TwinAnswer:
    """The plain twin on the same prompt: what it writes and how sure it is of it, and of the model's answer."""

    name: str
    writes: str
    own: Standing
    standing: Standing


@dataclass(frozen=True, repr=False)
class Story(Printed):
    """What one look at a prompt tells.

    `spans`: the named ones of a needle prompt or of a block sequence, else the one that was found. `asked`: the
    one all weights are about, `asking`: the queries that ask; None, as `place`, where the last token sees
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
    place: tuple[int, int] | None
    kernel: KernelId | None
    shape: str
    by: By
    weights: tuple[SpanWeight, ...]
    other_gain: float
    answer: Answer
    writes: str
    standing: Standing
    without: Standing | None
    twin: TwinAnswer | Absent

    @property
    def plan(self) -> Plan:
        """What takes the kernel's shape out."""
        return () if self.kernel is None else (without(self.kernel, "own-tap"),)

    @property
    def gain(self) -> float:
        """What the kernel adds to the span's share; 0 without a kernel."""
        return self.weights[-1].share - self.weights[0].share if self.weights else 0.0

    @property
    def log_odds_change(self) -> float:
        """What the answer's log-odds gain without the kernel, in nats; 0 without a kernel."""
        return 0.0 if self.without is None else self.without.log_odds - self.standing.log_odds

    @property
    def stands_out(self) -> bool:
        """By `RULE`."""
        if not self.weights:
            return False
        if self.kernel is None:
            return self.weights[-1].share >= max(LEAST_SHARE, self.weights[-1].other)
        named = self.asked is not None and self.asked.name.endswith(ASKED)
        gains = self.gain >= LEAST_SHARE and self.gain > self.other_gain
        return abs(self.log_odds_change) >= LEAST_CHANGE or (named and gains)

    def sentence(self, numbering_from: int = 0) -> str:
        """The story in one sentence; layers and heads are labelled from `numbering_from`."""
        if self.place is None or self.asked is None:
            return f"The last token sees no other key, so no head has a choice; the answer is {self.answer_words}."
        layer, head = (at + numbering_from for at in self.place)
        name, asked = f"L{layer} H{head}", span_words(self.asked)
        if self.kernel is None:
            return self._plain_sentence(name, asked)
        before, after = (percent(weight.share) for weight in self.weights)
        kernel = f"{name}'s kernel {WHERE[self.kernel.where]} ({self.shape})"
        given = f"the head gives {asked} {before} before it, {after} after"
        moved = f"without it the answer's log-odds {_moved(self.log_odds_change)}"
        if self.stands_out:
            return f"{kernel}: {given}; {moved}."
        return f"Nothing stands out here. Strongest is {kernel}: {given}; {moved}."

    def _plain_sentence(self, name: str, asked: str) -> str:
        weight = self.weights[-1]
        given = f"{name} gives {asked} {percent(weight.share)} of its weight, most of all heads"
        if self.stands_out:
            return f"{given}; this model has no kernels."
        other = f"another place of its row gets {percent(weight.other)}"
        return f"Nothing stands out here: {given}, and {other}; this model has no kernels."

    @property
    def answer_words(self) -> str:
        """`“753” (log-odds +9.31, rank 1, probability 1.000)`."""
        return f"“{self.answer.text.strip(' ␣') or self.answer.text}” ({self.standing.words()})"

    @property
    def twin_words(self) -> str:
        """The plain twin's answer in words; why there is none."""
        if isinstance(self.twin, Absent):
            return self.twin.reason
        writes = f"{self.twin.name} writes “{self.twin.writes.strip()}” (probability {self.twin.own.probability:.3f})"
        return f"{writes}; it gives {self.answer.text.strip()!r} {self.twin.standing.words()}"

    @property
    def states(self) -> dict[str, Standing]:
        """How the answer stands: in the model, without the kernel, in the twin."""
        states = {"model": self.standing}
        states |= {"own tap only": self.without} if self.without else {}
        return states | ({} if isinstance(self.twin, Absent) else {self.twin.name: self.twin.standing})

    def table(self) -> Table:
        """A row for each state of the answer."""
        columns = ("state", "log_odds", "log_probability", "rank", "probability")
        rows = [(name, *at.as_data().values()) for name, at in self.states.items()]
        return Table.of(columns, rows)

    def _title(self) -> str:
        return self.sentence()

    def _table(self) -> tuple[Row, list[Row]]:
        """The same in short."""
        rows: list[Row] = [
            (name, number(at.log_odds), at.rank, f"{at.probability:.3f}") for name, at in self.states.items()
        ]
        return (f"answer {self.answer.text!r}", "log-odds", "rank", "probability"), rows

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
            "without_kernel": self.without and self.without.as_data(),
            "log_odds_change": self.log_odds_change,
            "twin": _twin_data(self.twin),
        }


def _twin_data(twin: TwinAnswer | Absent) -> dict[str, Any]:
    if isinstance(twin, Absent):
        return {"absent": twin.reason}
    own, standing = twin.own.as_data(), twin.standing.as_data()
    return {"name": twin.name, "writes": twin.writes, "own": own, "of_the_answer": standing}


def story(
    model: HookedMTA, prompt: Prompt, *, answer: str | None = None, progress: Progress | None = None
) -> Story:
    """Which head and kernel matter most on a prompt, what they do to the asked words, what the answer loses.

    `answer`: None is the number a needle prompt asks for, of a block sequence the letters the model was trained
    to answer, else the likeliest next token. The plain twin is
    looked for beside the model's folder. Raises PromptError for what the model cannot take, and for a model
    that holds kernels only, MtaVizError for logits that are NaN.

    >>> opening = mta_viz.story(model, trace.tokens)
    >>> opening.kernel.name(), opening.stands_out
    ('L2 H0 pre', True)
    """
    trace = capture(model, prompt)
    return story_of(trace, answer=answer, twin=twin_of_model(model), progress=progress)


def story_of(
    trace: Trace,
    *,
    answer: str | None = None,
    twin: HookedMTA | Absent | None = None,
    progress: Progress | None = None,
) -> Story:
    """The same of a run; `twin` is the plain twin, where there is one."""
    spans = needle_spans(trace.tokens) or block_spans(trace.tokens)
    meter = AnswerMeter(trace, answer_after(trace, answer or asked_block(trace)))
    asked = next((span for span in spans if span.name.endswith(ASKED)), None)
    last, standing = len(trace.tokens) - 1, meter.standing()
    measured = None if asked is None else _measured(trace.model, trace.tokens)
    if asked is None or (asked.start == 0 and asked.stop > last):
        asked = _found_span(meter) if last else None
        spans = () if asked is None else (*spans, asked)
    asking = next((span for span in spans if span.letter == QUESTION), None)
    opening = Story(
        tokens=trace.tokens,
        spans=spans,
        asked=asked,
        asking=asking or Span("last token", QUESTION, last, last + 1),
        **_nothing(),
        answer=meter.answer,
        writes=_written(trace, meter.answer, standing),
        standing=standing,
        without=None,
        twin=_twin_answer(twin, trace.tokens, meter.answer),
    )
    return opening if asked is None else _with_head(opening, meter, measured, progress)


def _nothing() -> dict[str, Any]:
    return {"place": None, "kernel": None, "shape": "", "by": "nothing", "weights": (), "other_gain": 0.0}


def _with_head(
    opening: Story, meter: AnswerMeter, measured: KernelId | None, progress: Progress | None
) -> Story:
    """The story with its head and kernel: the measured one, else that of the largest gain at the span."""
    trace, asked = meter.trace, opening.asked
    assert asked is not None
    last = len(trace.tokens) - 1
    finder = find(trace, Parts(asked, (asked,), last), progress=progress or (lambda share: None))
    kernel = measured or _most_gain(finder, trace.model)
    if kernel is None:
        final = finder.share(Stage.PATTERN).nan_to_num(-1.0)
        layer, head = divmod(int(final.argmax()), final.shape[1])
        weights = (_weight(trace, finder, (layer, head), Stage.PATTERN),)
        return replace(opening, place=(layer, head), by="share", weights=weights)
    place = (kernel.layer, kernel.head)
    rows = [_windows(trace, place, stage, asked) for stage in AROUND[_place(kernel)]]
    return replace(
        opening,
        place=place,
        kernel=kernel,
        shape=_shape(trace.model, kernel),
        by="effects" if measured else "gain",
        weights=tuple(_weight(trace, finder, place, stage) for stage in AROUND[_place(kernel)]),
        other_gain=_most(rows[1] - rows[0]),
        without=meter.standing((without(kernel, "own-tap"),)),
    )


def _place(kernel: KernelId) -> Place:
    return "pre" if kernel.where == "pre" else "post"


def _measured(model: HookedMTA, tokens: Tokens) -> KernelId | None:
    """The kernel whose shape costs most, by the file beside the weights that is of the prompt's task.

    At the own tap only where that is measured, else at the identity; None without a file of these weights.
    """
    task = "needle" if needle_spans(tokens) else "blocks"
    if model.plan:  # an edited model has other kernels than the file
        return None
    for edit in ("own-tap", "identity"):
        effects = find_effects(model.folder, edit)  # type: ignore[arg-type]  # both are edits
        if isinstance(effects, Effects) and effects.task == task:
            harmful = [kernel for kernel in effects.of_each() if kernel.where in KEY_QUERY]
            if harmful:
                return harmful[0]
    return None


def _most_gain(finder: Finder, model: HookedMTA) -> KernelId | None:
    """The kernel after which the span's share has risen most; None in a model without kernels."""
    best: tuple[float, KernelId] | None = None
    for where, (before, after) in AROUND.items():
        gains = finder.share(after) - finder.share(before)
        if bool(gains.isfinite().any()):
            layer, head = divmod(int(gains.nan_to_num(-2.0).argmax()), gains.shape[1])
            gain = float(gains[layer, head])
            if best is None or gain > best[0]:
                best = gain, KernelId(layer, head, where)
    return None if best is None else best[1]


def _found_span(meter: AnswerMeter) -> Span:
    """The keys the answer rests on: of the softmax cell that adds most to its logit directly.

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
    row = meter.trace.map(layer, Stage.SOFTMAX, head, slice(last, last + 1))[0, : last + 1].abs()
    start = stop = key
    while start > 0 and row[start - 1] >= HALF * row[key]:
        start -= 1
    while stop < last and row[stop + 1] >= HALF * row[key]:
        stop += 1
    if (start, stop) == (0, last):  # an even row: nothing would be left to compare with
        start = stop = key
    return Span("".join(trace.tokens.pieces[start : stop + 1]), "A", start, stop + 1)


def _weight(trace: Trace, finder: Finder, place: tuple[int, int], stage: Stage) -> SpanWeight:
    score = float(finder.asked.values[f"span.{stage.value.key}"][place])
    return SpanWeight(stage, score, _most(_windows(trace, place, stage, finder.parts.asked)))


def _windows(trace: Trace, place: tuple[int, int], stage: Stage, span: Span) -> Float[Tensor, " start"]:
    """Shares of every other place of the span's length in the last row, NaN where it touches the span."""
    last, length = len(trace.tokens) - 1, span.stop - span.start
    layer, head = place
    row = trace.map(layer, stage, head, slice(last, last + 1))[0, : last + 1].double().cpu()
    weights = row.softmax(0) if stage.value.unit == "score" else row.abs() / row.abs().sum()
    shares = weights.unfold(0, min(length, last + 1), 1).sum(-1)
    starts = torch.arange(len(shares))
    return shares.masked_fill((starts < span.stop) & (starts + length > span.start), torch.nan)


def _most(shares: Float[Tensor, " start"]) -> float:
    """The largest; 0 where there is none."""
    return float(shares[shares.isfinite()].max()) if bool(shares.isfinite().any()) else 0.0


def _shape(model: HookedMTA, kernel: KernelId) -> str:
    """The kernel's name, by the rules of the kernel table."""
    kernels = layer_kernels(model.state_dict(), model.config, kernel.layer)
    taps, offsets = kernels.taps(_place(kernel)), kernels.offsets(_place(kernel))
    assert taps is not None and offsets is not None
    return name_kernels(taps[kernel.head : kernel.head + 1].numpy(), offsets, STAGES)[0].shape


def _written(trace: Trace, answer: Answer, standing: Standing) -> str:
    """The likeliest continuation of as many tokens as the answer has: the answer itself at rank 1."""
    same = standing.rank == 1
    return _text(trace.model, answer.ids if same else generate(trace.model, trace.tokens, len(answer.ids)))


def _text(model: HookedMTA, ids: tuple[int, ...]) -> str:
    return model.tokenizer.decode(ids) if model.tokenizer else " ".join(map(str, ids))


def twin_of_model(model: HookedMTA) -> HookedMTA | Absent:
    """The plain twin beside the model's folder, on its device in its dtype; `Absent` says why there is none."""
    if not any(model.config.kernels(layer).any for layer in range(model.config.n_layers)):
        return Absent("This model is plain itself.")
    folder = None if model.folder is None else plain_twin(model.folder)
    if folder is None:
        return Absent("No plain twin lies beside this model.")
    try:
        return load(folder, device=str(model.device), dtype=model.dtype)
    except MtaVizError as error:
        return Absent(f"The plain twin cannot be read: {error}")


def _twin_answer(twin: HookedMTA | Absent | None, tokens: Tokens, answer: Answer) -> TwinAnswer | Absent:
    """What the twin makes of the same tokens."""
    if twin is None or isinstance(twin, Absent):
        return twin or Absent("No plain twin was given.")
    if tokens.text is not None and (
        twin.tokenizer is None or twin.tokenizer.encode(tokens.text).ids != tokens.ids
    ):
        return Absent("The plain twin has another vocabulary.")
    try:
        run = capture(twin, tokens)
        ids = generate(twin, tokens, len(answer.ids))
        own = AnswerMeter(run, replace(answer, ids=ids)).standing() if ids else Standing(math.nan, None)
        standing = AnswerMeter(run, answer).standing()
    except MtaVizError as error:
        return Absent(f"The plain twin cannot run this prompt: {error}")
    name = "plain twin" if twin.source is None else twin.source.path.absolute().name
    return TwinAnswer(name, _text(twin, ids), own, standing)


def span_words(span: Span) -> str:
    """`the needle “Oslo”`, `the block “kemub”`, `“rabbit”`."""
    name, _, kind = span.name.partition(" (")
    kinds = {"asked)": "the needle ", "target)": "the block "}
    return f"{kinds.get(kind, '')}“{name.strip(' ␣') or name}”"


def percent(share: float) -> str:
    """`12 %`, `0.3 %`."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else f"{100 * share:.1g} %"


def _moved(change: float) -> str:
    if not math.isfinite(change):
        return "are not finite"
    if abs(change) < 0.005:
        return "stay as they are"
    return f"{'fall' if change < 0 else 'rise'} by {abs(change):.2f}"
