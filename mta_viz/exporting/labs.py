"""What the labs measure as CSV: the accuracies of a sweep, the answers to questions."""

from collections.abc import Iterable, Mapping

from mta_viz.analysis.labs.answers import NeedleScore
from mta_viz.analysis.labs.question_accuracy import QuestionScore
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


def questions_csv(scores: Iterable[QuestionScore]) -> str:
    """One line an answer: its sample and what was said; `named` are the labels that count."""
    rows = [
        (
            score.task,
            score.distraction,
            one.seed,
            one.question,
            one.gold,
            one.said,
            " ".join(one.named),
            int(one.right),
        )
        for score in scores
        for one in score.answers
    ]
    header = ("task", "distraction", "sample", "question", "gold", "first_sentence", "named", "right")
    return table(header, rows)
