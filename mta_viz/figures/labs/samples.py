"""One sample of a lab: every head's score of what is asked for, and one head's maps where it is asked for."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, TypeVar

from mta_viz.analysis.attention.changes import subtract
from mta_viz.analysis.attention.heads import HeadScores, Score
from mta_viz.analysis.attention.maps import AttentionMap, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.blocks import block_parts, block_region, block_sample, check_characters
from mta_viz.analysis.labs.finder import Finder, Parts, Region, StepCrop, find, needle_region, sample_parts
from mta_viz.analysis.labs.finder import step_crops as crops_of
from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.config import KernelPlace
from mta_viz.errors import PromptError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.attention.heads import score_map
from mta_viz.plots.attention.maps import SMALL, attention_map, difference_caption, difference_map
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.run.named_tasks import written_task
from mta_viz.run.tracing import Trace, capture
from mta_viz.tables import Table
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import NeedleSample, Task
from mta_viz.tasks.needles import PAPER_NEEDLE, WORDS, NeedleTask, PairsTask, WordsName
from mta_viz.tasks.questions import QuestionTask, make_question_sample
from mta_viz.tasks.written import WrittenTask
from mta_viz.tokenizers.base import Tokens

R = TypeVar("R")
USUAL_SCORES = ("span.final", "gain.kq", "gain.kq2", "gain.final")
MAP_PX, CROP_PX = 290, (300, 300)
Side = Literal["before", "after", "difference"]


@dataclass(frozen=True)
class LabSample:
    """A sample: its tokens, the parts that compete, and where queries that ask meet the asked keys."""

    tokens: Tokens
    parts: Parts
    region: Region | None = None


class OfSample(NamedFigure[R]):
    """A figure of one sample of a lab, which its parameters make."""

    @abstractmethod
    def sample(self, model: HookedMTA) -> LabSample:
        """Raises PromptError and TokenizerError for a sample that this model's tokenizer cannot write."""

    @property
    def sample_key(self) -> Hashable:
        """Equal only for equal samples."""
        kind = next(kind for kind in type(self).__mro__ if kind in KINDS)
        return kind.__name__, *(getattr(self, parameter.name) for parameter in fields(kind))

    def asked(self, source: Source) -> LabSample:
        """The sample, kept."""
        return source.remember(partial(self.sample, source.model), "lab sample", self.sample_key)

    def trace(self, source: Source) -> Trace:
        """Its run, kept."""
        make = partial(capture, source.model, self.asked(source).tokens, progress=source.progress)
        return source.remember_with_run(make, "lab run", self.sample_key)


class OfTask(ABC):
    """A sample of a task that hides facts or comes from a file: number `seed` of what `task` gives."""

    seed: int

    @abstractmethod
    def task(self, model: HookedMTA) -> Task:
        """What the sample is of."""

    def n_tokens(self, model: HookedMTA) -> int:
        """How long its prompt is, as the task says where it does."""
        task = self.task(model)
        length = task.length if isinstance(task, NeedleTask | PairsTask) else None
        return len(self.needle_sample(model).tokens) if length is None else length

    def needle_sample(self, model: HookedMTA) -> NeedleSample:
        """The sample. Raises PromptError and TokenizerError where this model's tokenizer cannot write it."""
        return self.task(model).sample(check_vocabulary(model, model.tokenizer), self.seed)

    def sample(self, model: HookedMTA) -> LabSample:
        """The needles, and question x asked needle."""
        sample = self.needle_sample(model)
        return LabSample(sample.tokens, sample_parts(sample), needle_region(sample))

    @property
    @abstractmethod
    def of_sweep(self) -> dict[str, Any]:
        """What a sweep of the same task has for its wording."""


@dataclass(frozen=True)
class Needles(OfTask):
    """A sample of the needle task: `length` in tokens (None: 512, or what the model was trained on).

    `depth` in per cent, None for anywhere; texts as `NeedleTask` has them; `seed` is the sample's number.
    """

    needles: int = 4
    length: int | None = None
    depth: float | int | None = 50
    seed: int = 0
    needle: str = PAPER_NEEDLE
    question: str | None = None
    haystack: str | None = None

    def task(self, model: HookedMTA) -> NeedleTask:
        length = min(512, model.config.n_ctx) if self.length is None else self.length
        return NeedleTask(self.needles, length, self.depth, self.needle, self.question, self.haystack)

    @property
    def of_sweep(self) -> dict[str, Any]:
        return {"needle": self.needle, "question": self.question, "haystack": self.haystack}


