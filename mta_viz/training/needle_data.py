"""What a needle model reads: books and grammar, its own tokenizer, and the batches made of them.

The tokenizer is byte-level BPE in which digits and sentence ends stand alone. A space after a
sentence end is a token of its own, so a sentence has the same tokens wherever it stands, and tables
of encoded sentences can be put together freely. A batch depends on the settings of the data, the
seed and the step alone, so a resumed run and the twin see the same sequences.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from mta_viz.errors import MtaVizError
from mta_viz.printed import printable
from mta_viz.run.corpus import PROSE, corpus_files, read_plain
from mta_viz.tasks import grammar, words
from mta_viz.tasks.facts import split_sentences
from mta_viz.tasks.needles import MAX_NEEDLES, PAPER_NEEDLE
from mta_viz.tokenizers.hf_json import JsonTokenizer
from mta_viz.training.settings import NeedleConfig
from mta_viz.training.trainer import Batch

BOS, EOS = "<BOS>", "<EOS>"
HELD_OUT_SHARE = 0.05  # the end of each book
LONGEST = 128  # tokens of a sentence
ALIKE = 0.3  # share of sequences in which at least two cities begin or end with the same token
AT_THE_END = 0.1  # share of samples with the asked needle first of all, and as many with it last
CANDIDATES = 512  # places looked at for whole sentences of a given total length
TRAINING_STREAM, HELD_OUT_STREAM = "needle training", "needle held out"
_PATTERN = (
    r"(?<=[.!?]|[.!?][\"')]) "  # the space between two sentences
    r"| ?[0-9]"  # digits one by one, the first with its space
    r"| ?[\p{L}\p{M}]+"
    r"|'[\p{L}\p{M}]+"
    r"| ?[^\s\p{L}\p{M}0-9]"
    r"|\n| +(?= )|\s"
)
_HELD_OUT_CITY = re.compile(r"\b(?:" + "|".join(map(re.escape, words.HELD_OUT_CITIES)) + r")\b")
_NUMBER = re.compile(r"\d+")

Paragraph = tuple[str, ...]
Row = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Book:
    """One book's paragraphs, cut where its held-out end begins."""

    name: str
    training: tuple[Paragraph, ...]
    held_out: tuple[Paragraph, ...]


@dataclass(frozen=True)
class SentenceTable:
    """Encoded sentences end to end, each beginning with its separator.

    `ids` [token]; sentence s is ids[starts[s]:starts[s + 1]]; `is_start` [token + 1] marks starts and
    the end.
    """

    ids: np.ndarray
    starts: np.ndarray
    is_start: np.ndarray


def read_books(folder: Path) -> tuple[Book, ...]:
    """Every `*.txt` of a folder, by name, or one file. `MtaVizError` when there is none or one is empty."""
    return tuple(map(read_book, corpus_files(folder, (PROSE,))))


def read_book(file: Path) -> Book:
    """One of them: without empty lines a line is a paragraph, and of one line a sentence."""
    text = read_plain(file).replace("\r\n", "\n").strip()
    blocks = re.split(r"\n\s*\n" if re.search(r"\n\s*\n", text) else r"\n", text)
    paragraphs = [tuple(split_sentences(block)) for block in blocks if block.strip()]
    if len(paragraphs) == 1:
        paragraphs = [(sentence,) for sentence in paragraphs[0]]
    if len(paragraphs) < 2:
        raise MtaVizError(
            f"{printable(file)} holds {len(paragraphs)} paragraphs, lines or sentences; expected at least 2, "
            "of which one is held out. Add text to it, or leave it out."
        )
    # the last paragraphs, which hold about HELD_OUT_SHARE of the characters; at least one
    sizes = [sum(map(len, paragraph)) for paragraph in paragraphs]
    limit = (1 - HELD_OUT_SHARE) * sum(sizes)
    over = (index for index, done in enumerate(accumulate(sizes)) if done > limit)
    cut = max(1, next(over, len(sizes) - 1))
    return Book(file.stem, tuple(paragraphs[:cut]), tuple(paragraphs[cut:]))


def grammar_paragraphs(n_sentences: int, stream: str = TRAINING_STREAM) -> list[Paragraph]:
    """Paragraphs of the grammar with at least `n_sentences` sentences together."""
    paragraphs, count = [], 0
    for paragraph in grammar.paragraphs(0, stream):
        paragraphs.append(paragraph)
        count += len(paragraph)
        if count >= n_sentences:
            break
    return paragraphs


def may_train(sentence: str) -> bool:
    """Whether a sentence names no held-out city and no held-out number."""
    numbers = (int(match) for match in _NUMBER.findall(sentence) if len(match) < 4)
    return not _HELD_OUT_CITY.search(sentence) and not any(map(words.is_held_out, numbers))


