"""Prompts from a file: every problem is said by line, and a sample is its text as the tokenizer writes it."""

import json

import pytest

from mta_viz.errors import ConfigError, FileError, PromptError
from mta_viz.run.named_tasks import parse_task, read_task, series_of
from mta_viz.tokenizers.builtin import BytesTokenizer
from tests.tasks.test_whole_prompts import KINDS, check_answer, check_spans, tokenizer_of

ROME = {
    "prompt": "Ann is in Rome. Ben is in Oslo. He sang. Ann is in",
    "answer": "Rome",
    "spans": [{"kind": "needle", "start": 16, "stop": 31}, {"kind": "asked", "start": 0, "stop": 15}],
}


def written(*samples: object) -> bytes:
    return "\n".join(sample if isinstance(sample, str) else json.dumps(sample) for sample in samples).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_sample_is_its_text_encoded(kind):
    tokenizer = tokenizer_of(kind)
    sample = parse_task(written(ROME), "x.jsonl").sample(tokenizer, 0)
    assert sample.tokens == tokenizer.encode(ROME["prompt"])
    check_answer(tokenizer, sample)
    check_spans(tokenizer, sample.tokens, sample.spans[:-1])
    kinds = [(span.kind, span.text, span.value) for span in sample.spans[:-1]]
    assert kinds == [  # in order of position; the prompt's last sentence is its question
        ("asked", "Ann is in Rome.", "Rome"),
        ("needle", "Ben is in Oslo.", ""),
        ("question", "Ann is in", "Rome"),
    ]
    assert len(sample.sentences) == 1  # "He sang." alone is no fact


@pytest.mark.parametrize(
    ("prompt", "answer", "more"),
    [("2 + 2 =", "4", " 4"), ("2 + 2 =", " 4", " 4"), ("2 + 2 = ", "4", "4"), ("It says\n", "so", "so")],
)
def test_a_space_goes_before_the_answer_unless_white_space_stands_there(prompt, answer, more):
    sample = parse_task(written({"prompt": prompt, "answer": answer}), "x").sample(BytesTokenizer(), 0)
    assert bytes(sample.answer_ids).decode() == more and sample.answer == answer.strip()


def test_problems_are_said_by_their_line_and_lines_that_were_not_looked_at_counted():
    lines = [
        {"prompt": 3},
        "",
        {"prompt": "a", "answer": "b", "spans": [{"kind": "x", "start": -1, "stop": 2.5}], "more": 1},
        "{nope",
        {"prompt": "ab", "answer": " ", "spans": [{"kind": "asked", "start": 1, "stop": 3}]},
        {"prompt": "ab", "answer": "c", "spans": [{"kind": "asked", "start": 0, "stop": 1}] * 2},
        *[{"answer": "b"}] * 20,
    ]
    with pytest.raises(ConfigError) as raised:
        parse_task(written(*lines), "x.jsonl")
    *problems, rest = raised.value.problems
    assert problems[:11] == [
        "line 1: prompt is 3; expected a text",
        "line 1: 'answer' is missing",
        "line 3: spans[0].kind is 'x'; expected 'asked', 'needle' or 'question'",
        "line 3: spans[0].start is -1; expected at least 0",
        "line 3: spans[0].stop is 2.5; expected a whole number",
        "line 3: unknown field 'more'; known are prompt, answer, spans",
        "line 4: it is no JSON: key must be a string at line 1 column 2",
        "line 5: the span 'asked' of characters 1 to 3 is not inside the prompt of 2",
        "line 5: the answer is white space",
        "line 6: 2 spans are 'asked'; at most 1 is",
        "line 7: 'prompt' is missing",
    ]
    assert len(problems) == 20 and rest == "the 10 lines after it were not looked at"
    assert "The task in x.jsonl" in str(raised.value) and '"prompt": "..."' in str(raised.value)
    with pytest.raises(ConfigError, match="it has no line"):
        parse_task(b"\n \n", "x.jsonl")


def test_a_file_is_a_series_that_ends(tmp_path):
    file = tmp_path / "small.jsonl"
    file.write_bytes(written(ROME, ROME | {"answer": "Oslo"}))
    series = series_of(str(file), 100)
    assert (series.name, series.most) == ("file", 2) and "small.jsonl (sha256 " in series.setting
    assert [sample.answer for sample in series.samples(BytesTokenizer(), 2, 0)] == ["Rome", "Oslo"]
    assert (series.count(None, 120), series.count(None, 120, 1), series.count(1, 120)) == (2, 1, 1)
    for wanted, seed in ((3, 0), (2, 1), (None, 2)):
        with pytest.raises(PromptError, match=f"samples from number {seed} on are asked for; .* there are 2"):
            series.count(wanted, 120, seed)
    with pytest.raises(PromptError, match="has 2 samples, counted from 0; there is no 2"):
        read_task(file).sample(BytesTokenizer(), 2)


def test_what_is_no_task_or_no_file_is_refused(tmp_path):
    with pytest.raises(PromptError, match="'poems' is no task; expected needle, pairs, or a file"):
        series_of("poems", 100)
    with pytest.raises(FileError, match="is missing"):
        series_of(str(tmp_path / "none.jsonl"), 100)
    with (tmp_path / "large.jsonl").open("wb") as large:
        large.truncate(65 * 2**20)
    with pytest.raises(FileError, match=r"more than 67.1 MB"):
        series_of(str(tmp_path / "large.jsonl"), 100)


def test_a_series_without_an_end_gives_as_many_as_are_wanted():
    for name, words in (("needle", "4 needles in 700 tokens"), ("pairs", "3 names x 3 cities in 700 tokens")):
        series = series_of(name, 700)
        assert series.name == name and series.setting.startswith(words)
        assert (series.count(None, 120), series.count(7, 120)) == (120, 7)
        assert [len(sample.tokens) for sample in series.samples(BytesTokenizer(), 2, 3)] == [700, 700]
