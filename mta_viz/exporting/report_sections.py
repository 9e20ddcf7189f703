"""The sections of a report as values: each number is that of a call of its own, words are `report.toml`'s.

The calls are `kernels`, `effects`, `shapley`, `story` and `gain`; methods are told with the settings used.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any

import plotly.graph_objects as go
from plotly.io import from_json
from pydantic import TypeAdapter, ValidationError

from mta_viz.analysis.attention.taps import all_tap_gains
from mta_viz.analysis.cause.answers import twin_answer
from mta_viz.analysis.cause.effects import Absent, Effect, Effects
from mta_viz.analysis.cause.shapley_file import find_shapley
from mta_viz.analysis.cause.story import BY, RULE, Story
from mta_viz.analysis.cause.sweeps import Outcome, outcome
from mta_viz.analysis.kernels import envelope, measures, naming
from mta_viz.analysis.kernels.definitions import TESTED
from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE
from mta_viz.analysis.kernels.table import NamesByChance, Row, kernel_of, kernel_table, shape_counts
from mta_viz.analysis.labs.cards import note_of
from mta_viz.analysis.labs.needle import needle_score
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.types import parameter_count
from mta_viz.exporting.provenance import Provenance, from_text
from mta_viz.exporting.saved import Saved, saved
from mta_viz.figures import spec
from mta_viz.figures.base import Source, drawn
from mta_viz.figures.kernels.atlas import GROUPS, group_of
from mta_viz.figures.kernels.gallery import effects_without, kernel_rows
from mta_viz.figures.labs import ODDS, SHARES, StoryFigure
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import probability_text, size_text
from mta_viz.run.files import weights_digest
from mta_viz.run.scoring import embedded
from mta_viz.tables import Table, number
from mta_viz.tasks.intervals import median_interval, paired_change_interval

LISTED, TILES, NAMED = 8, 6, 4  # rows of a table, kernels of a picture, names in a cell
SMALLEST_P = 0.0001  # what chances measured on 10,000 surrogates bear
SHAPELESS = ("identity", "unnamed", "broken")  # groups of kernels without a shape to look at
PLAIN = ("transformer", "differential")  # variants without kernels and head mixing


@cache
def texts() -> dict[str, Any]:
    """All words, by part and name."""
    return tomllib.loads((files(__package__) / "report.toml").read_text(encoding="utf-8"))


def tell(part: str, name: str, /, **values: Any) -> str:
    """A sentence with these values in it."""
    return str(texts()[part][name].format(**values))


@dataclass(frozen=True)
class Titled:
    """A table, and what stands over it."""

    title: str
    table: Table

    @classmethod
    def of(cls, name: str, rows: Iterable[Sequence[object]], /, **values: Any) -> "Titled":
        """With title and columns from the words."""
        words = texts()["tables"][name]
        columns = [column.format(**values) for column in words["columns"]]
        return cls(words["title"].format(**values), Table.of(columns, map(tuple, rows)))


@dataclass(frozen=True)
class Shown:
    """A figure as Save takes it, in text: what stands over it, its plotly JSON, numbers and provenance."""

    title: str
    picture: str
    caption: str
    csv: str
    origin: str

    @property
    def provenance(self) -> Provenance:
        """As Save writes it."""
        return from_text(self.origin)

    @property
    def saved(self) -> Saved:
        """As Save takes it."""
        figure, provenance = go.Figure(from_json(self.picture)), self.provenance
        return Saved((provenance.figure,), figure, self.caption, self.csv, provenance)


@dataclass(frozen=True)
class Section:
    """A part of a report. `missing`: what could not be made, a line each that says why.

    `short`: its sentence for the summary. `methods`: how its numbers were made, for a paper's appendix.
    """

    name: str
    words: tuple[str, ...] = ()
    tables: tuple[Titled, ...] = ()
    figures: tuple[Shown, ...] = ()
    methods: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    short: str = ""

    @property
    def title(self) -> str:
        """What stands over it."""
        return tell("titles", self.name)


@dataclass(frozen=True)
class Order:
    """What a report is asked to be of.

    `source`: the model and its run; `no_run` says why there is none. `prompt` says where the prompt is from,
    `answer` is what is to follow it. `batches`: the task's samples, none without a task; `setting`: what a
    sample is. `key` is equal for equal orders; `kept`: what is done, by name.
    """

    source: Source
    twin: HookedMTA | Absent
    key: str
    prompt: str
    no_run: str
    answer: str | None
    setting: str
    seed: int
    batches: Sequence[GoldBatch]
    kept: MutableMapping[Any, Any]

    def shown(self, figure: str, title: str = "", /, **parameters: Any) -> Shown:
        """A figure of the registry, of the model or its run."""
        made = saved(drawn(spec(figure, parameters), self.source))
        title = tell("figures", figure, name=title)
        return Shown(title, str(made.figure.to_json()), made.caption, made.csv, made.provenance.text())

    def outcomes(self, model: HookedMTA, name: str, start: float, share: float) -> Outcome:
        """Verdicts on all samples, a `share` of the work from `start` on; kept batches are not run again."""
        (right, logs), seen = json.loads(self.kept.get(name, "[[], []]")), 0
        for at, batch in enumerate(self.batches, start=1):
            seen += len(batch.answers)
            if seen > len(right):
                result = outcome(model, [embedded(model, batch.ids)], 0, [batch])
                right, logs = [*right, *result.right], [*logs, *result.log_probability]
                self.kept[name] = json.dumps([right, logs])
            self.source.progress(start + share * at / len(self.batches))
        return Outcome(tuple(right), tuple(logs))

    def section(self, name: str, make: Callable[["Order"], Section]) -> Section:
        """As it is kept; else, or where that is damaged, made and kept."""
        at = f"{name}-{self.key}"
        with suppress(KeyError, ValidationError):
            return TypeAdapter(Section).validate_json(self.kept[at])
        section = make(self)
        self.kept[at] = TypeAdapter(Section).dump_json(section).decode()
        return section


def keeping(source: Source, kept: MutableMapping[Any, Any], key: str) -> Source:
    """The source with each result made once; the kernel table also from one report to the next."""
    results: dict[Any, Any] = {}

    def remember(make: Callable[[], Any], *of: Any) -> Any:
        if of not in results:
            results[of] = rows() if of == ("kernel table",) else make()
        return results[of]

    def rows() -> tuple[Any, ...]:
        if f"table-{key}" not in kept:
            kept[f"table-{key}"] = json.dumps(kernel_table(source.model.state_dict(), source.model.config))
        return tuple(json.loads(kept[f"table-{key}"]))

    return replace(source, remember=remember, remember_with_run=remember, remember_weights=remember)


def model_section(order: Order) -> Section:
    """What the model is: configuration, parameters, file."""
    model, config = order.source.model, order.source.model.config
    kernels = sum(prod(entry.shape) for entry in kernel_entries(config).values())
    facts: dict[str, Any] = {"parameters": parameter_count(config), **vars(config), **vars(config.mta)}
    if model.source is not None:
        facts |= {"file": model.source.name, "sha256": weights_digest(model)}
        facts |= {"format": model.source.format, "weights stored in": model.source.dtype}
        facts |= {"size": size_text(model.source.n_bytes), "training step": model.source.step}
    rows = [(name, str(value)) for name, value in facts.items() if value and name != "mta"]
    parts: dict[str, Any] = {"kind": tell("kinds", config.variant), "total": facts["parameters"]}
    short = tell("words", "model", name=order.source.name, config=config, kernels=kernels, **parts)
    plan = [tell("words", "plan", plan="; ".join(part.text() for part in model.plan))] if model.plan else []
    return Section("model", (short, *plan), (Titled.of("model", rows),), short=short)


def kernels_section(order: Order) -> Section:
    """Which shapes the model's kernels have, beside how many chance would give."""
    rows = kernel_rows(order.source)
    own = [row for row in rows if row["where"] in KEY_QUERY]
    if not own:
        return Section("kernels", missing=(texts()["no_kernels"],))
    counts, groups, figures = shape_counts(rows), grouped(own), list[Shown]()
    for at, (name, members) in enumerate(groups.items(), start=1):
        if members and name not in SHAPELESS:
            figures.append(order.shown("kernel-gallery", name, **gallery(name)))
        order.source.progress(at / len(groups))
    chance = counts.envelope_templates
    short = tell("words", "names", counts=counts, chance=chance, p=_p(chance))
    edges = _chance("an edge", len(own), counts.edges, counts.envelope_edges)
    chances = [_chance("a shape's name", len(own), counts.templates, chance), edges]
    settings: dict[str, Any] = {"naming": naming, "measures": measures, "envelope": envelope}
    settings |= {"counts": counts, "rare": 1 / (1 - naming.SIZE_QUANTILE), "tested": TESTED}
    methods = tuple(tell("methods", name, **settings) for name in ("names", "null"))
    words = (short, tell("words", "tiles")) if figures else (short,)
    tables = Titled.of("groups", _group_rows(order, groups)), Titled.of("chance", chances)
    return Section("kernels", words, tables, tuple(figures), methods, short=short)


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Key-query rows of the kernel table by shape, those clear by both tests first."""
    groups: dict[str, list[Row]] = {name: [] for name in GROUPS}
    for row in sorted(rows, key=lambda row: (not row["survives"], -abs(row["score"] or 0))):
        groups[group_of(row)].append(row)
    return groups


def gallery(name: str) -> dict[str, Any]:
    """Parameters of the picture of kernels with a group's name among theirs, farthest from the identity."""
    named = " or ".join(f'shape = "{shape}"' for shape in GROUPS[name])
    look = {"sort": "energy_off_identity", "scale": "own", "most": TILES}
    return {"places": KEY_QUERY, "query": f"({named}) and not faint", **look}


