"""One question through a model: what it answers, how sure it is of the gold answer, who found the facts."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from mta_viz.analysis.from_layer import end_logits
from mta_viz.analysis.labs.answers import check_vocabulary, gold_log_probabilities
from mta_viz.analysis.labs.finder import Finder, Parts, find, found_again
from mta_viz.analysis.spans import QUESTION, Span, next_letter
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.questions import QuestionSample, QuestionTask, Scored, make_question_sample, score_output
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tracing import Progress, capture, generate

NEW_TOKENS = 20  # of the answer; the first sentence is judged


@dataclass(frozen=True)
class QuestionRun:
    """`said`: the greedy continuation. `scored`: its judgement. `probability`: of the whole gold answer."""

    sample: QuestionSample
    finder: Finder
    said: str
    scored: Scored
    probability: float


def run_question(
    model: HookedMTA,
    task: QuestionTask,
    seed: int,
    *,
    begin: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> QuestionRun:
    """Sample number `seed` of `task`. `begin(what comes)`, then `progress(share of it)`; raise to stop.

    Raises `PromptError` and `TokenizerError` as `make_question_sample` does.
    """
    say = begin or (lambda words: None)
    tokenizer = check_vocabulary(model, model.tokenizer)
    sample = make_question_sample(tokenizer, task, seed)
    say("Running the prompt")
    trace = capture(model, sample.tokens, progress=progress)
    say("Looking where every head looks")
    finder = find(trace, fact_parts(sample), progress=progress)
    say("Reading the answer")
    said = greedy_answer(model, tokenizer, sample, progress=progress)
    return QuestionRun(sample, finder, said, judged(said, sample), gold_probability(model, sample))


def greedy_answer(
    model: HookedMTA, tokenizer: Tokenizer, sample: QuestionSample, *, progress: Progress | None = None
) -> str:
    """The greedy continuation of a prompt, 20 tokens or up to the end token."""
    return tokenizer.decode(generate(model, sample.tokens, NEW_TOKENS, progress=progress))


def judged(said: str, sample: QuestionSample) -> Scored:
    """A continuation by BABILong's rule."""
    return score_output(said, sample.answer, sample.question.text, sample.labels)


def gold_probability(model: HookedMTA, sample: QuestionSample) -> float:
    """Probability 0..1 that the gold answer's tokens come next, each after the ones before it."""
    ids = torch.tensor([sample.tokens.ids + sample.answer_ids])
    logits = end_logits(model, ids, len(sample.answer_ids) + 1)
    return math.exp(gold_log_probabilities(logits, [sample.answer_ids])[0])


def fact_parts(sample: QuestionSample) -> Parts:
    """The facts of a sample, seen from its last token; asked is the last that supports the answer."""
    spans: list[Span] = []
    for fact in sample.facts:
        name = fact.text + (" (support)" if fact.role == "support" else "")
        spans.append(Span(name, next_letter(spans), fact.start, fact.stop))
    supports = [span for span, fact in zip(spans, sample.facts, strict=True) if fact.role == "support"]
    return Parts(supports[-1], tuple(spans), len(sample.tokens) - 1, sample.sentences)


def fact_spans(sample: QuestionSample, tokens: Tokens | None = None) -> tuple[Span, ...]:
    """The facts and the question, as the Attention page names them.

    `tokens`: the sample's text encoded anew, which may be cut into other tokens at the joints.
    """
    question = sample.question
    own = (*fact_parts(sample).all, Span("question", QUESTION, question.start, question.stop))
    texts = [*(fact.text for fact in sample.facts), question.text]
    return found_again(own, texts, sample.tokens, tokens)