@dataclass(frozen=True)
class Pairs(OfTask):
    """A sample of the pairs task: `names` x `cities`, `length` in tokens (None: 256, or the trained length).

    `depth` in per cent, None for anywhere; `haystack` as in `PairsTask`; `seed` is the sample's number.
    `drawn_from`: all words, those that trainings of this project may see, or those that none sees.
    """

    names: int = 3
    cities: int = 3
    length: int | None = None
    depth: float | int | None = 50
    seed: int = 0
    haystack: str | None = None
    drawn_from: WordsName = "all"

    def task(self, model: HookedMTA) -> PairsTask:
        length = min(256, model.config.n_ctx) if self.length is None else self.length
        choices = WORDS[self.drawn_from]
        return PairsTask(self.names, self.cities, length, self.depth, self.haystack, **choices)

    @property
    def of_sweep(self) -> dict[str, Any]:
        return {"kind": "pairs", "haystack": self.haystack}


@dataclass(frozen=True)
class Written(OfTask):
    """Sample `seed`, counted from 0, of a file of prompts that holds `lines`."""

    lines: str = ""
    seed: int = 0

    def task(self, model: HookedMTA) -> WrittenTask:
        """What the sample is of. Raises ConfigError listing what is wrong with the lines."""
        return written_task(self.lines)

    @property
    def of_sweep(self) -> dict[str, Any]:
        return {"kind": "file", "lines": self.lines}


@dataclass(frozen=True)
class Blocks:
    """Sequence `number` of the block task's evaluation: blocks of `letters`, `asked` letters as the query."""

    letters: int = 5
    asked_letters: int = 2
    blocks: int = 52
    answer: Literal["all", "first", "last"] = "all"
    number: int = 0

    @property
    def task(self) -> BlockTask:
        """What the sequence is of."""
        return BlockTask(self.letters, self.asked_letters, self.blocks, self.answer)

    def sample(self, model: HookedMTA) -> LabSample:
        """The blocks, and query letters x target block."""
        check_characters(model)
        sample = block_sample(self.task, self.number)
        return LabSample(sample.tokens, block_parts(sample), block_region(sample))


