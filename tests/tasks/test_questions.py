"""Question samples: exact budget, gold spans, chance; BABILong's rule of scoring, by hand."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from story_solver import solve

from mta_viz.errors import MtaVizError, PromptError
from mta_viz.tasks import grammar
from mta_viz.tasks.questions import CUE, QuestionTask, make_question_sample, score_output
from mta_viz.tasks.stories import OBJECTS, PEOPLE, PLACES, TASKS, make_story
from mta_viz.tokenizers.builtin import BytesTokenizer, CharTokenizer
from mta_viz.training.needle_data import as_tokenizer, train_tokenizer

TOKENIZER = as_tokenizer(train_tokenizer(itertools.islice(grammar.sentences(1, "tests"), 300), 700))
BOOK = " ".join(itertools.islice(grammar.sentences(2, "tests"), 150))
BOOK += " The Pantry was shut. " + " ".join(itertools.islice(grammar.sentences(3, "tests"), 50))


@settings(max_examples=25)
@given(
    st.sampled_from(list(TASKS)),
    st.just(0) | st.integers(20, 1500),
    st.sampled_from([None, BOOK]),
    st.integers(0, 10**6),
    st.sampled_from([TOKENIZER, BytesTokenizer()]),
)
def test_tokens_of_distraction_are_exact_and_spans_decode_to_their_sentences(
    name, distraction, haystack, seed, tokenizer
):
    sample = make_question_sample(tokenizer, QuestionTask(name, distraction, haystack), seed)
    ids, story = sample.tokens.ids + sample.answer_ids, make_story(name, seed)
    encoded = [tokenizer.encode(text).ids for text in (*(fact.text for fact in story.facts), " ")]
    bos = 0 if tokenizer.bos_id is None else 1
    facts = sum(len(ids) - bos for ids in encoded[:-1]) + len(story.facts) * (len(encoded[-1]) - bos)
    question = len(tokenizer.encode(story.query.text + CUE).ids) - bos
    assert len(sample.tokens) == bos + facts + question + distraction
    for span in sample.spans:
        assert tokenizer.decode(ids[span.start : span.stop]) == span.text
    assert [span.text for span in sample.facts] == [fact.text for fact in story.facts]
    supports = [at for at, span in enumerate(sample.facts) if span.role == "support"]
    assert tuple(supports) == story.supports
    assert sample.question.text == story.query.text + CUE
    assert sample.question.stop == len(sample.tokens) and sample.tokens.text.endswith(CUE)
    assert sample.spans[-1].role == "answer" and sample.spans[-1].text == f" {story.answer}"
    rest = tokenizer.decode(ids[bos : sample.question.start])
    for span in sample.facts:
        rest = rest.replace(span.text, "", 1)
    assert not [name for name in (*PEOPLE, *PLACES, *OBJECTS) if name.lower() in rest.lower()]
    taken = {position for span in sample.spans for position in range(span.start, span.stop)}
    assert not taken & set(sample.sentences) and bool(sample.sentences) == bool(distraction)


def test_the_same_story_is_told_at_every_length_and_facts_lie_all_over():
    short, long = (make_question_sample(TOKENIZER, QuestionTask("qa2", n), 3) for n in (0, 900))
    assert [span.text for span in short.facts] == [span.text for span in long.facts]
    samples = [make_question_sample(TOKENIZER, QuestionTask("qa1", 900), seed) for seed in range(30)]
    depths = [span.start / len(sample.tokens) for sample in samples for span in sample.facts]
    assert min(depths) < 0.1 and max(depths) > 0.85 and 0.4 < sum(depths) / len(depths) < 0.6


def test_an_oracle_is_always_right_and_chance_is_what_random_labels_get():
    for name in TASKS:
        task, rng, hits, n = QuestionTask(name), random.Random(f"guess {name}"), 0, 100 * 10
        for seed in range(100):
            story = make_story(name, seed)

            def right(label, story=story, task=task):
                return score_output(f" {label}.", story.answer, story.query.text, task.labels).right

            (oracle,) = solve([fact.text for fact in story.facts], story.query.text)
            assert right(oracle) and sum(map(right, task.labels)) == 1  # so chance is 1 / labels
            hits += sum(right(rng.choice(task.labels)) for _ in range(10))
        chance = task.chance
        assert abs(hits - n * chance) < 3.3 * math.sqrt(n * chance * (1 - chance)), name  # 1 in 1,000
    assert QuestionTask("qa3").chance == 1 / 6 and QuestionTask("qa5").chance == 1 / 7


@pytest.mark.parametrize(
    ("output", "right", "named"),
    [
        (" pantry", True, ("pantry",)),
        (" The PANTRY. Or the turret.", True, ("pantry",)),  # only the first sentence counts
        (" turret. pantry.", False, ("turret",)),
        (" pantry or turret", False, ("pantry", "turret")),  # two labels
        (" from the veranda to the pantry", True, ("pantry",)),  # the veranda is in the question
        (" pantry, the pantry", True, ("pantry",)),
        (" pantrymaid!\nso", True, ("pantry",)),  # letters within a word
        (". pantry", False, ()),
        ("", False, ()),
    ],
)
def test_scoring_by_hand(output, right, named):
    score = score_output(output, "pantry", "What lies north of the veranda?", PLACES)
    assert (score.right, score.named) == (right, named)


def test_errors_say_what_does_not_fit_and_by_how_much():
    with pytest.raises(PromptError, match=r"qa6.*expected one of qa1, .*-1 tokens.*text is empty"):
        QuestionTask("qa6", -1, " ")
    with pytest.raises(PromptError, match=r"\d+ tokens too short: 900"):
        make_question_sample(TOKENIZER, QuestionTask("qa1", 900, "One. The pantry was shut. Two."), 0)
    with pytest.raises(PromptError, match="1 too few for a word"):
        make_question_sample(TOKENIZER, QuestionTask("qa1", 1), 0)
    with pytest.raises(MtaVizError):
        make_question_sample(CharTokenizer(), QuestionTask("qa1", 0), 0)