def training_paragraphs(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    """The paragraphs without the sentences that `may_train` refuses."""
    kept = (tuple(filter(may_train, paragraph)) for paragraph in paragraphs)
    return [paragraph for paragraph in kept if paragraph]


def sentence_table(
    library: Library, paragraphs: Iterable[Paragraph], paragraph_break: str = "\n"
) -> SentenceTable:
    """Encode paragraphs; sentences of more than LONGEST tokens are left out."""
    texts = [
        (paragraph_break if index == 0 else " ", sentence)
        for paragraph in paragraphs
        for index, sentence in enumerate(paragraph)
    ]
    separators = {mark: library.encode(mark, add_special_tokens=False).ids for mark in ("\n", " ")}
    encodings = library.encode_batch([sentence for _, sentence in texts], add_special_tokens=False)
    rows = [
        separators[mark] + encoding.ids
        for (mark, _), encoding in zip(texts, encodings, strict=True)
        if 0 < len(encoding) <= LONGEST
    ]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(starts[-1]))
    is_start = np.zeros(len(ids) + 1, dtype=bool)
    is_start[starts] = True
    return SentenceTable(ids, starts, is_start)


def flowing_text(paragraphs: Iterable[Paragraph]) -> str:
    """Paragraphs as one text: sentences joined by spaces, paragraphs by newlines."""
    return "\n".join(" ".join(paragraph) for paragraph in paragraphs)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Library:
    """A tokenizer trained on `texts`; every byte has a token, so any text encodes.

    Deterministic: the same texts in the same order give the same file.
    """
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(BOS, special=True), AddedToken(EOS, special=True)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    library.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, library.token_to_id(BOS))]
    )
    return library


def as_tokenizer(library: Library) -> JsonTokenizer:
    """The trained tokenizer as the rest of the project reads it from its file."""
    return JsonTokenizer(library.to_str().encode())


class CityNames:
    """All names with their tokens, and the draw of those for one sequence.

    `ids[c]` are the tokens of city c with the space before it, which do not depend on its
    neighbours; the first len(KNOWN_CITIES) are real.
    """

    def __init__(self, library: Library, config: NeedleConfig) -> None:
        names = words.KNOWN_CITIES + words.made_up_cities(config.made_up_cities)
        encodings = library.encode_batch([f" {name}" for name in names], add_special_tokens=False)
        self.names = names
        self.ids = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        self._n_made_up = config.made_up_cities
        self._share = config.made_up_share if config.made_up_cities else 0.0
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for city, tokens in enumerate(self.ids):
            groups["first", int(tokens[0])].append(city)
            groups["last", int(tokens[-1])].append(city)
        # of cities with the same first or the same last token, in the order of the cities
        self._groups = [np.array(group) for group in groups.values() if len(group) > 1]

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Indices of `count` different cities."""
        n_made_up = int(rng.binomial(count, self._share))
        known = rng.choice(len(words.KNOWN_CITIES), count - n_made_up, replace=False)
        made_up = len(words.KNOWN_CITIES) + rng.choice(self._n_made_up, n_made_up, replace=False)
        cities = rng.permutation(np.concatenate([known, made_up]))
        if count == 1 or not self._groups or rng.random() >= ALIKE:
            return cities
        group = self._groups[rng.integers(len(self._groups))]
        alike = rng.choice(group, min(len(group), int(rng.integers(2, count + 1))), replace=False)
        return np.concatenate([alike, cities[~np.isin(cities, alike)]])[:count]


class NeedleBatches:
    """Step -> `Batch` on the CPU: tokens [row, length + 1] and their loss weights."""

    def __init__(self, library: Library, tables: Sequence[SentenceTable], config: NeedleConfig) -> None:
        self._config, self._tables = config, tuple(tables)
        sentence, after = PAPER_NEEDLE.split("{value}")
        before, link = sentence.rstrip().split(" {city}")
        self._bos = np.array([library.token_to_id(BOS)], dtype=np.int32)
        self._space, self._after = _ids(library, " "), _ids(library, after)
        # a city's and a number's tokens do not depend on their neighbours, so all are encoded once
        self._before, self._link = _ids(library, before), _ids(library, link)
        self._cities = CityNames(library, config)
        self._values = [_ids(library, f" {number}") for number in words.KNOWN_NUMBERS]

    def __call__(self, step: int) -> Batch:
        """The batch of one step: even rows hold needles, odd ones plain text."""
        rng = np.random.default_rng(words.stream_seed("needle batches", self._config.seed, step))
        length = int(rng.choice(self._config.length_mixture))
        rows = max(2, min(64, self._config.tokens_per_step // length))
        kinds = (self._needle_row, self._plain_row)
        made = [kinds[row % 2](rng, length) for row in range(rows)]
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
        most = max(1, min(MAX_NEEDLES, length // 32 - 1))  # which leaves room for text
        facts = self._facts(rng, int(rng.integers(1, most + 1)))
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


def _ids(library: Library, text: str) -> np.ndarray:
    return np.array(library.encode(text, add_special_tokens=False).ids, dtype=np.int32)
