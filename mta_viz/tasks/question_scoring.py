"""Whether a model's output answers a question, by BABILong's rule. Owns no prompt.

The rule: the output is lower-cased and cut before its first full stop; what was generated without
one counts whole. A label is named when its lower-cased letters occur there, within a longer word
too. Labels whose letters occur in the question do not count, whatever the output says of them: the
question's labels are never the answer. The output is right when the labels left are the target and
no other. (BABILong cuts at the marks of its own few-shot prompt as well, which these prompts lack.)
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scored:
    """`sentence`: the output's first, as written. `named`: the labels that count, in the task's order."""

    sentence: str
    named: tuple[str, ...]
    right: bool


def score_output(output: str, target: str, question: str, labels: Iterable[str]) -> Scored:
    """What a model said, judged against `target`, one of `labels`."""
    sentence = output.partition(".")[0]
    said, asked = sentence.lower(), question.lower()
    named = tuple(label for label in labels if label.lower() in said and label.lower() not in asked)
    return Scored(sentence.strip(), named, named == (target,))