def _group_rows(order: Order, groups: dict[str, list[Row]]) -> Iterable[Sequence[object]]:
    for group, members in groups.items():
        if members:
            names = ", ".join(kernel_of(row).name(order.source.numbering) for row in members[:NAMED])
            clear, more = sum(bool(row["survives"]) for row in members), " ..." * (len(members) > NAMED)
            yield group, texts()["meanings"][group], len(members), clear, names + more


def _chance(name: str, n: int, count: int, chance: NamesByChance) -> Sequence[object]:
    ends, excess = f"{chance.low} to {chance.high}", f"{count - chance.mean:+.1f}"
    return name, n, count, f"{chance.mean:.1f}", ends, excess, _p(chance)


def _p(chance: NamesByChance) -> str:
    return f"{chance.p:.2g}" if chance.p >= SMALLEST_P else f"< {SMALLEST_P}"


def task_section(order: Order) -> Section:
    """How many of the task's prompts are answered right, by the model and by its plain twin."""
    if not order.batches:
        return Section("task", missing=(texts()["no_task"],))
    twin, missing = order.twin, list[str]()
    share = 1.0 if isinstance(twin, Absent) else 0.5
    results = {order.source.name: order.outcomes(order.source.model, f"of-model-{order.key}", 0.0, share)}
    if isinstance(twin, Absent):
        missing.append(texts()["no_twin"].format(reason=twin.reason))
    else:
        results[Source(twin).name] = order.outcomes(twin, f"of-twin-{order.key}", share, share)
    scores = {name: needle_score(result.right) for name, result in results.items()}
    texts_of_scores = "; ".join(
        tell("words", "score", name=name, score=score) for name, score in scores.items()
    )
    short = tell("words", "scores", setting=order.setting, scores=texts_of_scores)
    words = [short] if missing else [short, _difference_words(*results.values())]
    models = [order.source.model] if isinstance(twin, Absent) else [order.source.model, twin]
    words += filter(None, (note_of(model.path) for model in models))
    rows = [_score_row(name, result) for name, result in results.items()]
    methods = tell("methods", "task", n=rows[0][1], setting=order.setting, seed=order.seed)
    tables = (Titled.of("task", rows),)
    return Section("task", tuple(words), tables, (), (methods,), tuple(missing), short)


