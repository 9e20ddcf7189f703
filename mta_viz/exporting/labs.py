"""The accuracies of a sweep as CSV."""

from collections.abc import Mapping

from mta_viz.analysis.labs.answers import NeedleScore
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
