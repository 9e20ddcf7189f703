"""What the labs measure, as CSV, until the commands take their tables."""

from collections.abc import Iterable, Mapping

from mta_viz.analysis.labs.conjunction import Conjunction, heads_table
from mta_viz.analysis.labs.questions import QuestionScore, answers_table
from mta_viz.analysis.labs.text import PassageScores, TextLosses


def words_csv(scores: PassageScores) -> str:
    """As its table."""
    return scores.table().csv()


def losses_csv(losses: TextLosses) -> str:
    """As its table."""
    return losses.table().csv()


def conjunction_csv(results: Mapping[str, Conjunction]) -> str:
    """As their table."""
    return heads_table(results).csv()


def questions_csv(scores: Iterable[QuestionScore]) -> str:
    """As their table."""
    return answers_table(scores).csv()
