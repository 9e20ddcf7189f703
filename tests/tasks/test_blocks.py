"""Block finding: what a sequence promises, checked without the generator's own code."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.errors import ConfigError
from mta_viz.tasks.blocks import BlockBatch, BlockTask
from mta_viz.tasks.words import stream_seed

LETTERS = "abcdefghijklmnopqrstuvwxyz.#_"


@st.composite
def tasks(draw: st.DrawFn) -> BlockTask:
    n_letters = draw(st.integers(2, 12))
    return BlockTask(
        n_letters=n_letters,
        n_query=draw(st.integers(1, n_letters - 1)),
        n_blocks=draw(st.integers(1, 40)),
        output=draw(st.sampled_from(["all", "first", "last"])),
    )


def batch_of(task: BlockTask, size: int, seed: int) -> BlockBatch:
    return task.batch(size, torch.Generator().manual_seed(seed))


def text_of(ids: list[int]) -> str:
    assert ids[0] == 29
    return "".join(LETTERS[i] for i in ids[1:])


@settings(max_examples=60)
@given(tasks(), st.integers(0, 2**32))
def test_every_sequence_has_one_target_and_its_answer(task: BlockTask, seed: int) -> None:
    made = batch_of(task, 4, seed)
    for ids, mask, target in zip(
        made.tokens.tolist(), made.answer.tolist(), made.target.tolist(), strict=True
    ):
        haystack, rest = text_of(ids).split("#")
        query, answer = rest[: task.n_query], rest[task.n_query :]
        blocks = haystack.split(".")
        assert [len(set(block)) for block in blocks] == [task.n_letters] * task.n_blocks
        assert len(set(query)) == task.n_query
        assert [i for i, block in enumerate(blocks) if set(query) <= set(block)] == [target]
        letters = blocks[target]
        assert answer == {"all": letters, "first": letters[0], "last": letters[-1]}[task.output]
        assert [i for i, marked in enumerate(mask) if marked] == list(range(len(ids) - len(answer), len(ids)))
        assert text_of(ids)[slice(*[p - 1 for p in span(task, target)])] == letters


def span(task: BlockTask, block: int) -> tuple[int, int]:
    positions = task.block_positions(block)
    return positions.start, positions.stop


@settings(max_examples=30)
@given(tasks())
def test_length_is_as_announced(task: BlockTask) -> None:
    assert batch_of(task, 2, 0).tokens.shape == (2, task.n_tokens)


def test_lengths_of_the_two_published_sizes() -> None:
    assert BlockTask(n_letters=5, n_blocks=52).n_tokens == 1 + 52 * 5 + 51 + 1 + 2 + 5 == 320
    assert BlockTask(n_letters=8, n_blocks=35).n_tokens == 1 + 35 * 8 + 34 + 1 + 2 + 8 == 326


def test_targets_queries_and_letters_are_spread_evenly() -> None:
    task = BlockTask(n_blocks=4)
    made = batch_of(task, 8000, 1)
    places = torch.bincount(made.target, minlength=4) / 8000
    assert (places - 0.25).abs().max() < 0.03
    letters = made.tokens[:, 1 : 1 + 4 * 6]
    share = torch.bincount(letters[letters < 26], minlength=26) / (8000 * 20)
    assert (share - 1 / 26).abs().max() < 0.003
    query_start = made.tokens.shape[1] - 7
    first_query = made.tokens[:, query_start]
    place_in_block = (made.tokens[:, -5:] == first_query[:, None]).float().mean(0)
    assert (place_in_block - 0.2).abs().max() < 0.03


def test_a_seed_gives_its_sequences_again_and_another_gives_others() -> None:
    task = BlockTask()
    first, again, other = (task.sample_range(0, 20, seed).tokens for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not (first == other).all(1).any()


def test_a_sample_does_not_depend_on_how_many_are_asked() -> None:
    task = BlockTask(n_blocks=5)
    assert torch.equal(task.sample_range(0, 130, 0).tokens[:60], task.sample_range(0, 60, 0).tokens)


def test_streams_do_not_meet() -> None:
    seeds = {stream_seed(name, a, b) for name in ("x", "y") for a in range(20) for b in range(20)}
    assert len(seeds) == 800
    assert stream_seed("blocks training", 1, 23) != stream_seed("blocks training", 12, 3)


def test_seeds_do_not_depend_on_the_process() -> None:
    assert stream_seed("blocks evaluation", 0, 0) == 7949036652653207612


@pytest.mark.parametrize(
    ("sizes", "word"),
    [
        ({"n_letters": 1, "n_query": 0}, "n_letters"),
        ({"n_letters": 26}, "n_letters"),
        ({"n_query": 5}, "n_query is 5; expected 1 to 4"),
        ({"n_blocks": 0}, "n_blocks"),
        ({"output": "middle"}, "output is 'middle'"),
    ],
)
def test_impossible_tasks_are_refused(sizes: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        BlockTask(**sizes)


def test_a_range_of_samples_is_a_part_of_all() -> None:
    task = BlockTask(n_blocks=3)
    whole, part = task.sample_range(0, 130, 4), task.sample_range(40, 120, 4)
    for name in ("tokens", "answer", "target"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[40:120])
