"""Batches for the needle model, put together from tables of encoded sentences.

A batch depends on the configuration's data fields, the seed and the step alone, so a resumed run and
the twin see the same sequences. needle_text.py owns the text, needle_names.py the cities.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from tokenizers import Tokenizer as Library

from mta_viz.errors import MtaVizError
from mta_viz.recipes.needle_config import NeedleConfig, most_needles
from mta_viz.recipes.needle_names import CityNames
from mta_viz.recipes.needle_text import SentenceTable
from mta_viz.recipes.needle_tokenizer import BOS
from mta_viz.recipes.trainer import Batch
from mta_viz.tasks.cities import KNOWN_NUMBERS
from mta_viz.tasks.needles import PAPER_NEEDLE
from mta_viz.tasks.seeding import stream_seed

AT_THE_END = 0.1  # share of samples with the asked needle first of all, and as many with it last
CANDIDATES = 512  # places looked at for whole sentences of a given total length
Row = tuple[np.ndarray, np.ndarray]


class NeedleBatches:
    """Step -> `Batch` on the CPU: tokens [row, length + 1] and their loss weights."""

    def __init__(self, library: Library, tables: Sequence[SentenceTable], config: NeedleConfig) -> None:
        self._config, self._tables = config, tuple(tables)
        sentence, after = PAPER_NEEDLE.split("{value}")
        before, link = sentence.rstrip().split(" {city}")
        self._bos = _ids(library, BOS, special=True)
        self._space, self._after = _ids(library, " "), _ids(library, after)
        # a city's and a number's tokens do not depend on their neighbours, so all are encoded once
        self._before, self._link = _ids(library, before), _ids(library, link)
        self._cities = CityNames(library, config)
        self._values = [_ids(library, f" {number}") for number in KNOWN_NUMBERS]

    def __call__(self, step: int) -> Batch:
        """The batch of one step: even rows hold needles, odd ones plain text."""
        rng = np.random.default_rng(stream_seed("needle batches", self._config.seed, step))
        length = int(rng.choice(self._config.length_mixture))
        rows = max(2, min(64, self._config.tokens_per_step // length))
        made = [
            self._needle_row(rng, length) if row % 2 == 0 else self._plain_row(rng, length)
            for row in range(rows)
        ]
        tokens = torch.from_numpy(np.stack([ids for ids, _ in made]).astype(np.int64))
        return Batch(tokens, torch.from_numpy(np.stack([weights for _, weights in made])))

    def _table(self, rng: np.random.Generator) -> SentenceTable:
        return self._tables[rng.integers(len(self._tables))]

    def _plain_row(self, rng: np.random.Generator, length: int) -> Row:
        """BOS and running text from a sentence's start, cut at the end."""
        table = self._table(rng)
        starts = table.starts[: np.searchsorted(table.starts, len(table.ids) - length - 1)]
        if not len(starts):
            raise _too_short(length)
        first = int(rng.choice(starts)) + 1  # without the separator
        ids = np.concatenate([self._bos, table.ids[first : first + length]])
        return ids, np.ones(length + 1, dtype=np.float32)

    def _needle_row(self, rng: np.random.Generator, length: int) -> Row:
        """BOS, whole sentences with needles between them, the question and its answer."""
        count = int(rng.integers(1, most_needles(length) + 1))
        facts = self._facts(rng, count)
        needles = [np.concatenate([self._space, *fact, self._after]) for fact in facts]
        question, value = facts[0]
        ending = np.concatenate([self._space, question, value, self._after])
        # the first piece loses its separator, which makes room for BOS
        budget = length + 1 - sum(map(len, needles)) - len(ending)
        text, places = self._haystack(rng, budget)
        body = np.concatenate([*_interleaved(rng, text, places, needles), ending])
        ids = np.concatenate([self._bos, body[1:]])
        weights = np.full(length + 1, self._config.haystack_weight, dtype=np.float32)
        weights[-(len(value) + len(self._after)) :] = self._config.answer_weight
        return ids, weights

    def _facts(self, rng: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The tokens of question and value, all different; the first is asked for."""
        cities = self._cities.draw(rng, count)
        values = rng.choice(len(self._values), count, replace=False)
        questions = [np.concatenate([self._before, self._cities.ids[city], self._link]) for city in cities]
        return [(question, self._values[v]) for question, v in zip(questions, values, strict=True)]

    def _haystack(self, rng: np.random.Generator, budget: int) -> tuple[np.ndarray, np.ndarray]:
        """Consecutive sentences of exactly `budget` tokens, and where needles may go between.

        Whole sentences if a few hundred places hold such a run; otherwise the first one is cut.
        """
        table = self._table(rng)
        if len(table.ids) < budget:
            raise _too_short(budget)
        starts = table.starts[: np.searchsorted(table.starts, len(table.ids) - budget, side="right")]
        tried = starts[rng.integers(len(starts), size=CANDIDATES)]
        fitting = tried[table.is_start[tried + budget]]
        if len(fitting):
            first = int(fitting[0])
            text = table.ids[first : first + budget]
        else:
            ends = table.starts[np.searchsorted(table.starts, budget) :]
            first = int(rng.choice(ends)) - budget
            text = np.concatenate([self._space, table.ids[first + 1 : first + budget]])
        places = np.flatnonzero(table.is_start[first : first + budget + 1])
        return text, np.union1d(places, [0])


def _too_short(length: int) -> MtaVizError:
    return MtaVizError(
        f"The training text is shorter than a sequence of {length} tokens; give a larger corpus, more "
        "grammar_sentences or shorter lengths."
    )


def _interleaved(
    rng: np.random.Generator, text: np.ndarray, places: np.ndarray, needles: list[np.ndarray]
) -> list[np.ndarray]:
    """Parts of `text` with the needles between; the first needle, the asked one, often outermost."""
    at = places[rng.integers(len(places), size=len(needles))]
    rank = rng.random(len(needles))
    end = rng.random()
    if end < 2 * AT_THE_END:
        at[0], rank[0] = (places[0], -1.0) if end < AT_THE_END else (places[-1], 2.0)
    parts, done = [], 0
    for index in np.lexsort((rank, at)):
        parts += [text[done : at[index]], needles[index]]
        done = at[index]
    return [*parts, text[done:]]


def _ids(library: Library, text: str, *, special: bool = False) -> np.ndarray:
    ids = [library.token_to_id(text)] if special else library.encode(text, add_special_tokens=False).ids
    return np.array(ids, dtype=np.int32)


class Prefetched:
    """Makes the next step's batch in a thread during the present one, and moves batches to `device`."""

    def __init__(self, batches: Callable[[int], Batch], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="needle-batches")
        self._ahead: dict[int, Future[Batch]] = {}

    def __call__(self, step: int) -> Batch:
        """The batch of `step`, whatever was asked before."""
        future = self._ahead.pop(step, None) or self._pool.submit(self._batches, step)
        self._ahead = {step + 1: self._pool.submit(self._batches, step + 1)}
        batch = future.result()
        return Batch(batch.tokens.to(self._device), batch.weights.to(self._device))

    def close(self) -> None:
        """Stop the thread."""
        self._pool.shutdown(cancel_futures=True)
