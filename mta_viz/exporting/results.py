"""What the labs measure, as CSV: sweeps, answers to questions, last words, losses of a text, conjunctions."""

import math
from collections.abc import Iterable, Mapping

from mta_viz.analysis.labs.conjunction import Conjunction, rows_of
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.analysis.labs.questions import QuestionScore
from mta_viz.analysis.labs.sweep import Setting
from mta_viz.analysis.labs.text import PassageScores, TextLosses
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


def words_csv(found: PassageScores) -> str:
    """One line a passage, those left out with the reason alone; log-probabilities in nats."""
    header = (
        "passage", "last_word", "tokens", "rank", "greedy", "log_probability", "probability", "perplexity",
        "likeliest_first", "tokens_before", "tokens_read", "left_out",
    )  # fmt: skip
    lines: dict[int, tuple[object, ...]] = {
        one.number: (
            one.number, one.word, len(one.pieces), one.rank, int(one.greedy), number(one.log_probability),
            number(one.probability), number(one.perplexity), one.instead, one.n_before, one.n_read, "",
        )
        for one in found.words
    }  # fmt: skip
    lines |= {one.number: (one.number, *[""] * (len(header) - 2), one.reason) for one in found.left_out}
    return table(header, (lines[place] for place in sorted(lines)))


def losses_csv(found: TextLosses) -> str:
    """One line a token; the first, which nothing predicts, has no loss."""
    facts = zip(
        found.tokens.ids, found.tokens.pieces, found.losses.tolist(), found.ranks.tolist(), found.expected,
        strict=True,
    )  # fmt: skip
    rows = [
        (place, one, piece, number(loss), number(math.exp(-loss)), rank, expected)
        if rank
        else (place, one, piece, "", "", "", "")
        for place, (one, piece, loss, rank, expected) in enumerate(facts)
    ]
    return table(("position", "id", "token", "loss_nats", "probability", "rank", "likeliest"), rows)


def conjunction_csv(found: Mapping[str, Conjunction]) -> str:
    """One line a model, measure, stage and head: f of the four prompts, both effects, I, with intervals."""
    rows = [{"model": model} | row for model, one in found.items() for row in rows_of(one)]
    told = ([number(value) if isinstance(value, float) else value for value in row.values()] for row in rows)
    return table(tuple(rows[0]), told)


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
