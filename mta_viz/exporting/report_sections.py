"""What each section of a report shows: every number is that of a call of its own.

`kernels`, `effects`, `shapley`, `story`, `gain`. What is told of the methods is told with the settings used.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from math import prod
from typing import Any

from mta_viz.analysis.attention.taps import all_tap_gains, gains_table
from mta_viz.analysis.cause.effects import Absent, Effect, Effects, find_effects
from mta_viz.analysis.cause.shapley_file import TaskShapley, find_shapley
from mta_viz.analysis.cause.story import BY, RULE, Story
from mta_viz.analysis.cause.twin import twin_answer
from mta_viz.analysis.kernels import envelope, measures, naming
from mta_viz.analysis.kernels.definitions import TESTED
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, WHERE, KernelId
from mta_viz.analysis.kernels.table import NamesByChance, Row, kernel_of, shape_counts
from mta_viz.analysis.labs.needle import needle_score
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.types import parameter_count
from mta_viz.exporting.report_parts import Order, Section, Shown, Titled, tell, texts
from mta_viz.figures.attention.tokens import AttentionText
from mta_viz.figures.cause.worth import ShapleyBars
from mta_viz.figures.kernels.card import KernelTaps
from mta_viz.figures.kernels.gallery import KernelEffects, KernelGallery, kernel_rows
from mta_viz.figures.labs.story import ODDS, SHARES, StoryFigure
from mta_viz.printed import number, size_text
from mta_viz.tables import Table
from mta_viz.tasks.intervals import median_interval, paired_change_interval

LISTED, TILES, NAMED = 8, 6, 4  # rows of a table, kernels of a picture, names in a cell
SMALLEST_P = 0.0001  # what chances measured on 10,000 surrogates bear
UNNAMED = ("near identity", "no name")  # groups without a shape to look at


def model_section(order: Order) -> Section:
    """What the model is: configuration, parameters, file."""
    model, config = order.source.model, order.source.model.config
    kernels = sum(prod(entry.shape) for entry in kernel_entries(config).values())
    kind, total = texts()["kinds"][config.variant], parameter_count(config)
    words = {"name": order.source.name, "kind": kind, "parameters": total, "kernels": kernels}
    short = tell("words", "model", config=config, **words)
    plan = [tell("words", "plan", plan="; ".join(part.text() for part in model.plan))] if model.plan else []
    facts: dict[str, object] = {"parameters": total, **vars(config), **vars(config.mta)}
    if model.source is not None:
        facts |= {"file": model.source.name, "sha256": sha256(model.source.path)}
        facts |= {"format": model.source.format, "weights stored in": model.source.dtype}
        facts |= {"size": size_text(model.source.n_bytes), "training step": model.source.step}
    rows = [(name, str(value)) for name, value in facts.items() if value and name != "mta"]
    return Section("model", (short, *plan), tables=(_titled("model", ("what", "value"), rows),), short=short)


def _titled(
    name: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]], /, **values: Any
) -> Titled:
    return Titled(tell("tables", name, **values), Table.of(columns, rows))


def kernels_section(order: Order) -> Section:
    """Which shapes the model's kernels have, beside how many chance would give."""
    rows = kernel_rows(order.source)
    own = [row for row in rows if row["where"] in KEY_QUERY]
    if not own:
        return Section("kernels", missing=(texts()["no_kernels"],))
    counts, groups = shape_counts(rows), grouped(own)
    chance, figures = counts.envelope_templates, []
    for at, (name, members) in enumerate(groups.items(), start=1):
        if members and name not in UNNAMED:
            figures.append(order.shown(tell("figures", "group", name=name), gallery(name)))
        order.report(at / len(groups))
    short = tell("words", "names", counts=counts, chance=chance, p=_p(chance))
    found = (("a shape's name", counts.templates, chance), ("an edge", counts.edges, counts.envelope_edges))
    tables = (_groups_table(order, groups), _chance_table(len(own), found))
    settings: dict[str, Any] = {"naming": naming, "measures": measures, "envelope": envelope}
    settings |= {"counts": counts, "rare": 1 / (1 - naming.SIZE_QUANTILE), "tested": TESTED}
    methods = tuple(tell("methods", name, **settings) for name in ("names", "null"))
    words = (short, *_mixing_words(rows), *([tell("words", "tiles")] if figures else []))
    return Section("kernels", words, tuple(figures), tables, methods, short=short)


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Key-query rows of the kernel table by what they do, those that stay by both tests first."""
    groups: dict[str, list[Row]] = {group["name"]: [] for group in texts()["groups"]}
    for row in sorted(rows, key=lambda row: (not row["survives"], -abs(row["score"] or 0))):
        shape = naming.IDENTITY if row["faint"] else naming.family(row["shape"])
        names = (group["name"] for group in texts()["groups"] if shape in group["shapes"])
        groups[next(names, UNNAMED[1])].append(row)
    return groups


def gallery(name: str) -> KernelGallery:
    """Of the kernels with a group's name among theirs those farthest from the identity."""
    (shapes,) = (group["shapes"] for group in texts()["groups"] if group["name"] == name)
    query = " or ".join(f'shape = "{shape}"' for shape in shapes)
    look: Any = {"sort": "energy_off_identity", "scale": "own", "most": TILES}
    return KernelGallery(places=KEY_QUERY, query=f"({query}) and not faint", **look)