def _difference_words(model: Outcome, twin: Outcome) -> str:
    low, high = paired_change_interval(twin.right, model.right)
    change = (sum(model.right) - sum(twin.right)) / len(twin.right)
    verdict = tell("words", "no_difference") if low <= 0 <= high else ""
    return tell("words", "difference", change=change, low=low, high=high, verdict=verdict)


def _score_row(name: str, result: Outcome) -> tuple[object, ...]:
    score, median = needle_score(result.right), median_interval(list(result.log_probability))
    accuracy = f"{score.accuracy:.3f} ({score.interval[0]:.3f} to {score.interval[1]:.3f})"
    value, low, high = (f"{float(end):+.3g}" for end in (median.value, median.low, median.high))
    return name, score.n, score.right, accuracy, f"{value} ({low} to {high}; {median.level:.1%})"


def story_section(order: Order) -> Section:
    """The strongest kernel on one prompt: what it does there, and what the answer loses without it."""
    if order.source.run is None:
        return Section("story", missing=(order.no_run,))
    source, figure = order.source, StoryFigure(order.answer)
    opening = drawn(figure, source).result.story
    story = replace(opening, twin=twin_answer(order.twin, opening.tokens, opening.answer))
    short, answer = story.sentence(source.numbering), tell("words", "answer", story=story)
    words = [tell("words", "prompt", prompt=order.prompt, n=len(story.tokens)), short, answer]
    missing = [texts()["no_twin"].format(reason=story.twin.reason)] if isinstance(story.twin, Absent) else []
    words += [] if missing else [tell("words", "twin", story=story)]
    words += [tell("words", "reading")] if story.kernel else []
    names = {"model": source.name, "own tap only": tell("words", "model_without", name=source.name)}
    rows = [
        (names.get(name, name), f"{at.log_odds:+.2f}", at.rank, probability_text(at.probability))
        for name, at in story.states.items()
    ]
    settings = {"rule": RULE, "odds": ODDS if story.kernel else "", "shares": SHARES if story.weights else ""}
    methods = tell("methods", "story", chosen=BY[story.by], **settings)
    name = "story" if story.kernel else "head"
    tables, figures = (Titled.of(name, rows), *_gains(order, story)), _story_figures(order, story)
    return Section(name, tuple(words), tables, tuple(figures), (methods,), tuple(missing), short)


