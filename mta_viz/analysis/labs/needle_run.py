"""One needle sample through a model: what it answers, how sure it is of the gold answer, who found it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from mta_viz.analysis.labs.answers import answer, check_vocabulary, digits, named_needle
from mta_viz.analysis.labs.finder import Finder, find, needle_parts
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.needles import GoldSpan, NeedleSample, NeedleTask, make_needle_sample
from mta_viz.tracing import Progress, capture, generate


@dataclass(frozen=True)
class NeedleRun:
    """`said`: the greedy continuation, `number` what of it is a number ("" for none).

    `named`: the needle that has this number, None where no needle does. `probability`: of the
    whole gold answer.
    """

    sample: NeedleSample
    finder: Finder
    said: str
    number: str
    named: GoldSpan | None
    probability: float

    @property
    def right(self) -> bool:
        """Whether the greedy answer is the gold number."""
        return self.number == self.sample.answer


def run_needle(
    model: HookedMTA,
    task: NeedleTask,
    seed: int,
    *,
    begin: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> NeedleRun:
    """Sample number `seed` of `task`. `begin(what comes)`, then `progress(share of it)`; raise to stop.

    Raises `PromptError` and `TokenizerError` as `make_needle_sample` does.
    """
    say = begin or _silent
    tokenizer = check_vocabulary(model, model.tokenizer)
    sample = make_needle_sample(tokenizer, task, seed)
    say("Running the prompt")
    trace = capture(model, sample.tokens, progress=progress)
    say("Looking where every head looks")
    finder = find(trace, needle_parts(sample), progress=progress)
    say("Reading the answer")
    new = max(len(sample.answer_ids), 4) + 1
    said = tokenizer.decode(generate(model, sample.tokens, new, progress=progress))
    verdict = answer(model, tokenizer, [sample])[0]
    number = digits(said)
    probability = math.exp(verdict.log_probability)
    return NeedleRun(sample, finder, said, number, named_needle(sample, number), probability)


def _silent(_words: str) -> None:
    pass
