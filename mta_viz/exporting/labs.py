"""What the labs measure, as CSV: the accuracies of a sweep, and conjunction tests."""

from collections.abc import Mapping

from mta_viz.analysis.labs.answers import NeedleScore
from mta_viz.analysis.labs.conjunction import Conjunction, rows_of
from mta_viz.analysis.labs.sweep import Setting
from mta_viz.exporting.data import number, table


def accuracy_csv(scores: Mapping[str, Mapping[Setting, NeedleScore]]) -> str:
    """One line a model and setting: right answers, samples, accuracy, ends of the 95 % interval."""
    rows = [
        (model, *setting, one.right, one.n, number(one.accuracy), *map(number, one.interval))
        for model, settings in scores.items()
        for setting, one in settings.items()
    ]
    header = ("model", "needles", "length", "depth", "right", "n", "accuracy", "low", "high")
    return table(header, rows)


def conjunction_csv(found: Mapping[str, Conjunction]) -> str:
    """One line a model, measure, stage and head: f of the four prompts, both effects, I, with intervals."""
    rows = [{"model": model} | row for model, one in found.items() for row in rows_of(one)]
    told = ([number(value) if isinstance(value, float) else value for value in row.values()] for row in rows)
    return table(tuple(rows[0]), told)