@dataclass(frozen=True)
class Questions:
    """A question about a story: sample `seed` of a `task` such as "qa1".

    `distraction` in tokens, None for 512, or half of what the model was trained on.
    """

    task: str = "qa1"
    distraction: int | None = None
    seed: int = 0
    haystack: str | None = None

    def question_task(self, model: HookedMTA) -> QuestionTask:
        """What the sample is of."""
        distraction = min(512, model.config.n_ctx // 2) if self.distraction is None else self.distraction
        return QuestionTask(self.task, distraction, self.haystack)

    def sample(self, model: HookedMTA) -> LabSample:
        """The facts of the story."""
        tokenizer = check_vocabulary(model, model.tokenizer)
        sample = make_question_sample(tokenizer, self.question_task(model), self.seed)
        return LabSample(sample.tokens, sample_parts(sample))


KINDS = (Needles, Pairs, Written, Blocks, Questions)


@dataclass(frozen=True)
class FinderMap(OfSample[Finder]):
    """One score of every head about one part of a sample.

    `score`: its key, "" for the first of the usual ones. `part`: its letter, "" for the asked one. The head
    `marked` (layer, head) is framed.
    """

    score: str = ""
    part: str = ""
    marked: tuple[int, int] | None = None

    def result(self, source: Source) -> Finder:
        return find(self.trace(source), self.asked(source).parts, progress=source.progress)

    def part_of(self, finder: Finder) -> Span:
        """The part. Raises PromptError for a letter no part has."""
        letters = {part.letter: part for part in finder.parts.all}
        if self.part and self.part not in letters:
            raise PromptError(f"there is no part {self.part!r}; the parts are {', '.join(letters)}")
        return letters[self.part] if self.part else finder.parts.asked

    def scores_of(self, finder: Finder) -> HeadScores:
        """All scores of the part."""
        return finder.scores[self.part_of(finder)]

    def score_of(self, finder: Finder) -> Score:
        """The score. Raises PromptError for one that is not there."""
        there = {score.key: score for score in self.scores_of(finder).scores}
        key = self.score or next(key for key in USUAL_SCORES if key in there)
        if key not in there:
            raise PromptError(f"there is no score {key!r} here; there are {', '.join(there)}")
        return there[key]

    def draw(self, source: Source, result: Finder) -> Figure:
        look: dict[str, Any] = {"numbering": source.numbering, "selected": self.marked, "width": MAP_PX}
        return score_map(self.scores_of(result), self.score_of(result).key, **look)

    def table(self, source: Source, result: Finder) -> Table:
        return self.scores_of(result).table()

    def caption(self, source: Source, result: Finder) -> str:
        score, part = self.score_of(result), self.part_of(result)
        return (
            f"{score.name} ({score.unit}) of {part.words}: {score.definition} Layers down, heads across. "
            "Hatched: this layer has no such stage."
        )


@named("needle-finder")
class NeedleFinder(Needles, FinderMap):
    """Which heads find a needle."""


@named("pairs-finder")
class PairsFinder(Pairs, FinderMap):
    """Which heads find the sentence of a name and a city."""


@named("file-finder")
class WrittenFinder(Written, FinderMap):
    """Which heads find a marked span of a written prompt."""


@named("block-finder")
class BlockFinder(Blocks, FinderMap):
    """Which heads find the target block."""


@named("question-finder")
class QuestionFinder(Questions, FinderMap):
    """Which heads find a fact of a story."""


def crop_side(crop: StepCrop, shown: Side) -> AttentionMap:
    """One head's map on one side of a convolution, or what it changed."""
    return {"before": crop.before, "after": crop.after, "difference": crop.difference}[shown]


def crop_limit(crop: StepCrop, shown: Side, first_token: bool = False) -> float:
    """The scale's end: of the asked cells on both sides, or of their difference."""
    before, after = crop.asked
    return shared_limit((subtract(after, before),) if shown == "difference" else (before, after), first_token)


def crop_picture(crop: StepCrop, shown: Side, tokens: Tokens, *, limit: float, numbering: int) -> Figure:
    """Small, the asking and the asked tokens marked at the edges."""
    look: dict[str, Any] = {"tokens": tokens, "numbering": numbering, "limit": limit}
    look |= {"spans": (crop.region.asking, crop.region.asked), "size": CROP_PX}
    if shown == "difference":
        return difference_map(crop.difference, short=True, **look)
    return attention_map(crop_side(crop, shown), look=SMALL, **look)


@dataclass(frozen=True)
class CropMap(OfSample[StepCrop]):
    """One head's map where the asking queries meet the asked keys, `before` or `after` a convolution.

    `place` is the convolution's, before ("pre") or after ("post") the softmax; `shown` may also be the
    `difference`. `first_token`: whether it counts for the limits.
    """

    layer: int = 0
    head: int = 0
    place: KernelPlace = "pre"
    shown: Side = "after"
    first_token: bool = False

    def result(self, source: Source) -> StepCrop:
        """Both maps. Raises PromptError where the layer has no such convolution."""
        crops = {crop.place: crop for crop in self.crops(source)}
        if self.place not in crops:
            there = ", ".join(crops) or "none"
            raise PromptError(f"layer {self.layer} has no convolution {self.place!r}; it has {there}")
        return crops[self.place]

    def crops(self, source: Source) -> tuple[StepCrop, ...]:
        """Of all convolutions of the layer; none where it has none."""
        asked, config = self.asked(source), source.model.config
        there = self.layer in range(config.n_layers) and self.head in range(config.n_heads)
        if asked.region is None or not there:
            raise PromptError(f"there is no layer {self.layer} with a head {self.head}")
        return crops_of(self.trace(source), asked.region, self.layer, self.head)

    def limit(self, crop: StepCrop) -> float:
        """The scale's end."""
        return crop_limit(crop, self.shown, self.first_token)

    def draw(self, source: Source, result: StepCrop) -> Figure:
        """Small, the asking and the asked tokens marked at the edges."""
        look: dict[str, Any] = {"numbering": source.numbering, "limit": self.limit(result)}
        return crop_picture(result, self.shown, self.asked(source).tokens, **look)

    def table(self, source: Source, result: StepCrop) -> Table:
        return crop_side(result, self.shown).table(self.asked(source).tokens)

    def caption(self, source: Source, result: StepCrop) -> str:
        limit = self.limit(result)
        if self.shown == "difference":
            return difference_caption(result.difference, limit)
        stage = crop_side(result, self.shown).stage.value
        return f"{stage.long}; one scale for before and after, to {limit_text(limit)}, of the asked cells."

    def file_parts(self) -> tuple[object, ...]:
        return f"L{self.layer}", f"H{self.head}", self.place, self.shown, "crop"


@named("needle-crop")
class NeedleCrop(Needles, CropMap):
    """Question x asked needle."""


@named("pairs-crop")
class PairsCrop(Pairs, CropMap):
    """Question x asked sentence."""


@named("file-crop")
class WrittenCrop(Written, CropMap):
    """Question x the span marked as asked."""


@named("block-crop")
class BlockCrop(Blocks, CropMap):
    """Query letters x target block."""