def _story_figures(order: Order, story: Story) -> Iterator[Shown]:
    if story.place is None or not story.weights:
        return
    what = "before the kernel, the kernel, after it" if story.kernel else "the head's final weights"
    yield order.shown("story", what, answer=order.answer)
    stage, last = story.weights[-1].stage.value.key, len(story.tokens) - 1
    place = {"layer": story.place[0], "head": story.place[1]}
    yield order.shown("attention-text", **place, stage=stage, position=last, spans=story.spans)


def _gains(order: Order, story: Story) -> list[Titled]:
    """Where nothing is measured on a task: what each kernel adds to the asked words in this one run."""
    if story.asked is None or story.kernel is None or isinstance(_measured(order), Effects):
        return []
    gains = all_tap_gains(order.source.trace, story.asked.positions)[:LISTED]
    numbers = [(gain.kernel, number(gain.total), number(float(gain.match.sum()))) for gain in gains]
    return [Titled.of("gains", [(of.name(order.source.numbering), *rest) for of, *rest in numbers])]


def _measured(order: Order) -> Effects | Absent:
    """What was measured beside these weights, at the own tap where it was."""
    return Absent(texts()["edited"]) if order.source.model.plan else effects_without(order.source)


def _has_no_kernels(order: Order) -> bool:
    return order.source.model.config.variant in PLAIN or not kernel_rows(order.source)


def matters_section(order: Order) -> Section:
    """What the task loses without each kernel alone, as measured beside the weights."""
    if _has_no_kernels(order):  # also where heads alone were measured
        return Section("matters", missing=(texts()["no_kernels"],))
    effects = _measured(order)
    if isinstance(effects, Absent):
        return Section("matters", missing=(texts()["unmeasured"].format(reason=effects.reason),))
    shapes, each = {kernel_of(row): row["shape"] for row in kernel_rows(order.source)}, effects.of_each()
    rows = [
        (kernel.name(order.source.numbering), shapes[kernel], _ends(at.accuracy_change), _nats(at))
        for kernel, at in [*each.items()][:LISTED]
    ]
    worst, of_worst = next(iter(each)), dict(zip(("name", "shape", "accuracy", "nats"), rows[0], strict=True))
    sure = sum(not at.accuracy_change.low <= 0 <= at.accuracy_change.high for at in each.values())
    words = tell("words", "effects", effects=effects, n=len(each), sure=sure, **of_worst)
    parameters = asdict(worst) | {"edit": effects.edit}
    figures = (order.shown("kernel-effects", WHERE[worst.where], **parameters),)
    methods, tables = tell("methods", "effects", effects=effects), (Titled.of("matters", rows, n=len(rows)),)
    return Section("matters", (words,), tables, figures, (methods,), short=words)


def _ends(estimate: Any) -> str:
    return f"{estimate.value:+.3g} ({estimate.low:+.3g} to {estimate.high:+.3g})"


def _nats(effect: Effect) -> str:
    median = effect.log_probability_change_median
    middle = "" if median is None else f", median {_ends(median)}"
    return f"{effect.log_probability_change.value:+.3g} on average{middle}"


def together_section(order: Order) -> Section:
    """How the whole effect of all kernels is shared out among them, as measured beside the weights."""
    if _has_no_kernels(order):
        return Section("together", missing=(texts()["no_kernels"],))
    shapley = find_shapley(order.source.model.path)
    if isinstance(shapley, Absent) or order.source.model.plan:
        line = shapley.reason if isinstance(shapley, Absent) else texts()["edited"]
        return Section("together", missing=(line,))
    value = max(shapley.shared.values, key=lambda value: value.shapley)
    facts: dict[str, Any] = {"shared": shapley.shared, "value": value, "error": 2 * value.standard_error}
    words = tell("words", "shapley", name=value.kernel.name(order.source.numbering), **facts)
    methods = tell("methods", "shapley", shapley=shapley, shared=shapley.shared)
    return Section("together", (words,), (), (order.shown("shapley"),), (methods,), short=words)
