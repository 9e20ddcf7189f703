"""What a finetuned model reads: prompts with answers, and running text beside them, of seed and step alone.

Owns which samples are trained on and which are held out; what a sample is belongs to `tasks`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mta_viz.errors import MtaVizError, PromptError
from mta_viz.run.corpus import VERBATIM, corpus_files, read_plain
from mta_viz.run.named_tasks import read_divisible
from mta_viz.tasks import grammar
from mta_viz.tasks.facts import DEPTHS, Depth, NeedleSample, Task, in_turn
from mta_viz.tasks.needles import HELD_OUT, KNOWN, NEEDLES, NeedleTask, PairsTask, Words
from mta_viz.tasks.words import made_up_cities, stream_seed
from mta_viz.tasks.written import WrittenTask
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.training.finetune_settings import JSONL, FinetuneConfig
from mta_viz.training.needle_data import HELD_OUT_SHARE, HELD_OUT_STREAM, flowing_text, read_book
from mta_viz.training.trainer import Batch

STREAM = "finetuning text"
CHARACTERS = 8  # of text a token: enough for most tokenizers, and twice as many are taken where it is not
SHARES = 2**20
ATTEMPTS = 8


@dataclass(frozen=True)
class Text:
    """Running text: `prose`, `others` with their line breaks (neither: the grammar), and what is held out."""

    prose: tuple[str, ...]
    others: tuple[str, ...]
    held_out: dict[str, str]

    def passage(self, number: int, n_characters: int, *, prose: bool = False) -> str:
        """The passage of that number, of prose alone or of all: from a place in it on, again at the end."""
        texts = self.prose if prose else self.prose + self.others
        if not texts:
            return _joined(grammar.paragraphs(number, STREAM), n_characters)
        at = number % sum(map(len, texts))
        for text in texts:
            if at < len(text):
                start = text.rfind("\n", 0, at) + 1
                around = -(-n_characters // len(text))
                return (text[start:] + "\n" + (text + "\n") * around)[:n_characters]
            at -= len(text)
        raise AssertionError("the number lies within the texts")


def read_text(corpus: Path | None, n_tokens: int) -> Text:
    """The files of a folder, all but the end of each, or the grammar; of each kind held-out text too.

    Of a kind no more is held out than `n_tokens` need. Raises `MtaVizError` for a folder without text.
    """
    n_characters = CHARACTERS * n_tokens // 2
    held_out = {"grammar": _joined(grammar.paragraphs(0, HELD_OUT_STREAM), n_characters)}
    if corpus is None:
        return Text((), (), held_out)
    files, others = corpus_files(corpus), list[str]()
    books = [read_book(file) for file in files if file == corpus or file.suffix not in VERBATIM]
    ends = (flowing_text(book.held_out)[: n_characters // len(books)] for book in books)
    held_out = ({"corpus": "\n".join(ends)} if books else {}) | held_out
    for ending in VERBATIM:
        texts = [read_plain(file) for file in files if file != corpus and file.suffix == ending]
        others += [part for text in texts if (part := text[: _cut(text)]).strip()]
        end = "\n".join(text[_cut(text) :][: n_characters // len(texts)] for text in texts)
        held_out |= {f"corpus {ending}": end} if len(end) > CHARACTERS else {}
    if not books and not others:
        raise MtaVizError(f"The files of the corpus {corpus} are empty; give some with text")
    return Text(tuple(flowing_text(book.training) for book in books), tuple(others), held_out)


def _cut(text: str) -> int:
    return int(len(text) * (1 - HELD_OUT_SHARE))


def _joined(paragraphs: Iterator[tuple[str, ...]], n_characters: int) -> str:
    parts, length = list[str](), 0
    while length < n_characters:
        parts.append(" ".join(next(paragraphs)))
        length += len(parts[-1]) + 1
    return "\n".join(parts)[:n_characters]


@dataclass(frozen=True)
class FinetuneBatch:
    """Prompts with their answers, which alone count, and pieces of text; None for what a run has not."""

    answers: Batch | None
    text: Int[Tensor, "piece position"] | None

    def to(self, device: torch.device) -> "FinetuneBatch":
        """The same there."""
        answers = None if self.answers is None else self.answers.to(device)
        return FinetuneBatch(answers, None if self.text is None else self.text.to(device))


@dataclass(frozen=True)
class FinetuneBatches:
    """Step -> its batch on the CPU."""

    config: FinetuneConfig
    tokenizer: Tokenizer
    text: Text
    task: str | WrittenTask

    def __call__(self, step: int) -> FinetuneBatch:
        """All prompts of a step are of one kind and one length."""
        config = self.config
        answers = None if self.task == "text" else answer_batch(self.samples(step))
        if self.task != "text" and config.keep == "none":
            return FinetuneBatch(answers, None)
        n_pieces, length = config.pieces(step)
        rows = [self._piece(length, step, row) for row in range(n_pieces)]
        return FinetuneBatch(answers, torch.tensor(rows))

    def samples(self, step: int) -> list[NeedleSample]:
        """The prompts of a step."""
        config, seed = self.config, self.config.seed
        length = config.lengths[stream_seed("finetuning length", seed, step) % len(config.lengths)]
        single = stream_seed("finetuning kind", seed, step) % SHARES < config.single_key * SHARES
        return [self._sample(length, single, seed, step, row) for row in range(config.batch_size)]

    def check(self) -> None:
        """Make a prompt of every kind and length. Raises `MtaVizError` where one cannot be made."""
        if self.task != "text":
            kinds = {self.config.single_key > 0, self.config.single_key == 1}
            for length, single in itertools.product(self.config.lengths, kinds):
                self._sample(length, single, self.config.seed, -1)
        self(0)

    def longest(self) -> int:
        """Tokens of the longest prompt of a step, its answer left out; 0 where there are none."""
        if self.task == "text":
            return 0
        if not isinstance(self.task, WrittenTask):
            return max(self.config.lengths)
        prompts = (sample.prompt for sample in self.task.samples)
        return len(self.tokenizer.encode(max(prompts, key=len)))

    def _sample(self, length: int, single: bool, *place: int) -> NeedleSample:
        """The first that can be made: now and then no choice of sentences has just this length."""
        for attempt in range(ATTEMPTS):
            number = stream_seed("finetuning sample", *place, attempt)
            try:
                return self._task(number, length, single).sample(self.tokenizer, number)
            except PromptError as error:
                problem = error
        raise problem

    def _task(self, number: int, length: int, single: bool) -> Task:
        if isinstance(self.task, WrittenTask):
            return _Written(self.task)
        # half of the prompts in the corpus's own sentences, where it has prose
        of_corpus = bool(self.text.prose) and number % 2 == 1
        haystack = self.text.passage(number >> 1, 4 * CHARACTERS * length, prose=True) if of_corpus else None
        if self.task == "needle" or single:
            few = NEEDLES if self.task == "needle" else min(NEEDLES, self.config.names * self.config.cities)
            return needle_task(few, length, None, held_out=False, haystack=haystack)
        cities = KNOWN.cities + made_up_cities(self.config.made_up_cities)
        return pairs_task(
            self.config, length, _depth(number), replace(KNOWN, cities=cities), haystack=haystack
        )

    def _piece(self, length: int, *place: int) -> list[int]:
        """BOS, where the tokenizer has one, and running text."""
        number = stream_seed("finetuning piece", self.config.seed, *place)
        n_characters = CHARACTERS * length
        while len(ids := self.tokenizer.encode(self.text.passage(number, n_characters)).ids) < length:
            n_characters *= 2
        return list(ids[:length])


def _depth(number: int) -> Depth:
    """The first or the last fact of all in two prompts of five, any (None) in the others.

    Measured prompts ask for these two in two of five, and drawn from all nine alike only two in nine did:
    kernels so trained answered them worse than the facts between (MODELS.md).
    """
    return DEPTHS[-((number >> 8) % 2)] if (number >> 4) % 10 < 4 else None


def read_named(task: str) -> str | WrittenTask:
    """A task by its name, or what its file holds. Raises ConfigError for a file of a single sample."""
    return read_divisible(Path(task)) if task.endswith(JSONL) else task


@dataclass(frozen=True)
class _Written:
    """The part of a file that is trained on, without end."""

    task: WrittenTask

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        return self.task.sample(tokenizer, seed % self.task.n_trained)


def pairs_task(
    config: FinetuneConfig, length: int, depth: Depth, words: Words, *, haystack: str | None = None
) -> PairsTask:
    """Pairs of `words` in a prompt of `length` tokens."""
    return PairsTask(config.names, config.cities, length, depth, haystack, **vars(words))


def needle_task(
    n_needles: int, length: int, depth: Depth, *, held_out: bool, haystack: str | None = None
) -> NeedleTask:
    """Needles of words that training never sees, or of the others."""
    words = HELD_OUT if held_out else KNOWN
    return NeedleTask(n_needles, length, depth, haystack=haystack, cities=words.cities, numbers=words.numbers)


def held_out_samples(
    config: FinetuneConfig, tokenizer: Tokenizer, task: str | WrittenTask
) -> list[NeedleSample]:
    """The samples a run is measured on: words that it never trains on, the middle one of its lengths.

    The asked sentence lies at each depth in turn. Of a file its last tenth, which is not trained on.
    """
    n, length = config.evaluation_samples, config.usual_length
    if task == "text":
        return []
    if isinstance(task, WrittenTask):
        n_held_out = len(task.samples) - task.n_trained
        return in_turn(tokenizer, (task,), min(n, n_held_out), task.n_trained)
    tasks: list[Task] = [
        needle_task(NEEDLES, length, depth, held_out=True)
        if task == "needle"
        else pairs_task(config, length, depth, HELD_OUT)
        for depth in DEPTHS
    ]
    return in_turn(tokenizer, tasks, n, config.evaluation_seed)


def answer_batch(samples: list[NeedleSample]) -> Batch:
    """Prompts with their answers, filled up at the end, which nothing before it sees; answers count alone."""
    rows = [torch.tensor(sample.tokens.ids + sample.answer_ids) for sample in samples]
    counts = [torch.tensor([0.0] * len(sample.tokens) + [1.0] * len(sample.answer_ids)) for sample in samples]
    return Batch(pad_sequence(rows, batch_first=True), pad_sequence(counts, batch_first=True))