def _groups_table(order: Order, groups: dict[str, list[Row]]) -> Titled:
    rows = []
    for group in texts()["groups"]:
        members = groups[group["name"]]
        names = ", ".join(kernel_of(row).name(order.source.numbering) for row in members[:NAMED])
        stay, more = sum(bool(row["survives"]) for row in members), " ..." * (len(members) > NAMED)
        rows.append((group["name"], group["meaning"], len(members), stay, names + more))
    columns = ("kind", "what it does", "kernels", "clear", "the clearest")
    return _titled("groups", columns, [row for row in rows if row[2]])


def _chance_table(n: int, found: Sequence[tuple[str, int, NamesByChance]]) -> Titled:
    rows = [
        (
            name,
            n,
            count,
            f"{chance.mean:.1f}",
            f"{chance.low} to {chance.high}",
            f"{count - chance.mean:+.1f}",
            _p(chance),
        )
        for name, count, chance in found
    ]
    columns = ("kernels with", "n", "found", "by chance", "95 % range", "excess", "p of at least as many")
    return _titled("chance", columns, rows)


def _p(chance: NamesByChance) -> str:
    return f"{chance.p:.2g}" if chance.p >= SMALLEST_P else f"< {SMALLEST_P}"


def _mixing_words(rows: Sequence[Row]) -> list[str]:
    shapes = Counter(row["shape"] for row in rows if row["where"] in MIXING)
    kinds = ", ".join(f"{count} {name}" for name, count in shapes.most_common())
    return [tell("words", "mixing", n=shapes.total(), kinds=kinds)] if shapes else []


def task_section(order: Order) -> Section:
    """How many of the task's prompts are answered right, by the model and by its plain twin."""
    if not order.batches:
        return Section("task", missing=(texts()["no_task"],))
    twin = order.twin
    share = 1.0 if isinstance(twin, Absent) else 0.5
    results = {order.source.name: order.outcomes(order.source.model, f"of-model-{order.key}", 0, share)}
    words, missing = [], [texts()["no_twin"].format(reason=twin.reason)] if isinstance(twin, Absent) else []
    if not isinstance(twin, Absent):
        name = "plain twin" if twin.source is None else twin.source.name
        results[name] = order.outcomes(twin, f"of-twin-{order.key}", share, share)
        model, plain = (result.right for result in results.values())
        low, high = paired_change_interval(plain, model)
        verdict = texts()["words"]["no_difference"] if low <= 0 <= high else ""
        change = (sum(model) - sum(plain)) / len(plain)
        words.append(tell("words", "difference", change=change, low=low, high=high, verdict=verdict))
    rows, scores = [], []
    for name, result in results.items():
        score, median = needle_score(result.right), median_interval(result.log_probability)
        scores.append(tell("words", "score", name=name, score=score))
        nats = f"{float(median.value):+.3g} ({float(median.low):+.3g} to {float(median.high):+.3g}; {median.level:.1%})"
        accuracy = f"{score.accuracy:.3f} ({score.interval[0]:.3f} to {score.interval[1]:.3f})"
        rows.append((name, score.n, score.right, accuracy, nats))
    short = f"{'; '.join(scores)}."
    columns = (
        "model",
        "n",
        "right",
        "accuracy (95 % interval)",
        "log-probability, nats: median (interval; level)",
    )
    methods = tell("methods", "task", n=rows[0][1], setting=order.setting, seed=order.seed)
    parts = (tell("words", "sample", setting=order.setting), short, *words)
    return Section("task", parts, (), (_titled("task", columns, rows),), (methods,), tuple(missing), short)


def story_section(order: Order) -> Section:
    """The strongest kernel on one prompt: what it does there, and what the answer loses without it."""
    if order.source.run is None:
        return Section("story", missing=(order.no_run,))
    source, figure = replace(order.source, progress=order.report), StoryFigure(order.answer)
    opening = source.remember(lambda: figure.result(source), "result", figure.name, figure).story
    told = replace(opening, twin=twin_answer(order.twin, opening.tokens, opening.answer))
    short = told.sentence(source.numbering)
    words = [tell("words", "prompt", prompt=order.prompt, n=len(told.tokens)), short]
    words.append(tell("words", "answer", story=told))
    missing = [texts()["no_twin"].format(reason=told.twin.reason)] if isinstance(told.twin, Absent) else []
    words += [] if missing else [tell("words", "twin", story=told)]
    names = {"model": order.source.name, "own tap only": f"{order.source.name} without the kernel"}
    states = [
        (names.get(name, name), number(at.log_odds), at.rank, f"{at.probability:.3f}")
        for name, at in told.states.items()
    ]
    tables = [
        _titled("story", ("model", "log-odds of the answer", "rank", "probability"), states),
        *_gains(order, told),
    ]
    settings = {"chosen": BY[told.by], "rule": RULE, "odds": ODDS if told.kernel else ""}
    methods = tell("methods", "story", shares=SHARES if told.weights else "", **settings)
    figures = _story_figures(order, figure, told)
    return Section("story", tuple(words), figures, tuple(tables), (methods,), tuple(missing), short)


def _story_figures(order: Order, figure: StoryFigure, told: Story) -> tuple[Shown, ...]:
    if told.place is None or not told.weights:
        return ()
    stage, last = told.weights[-1].stage.value.key, len(told.tokens) - 1
    figures: dict[str, Any] = {"story": figure}
    figures["text"] = AttentionText(*told.place, stage=stage, position=last, spans=told.spans)
    if told.kernel is not None:
        where: Any = told.kernel.where
        figures["taps"] = KernelTaps(told.kernel.layer, told.kernel.head, where)
    return tuple(order.shown(tell("figures", name), spec) for name, spec in figures.items())


def _gains(order: Order, told: Story) -> list[Titled]:
    """Where nothing is measured on a task: what each kernel adds to the asked words in this one run."""
    if told.asked is None or told.kernel is None or _measured(order):
        return []
    rows = [
        (KernelId(layer, head, where).name(order.source.numbering), number(gain), number(match))
        for layer, head, where, gain, match, *_ in gains_table(
            all_tap_gains(order.source.trace, told.asked.positions)[:LISTED]
        ).rows
    ]
    return [_titled("gains", ("kernel", "adds", "of it where words match"), rows)]


def _measured(order: Order) -> list[Effects]:
    """What was measured beside these weights, at the own tap first."""
    model = order.source.model
    found = [] if model.plan else [find_effects(model.path, edit) for edit in ("own-tap", "identity")]
    return [effects for effects in found if not isinstance(effects, Absent)]


def matters_section(order: Order) -> Section:
    """Which kernels the task needs, as measured beside the weights."""
    model, measured = order.source.model, _measured(order)
    if model.plan:
        return Section("matters", missing=(texts()["edited"],))
    shapley, found = find_shapley(model.path), find_effects(model.path)
    parts = [_effects_part(order, measured)] if measured else []
    if isinstance(shapley, TaskShapley):
        parts.append(_shapley_part(order, shapley))
    elif measured:
        parts.append(Section("matters", missing=(shapley.reason,)))
    elif isinstance(found, Absent):
        parts.append(Section("matters", missing=(texts()["unmeasured"].format(reason=found.reason),)))
    names = ("words", "figures", "tables", "methods", "missing")
    joined = [tuple(value for part in parts for value in getattr(part, name)) for name in names]
    return Section("matters", *joined, short=parts[0].short)


def _effects_part(order: Order, measured: Sequence[Effects]) -> Section:
    effects, shapes = measured[0], {kernel_of(row): row["shape"] for row in kernel_rows(order.source)}
    each = effects.of_each()
    sure = sum(not at.accuracy_change.low <= 0 <= at.accuracy_change.high for at in each.values())
    worst, effect = next(iter(each.items()))
    rows = []
    for kernel in [*each][:LISTED]:
        costs = [at.of(kernel) for at in measured]
        cells = [_ends(each[kernel].accuracy_change), *(_nats(cost) if cost else None for cost in costs)]
        rows.append((kernel.name(order.source.numbering), shapes[kernel], *cells))
    nats = [f"log-probability at {at.edit}, nats: mean, median (interval)" for at in measured]
    table = _titled("matters", ("kernel", "shape", "accuracy (95 % interval)", *nats), rows, n=len(rows))
    spec = KernelEffects(*astuple(worst), edit=effects.edit)
    figure = order.shown(tell("figures", "effects", where=WHERE[worst.where]), spec)
    told: dict[str, Any] = {"name": worst.name(order.source.numbering), "shape": shapes[worst]}
    told |= {"accuracy": _ends(effect.accuracy_change), "n": len(each), "sure": sure}
    told["nats"] = _nats(effect)
    words = tell("words", "effects", effects=effects, effect=effect, **told)
    methods = tell("methods", "effects", effects=effects, edits=" and ".join(at.edit for at in measured))
    return Section("matters", (words,), (figure,), (table,), (methods,), short=words)


def _ends(estimate: Any) -> str:
    return f"{estimate.value:+.3g} ({estimate.low:+.3g} to {estimate.high:+.3g})"


def _nats(effect: Effect) -> str:
    median = effect.log_probability_change_median
    return f"{effect.log_probability_change.value:+.3g} on average, median {_ends(median) if median else 'no median'}"


def _shapley_part(order: Order, shapley: TaskShapley) -> Section:
    value = max(shapley.shared.values, key=lambda value: value.shapley)
    told: dict[str, Any] = {"shared": shapley.shared, "value": value, "error": 2 * value.standard_error}
    words = tell("words", "shapley", name=value.kernel.name(order.source.numbering), **told)
    figure = order.shown(tell("figures", "shapley"), ShapleyBars())
    methods = tell("methods", "shapley", shapley=shapley, shared=shapley.shared)
    return Section("matters", (words,), (figure,), methods=(methods,), short=words)
