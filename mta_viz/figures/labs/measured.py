"""What the labs measure over many samples: sweeps of needles, conjunctions, answers, losses of texts."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mta_viz.analysis.labs import conjunction as testing
from mta_viz.analysis.labs import four_prompts, sweep_file
from mta_viz.analysis.labs.cards import Arms, arms_file, read_arms
from mta_viz.analysis.labs.conjunction import Conjunction, Measure
from mta_viz.analysis.labs.evaluation import QuestionScore, answers_table, evaluate_questions
from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.analysis.labs.sweep import SampleResult, Sweep
from mta_viz.analysis.labs.sweep_file import Axes, ModelResults, by_setting
from mta_viz.analysis.labs.text import PassageScores, TextLosses, score_passages, text_losses
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.figures.labs.samples import Pairs, Questions
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots import labs as plots
from mta_viz.plots.theme import Figure
from mta_viz.tables import Table
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.intervals import median_words

Results = Mapping[str, ModelResults]  # of a sweep, by the models' names
MOST_MODELS = 4  # a chart has lines for
POOLED = "depths and context lengths (the paper has a panel for each length)"
ITSELF = "the same model, kernels at identity"
MAP_PX = 452
PART = 1_500  # tokens of a text drawn at once


@dataclass(frozen=True)
class OfSweep(Sweep, NamedFigure[Results]):
    """A figure of a needle sweep: measured on the model and what stands beside it, or read from a `file`.

    `models`: which of them are drawn, by their place, none for the first four.
    """

    file: str | None = None
    models: tuple[int, ...] = ()

    def result(self, source: Source) -> Results:
        """Every model's samples. Raises MtaVizError for a file that is no sweep's."""
        if self.file is not None:
            models = sweep_file.read_sweep(Path(self.file)).models
            return named_apart([model for model in models if model.samples])
        results: dict[str, ModelResults] = {}
        for place, at in enumerate([source] if source.beside is None else [source, source.beside]):
            name = at.name if at.name not in results else f"{at.name} ({place + 1})"
            known = sweep_file.results_of(at.model, name, sweep_file.empty_results(self))
            results[name] = sweep_file.measure_missing(at.model, self, known, progress=source.progress)
        return results

    def shown(self, results: Results) -> Results:
        """Those that are drawn. Raises MtaVizError for a place where no model is."""
        names = list(results)
        if not names or max(self.models, default=0) >= len(names):
            raise MtaVizError(f"there are the results of {len(names)} models, counted from 0")
        drawn = [names[place] for place in self.models] or names[:MOST_MODELS]
        return {name: results[name] for name in drawn}

    def axes(self, results: Results) -> Axes:
        """What the charts have room for: the sweep's values, or those in the file."""
        if self.file is not None:
            models = self.shown(results).values()
            return sweep_file.axes_of(sample for model in models for sample in model.samples)
        if self.kind == "file":
            return (), (), ()  # there is nothing to draw over
        return tuple(sorted(self.needles)), tuple(sorted(self.lengths)), tuple(sorted(self.depths))

    def drawn_axes(self, results: Results) -> Axes:
        """The same for a chart. Raises MtaVizError for samples of a file of prompts, which have none."""
        axes = self.axes(results)
        if not axes[0]:
            raise MtaVizError(
                "the prompts of a file have no number of needles, length and depth to draw over; the table "
                "has their accuracy"
            )
        return axes


def named_apart(models: Iterable[ModelResults]) -> dict[str, ModelResults]:
    """By name; where two have one name, with the beginning of their sha256 or their place."""
    models = list(models)
    names, apart = [model.name for model in models], dict[str, ModelResults]()
    for place, model in enumerate(models):
        name = model.name if names.count(model.name) == 1 else f"{model.name} {model.sha256[:8]}"
        apart[name if name and name not in apart else f"{name} ({place + 1})"] = model
    return apart


def chance_words(pairs: int) -> str:
    """What an accuracy on a grid of so many names and cities is to be compared with."""
    side = math.isqrt(pairs)
    words = f"one word alone gives {1 / side:.2f}, any number of the prompt {1 / pairs:.2f}"
    return f"{pairs} sentences, {side} x {side}: {words if side > 1 else 'nothing to choose between'}."


@named("sweep-lines")
class SweepLines(OfSweep):
    """Accuracy by the number of needles, a line a model: at one context length, or pooled over all (None)."""

    of_length: int | None = None

    def draw(self, source: Source, result: Results) -> Figure:
        shown, (counts, lengths, _) = self.shown(result), self.drawn_axes(result)
        if self.of_length not in (None, *lengths):
            raise MtaVizError(
                f"no sample has {self.of_length} tokens; there are {', '.join(map(str, lengths))}"
            )
        lines = {name: sweep_file.by_needles(model.samples, self.of_length) for name, model in shown.items()}
        pooled = "pooled over context lengths" if len(lengths) > 1 else f"{lengths[0]:,} tokens"
        title = pooled if self.of_length is None else f"{self.of_length:,} tokens"
        drawn = {name: scores for name, scores in lines.items() if scores}
        return plots.accuracy_lines(drawn, counts, title[:1].upper() + title[1:])

    def caption(self, source: Source, result: Results) -> str:
        over = "depths" if self.of_length is not None or len(self.axes(result)[1]) == 1 else POOLED
        words = f"Averaged over {over}: all samples of a point together. Bands: 95 % intervals."
        chance = map(chance_words, self.axes(result)[0]) if self.kind == "pairs" else ()
        return " ".join((words, *chance))

    def table(self, source: Source, result: Results) -> Table:
        scores = {name: by_setting(model.samples) for name, model in self.shown(result).items()}
        return sweep_file.accuracy_table(scores)


@named("sweep-map")
class SweepMap(OfSweep):
    """One model's accuracy by depth and length: of `of_needles` needles (None: all numbers together).

    `model` is its place among those that are drawn.
    """

    of_needles: int | None = None
    model: int = 0
    words = "Share of right answers, its 95 % interval, samples. Hatched: none yet."

    def drawn_model(self, results: Results) -> tuple[str, tuple[SampleResult, ...]]:
        """The model's name and its samples. Raises MtaVizError for a place where none is."""
        shown = list(self.shown(results).items())
        if not 0 <= self.model < len(shown):
            raise MtaVizError(f"model {self.model} is not drawn; there are {len(shown)}, counted from 0")
        name, model = shown[self.model]
        return name, model.samples

    def draw(self, source: Source, result: Results) -> Figure:
        name, samples = self.drawn_model(result)
        (_, lengths, depths), n = self.drawn_axes(result), self.of_needles
        which = "all numbers of needles" if n is None else f"{n} needle{'s' if n > 1 else ''}"
        scores = sweep_file.by_depth_and_length(samples, n)
        return plots.accuracy_map(scores, depths, lengths, f"{name}, {which}")

    def table(self, source: Source, result: Results) -> Table:
        name, samples = self.drawn_model(result)
        return sweep_file.accuracy_table({name: by_setting(samples)})


@dataclass(frozen=True)
class OfConjunction(NamedFigure[dict[str, Conjunction]]):
    """A conjunction test: I of every head, `of` the model or its `twin`, which ran on the same samples.

    The twin is the model with its kernels at "identity", the "other" model, or "none". `stage`: its
    key, "" for the last the model has (of log-odds, the last of scores). The head `marked` (layer, head) is
    framed.
    """

    twin: Literal["none", "identity", "other"] = "none"
    measure: Literal["share", "odds"] = "share"
    stage: str = ""
    of: Literal["model", "twin"] = "model"
    marked: tuple[int, int] | None = None

    @abstractmethod
    def samples_of(self, model: HookedMTA) -> tuple[four_prompts.FourPrompts, ...]:
        """The four prompts of every sample. Raises PromptError and ConfigError for what cannot be one."""

    def result(self, source: Source) -> dict[str, Conjunction]:
        return testing.tested(self.models(source), self.samples_of(source.model), progress=source.progress)

    def models(self, source: Source) -> dict[str, HookedMTA]:
        """The model and what stands beside it. Raises MtaVizError where that is not there."""
        models = {source.name: source.model}
        if self.twin == "identity":
            plain = testing.at_identity(source.model)
            if plain is None:
                raise PromptError("this model has no kernels, so nothing can be put to identity")
            models[ITSELF] = plain
        elif self.twin == "other":
            name = source.other.name
            models[name if name not in models else f"{name}, the other"] = source.other.model
        return models

    def what(self, results: Mapping[str, Conjunction]) -> Measure:
        """The measure and its stage."""
        usual = testing.usual_stage(next(iter(results.values())), self.measure)
        return self.measure, Stage.from_key(self.stage) if self.stage else usual

    def drawn_model(self, results: Mapping[str, Conjunction]) -> tuple[str, Conjunction]:
        """The name and the test of what is drawn. Raises MtaVizError for the twin where none ran."""
        place = ("model", "twin").index(self.of)
        if place >= len(results):
            raise MtaVizError("the model has no twin here; say what it is")
        return list(results.items())[place]

    def draw(self, source: Source, result: dict[str, Conjunction]) -> Figure:
        """Layers down, heads across; both models on one scale."""
        (_, drawn), measure = self.drawn_model(result), self.what(result)
        limit, numbering = plots.shared_interaction_limit(result.values(), measure), source.numbering
        look: dict[str, Any] = {"numbering": numbering, "selected": self.marked, "width": MAP_PX}
        return plots.interaction_map(drawn, measure, limit=limit, **look)

    def table(self, source: Source, result: dict[str, Conjunction]) -> Table:
        return testing.heads_table(result)

    def caption(self, source: Source, result: dict[str, Conjunction]) -> str:
        name, drawn = self.drawn_model(result)
        score = testing.score_of(testing.measure_there(drawn, self.what(result)))
        judged = "" if self.measure == "odds" else " I of shares is no evidence of a conjunction."
        return (
            f"{score.name} ({score.unit}), {name}, {drawn.n:,} sample{'s' if drawn.n > 1 else ''}. "
            "Layers down, heads across. Colour: the mean over samples. Dot: the median's interval covers 0. "
            f"{median_words(drawn.n)} {score.definition}{judged}"
        )

    def file_parts(self) -> tuple[object, ...]:
        return tuple(part for part in ("conjunction", self.of, self.measure, self.stage) if part)


@named("block-conjunction")
class BlockConjunction(OfConjunction):
    """On `samples` sequences of the block task."""

    letters: int = 5
    blocks: int = 52
    samples: int = 20
    seed: int = 0

    def samples_of(self, model: HookedMTA) -> tuple[four_prompts.FourPrompts, ...]:
        """Sequences of the evaluation stream `seed`."""
        return four_prompts.block_prompts(BlockTask(self.letters, 2, self.blocks), self.samples, self.seed)


@named("pairs-conjunction")
class PairsConjunction(OfConjunction):
    """On `samples` samples of the pairs task: the asked sentence, and its name and its city as the words.

    `length` in tokens (None: 256, or the trained length).
    """

    names: int = 3
    cities: int = 3
    length: int | None = None
    samples: int = 20
    seed: int = 0

    def samples_of(self, model: HookedMTA) -> tuple[four_prompts.FourPrompts, ...]:
        """Those of the task from number `seed` on."""
        tokenizer = check_vocabulary(model, model.tokenizer)
        task = Pairs(self.names, self.cities, self.length, None).task(model)
        return four_prompts.pairs_prompts(tokenizer, task, self.samples, self.seed)


@named("text-conjunction")
class TextConjunction(OfConjunction):
    """On a text, its span and a line of four words a sample; without a text on an example."""

    text: str = ""
    span: str = ""
    lines: str = ""

    def samples_of(self, model: HookedMTA) -> tuple[four_prompts.FourPrompts, ...]:
        if model.tokenizer is None:
            raise PromptError("this checkpoint came without its tokenizer, and a text needs it")
        text, span, lines = (self.text, self.span, self.lines) if self.text else four_prompts.example(model)
        return four_prompts.written_prompts(model.tokenizer, text, span, four_prompts.words_of(lines))


@named("question-answers")
class QuestionAnswers(Questions, NamedFigure[QuestionScore]):
    """Every answer to `samples` questions from `seed` on; a table."""

    samples: int = 20

    def result(self, source: Source) -> QuestionScore:
        model, task = source.model, self.question_task(source.model)
        return evaluate_questions(model, task, n=self.samples, seed=self.seed, progress=source.progress)

    def table(self, source: Source, result: QuestionScore) -> Table:
        return answers_table([result])


@named("last-words")
class LastWords(NamedFigure[PassageScores]):
    """How well the last word of each passage is predicted; a table."""

    passages: tuple[str, ...] = ()

    def result(self, source: Source) -> PassageScores:
        return score_passages(source.model, self.passages, progress=source.progress)


@named("text-losses")
class LossText(NamedFigure[TextLosses]):
    """A text on the losses of its tokens; of a long one a `part` of 1,500 tokens, counted from 1."""

    text: str = ""
    part: int = 1

    def result(self, source: Source) -> TextLosses:
        return text_losses(source.model, self.text, progress=source.progress)

    def tokens(self, n_tokens: int) -> range:
        """Those drawn. Raises PromptError for a part the text has not."""
        parts = math.ceil(n_tokens / PART)
        if not 1 <= self.part <= parts:
            raise PromptError(f"the text has {parts} parts of {PART:,} tokens; there is no part {self.part}")
        return range((self.part - 1) * PART, min(self.part * PART, n_tokens))

    def limit(self, source: Source) -> float:
        """The scale's end in nats: about a guess among all tokens."""
        return float(math.ceil(math.log(source.model.config.vocab_size)))

    def draw(self, source: Source, result: TextLosses) -> Figure:
        places, limit = self.tokens(len(result.tokens)), self.limit(source)
        return plots.loss_text(result, places, limit=limit)

    def caption(self, source: Source, result: TextLosses) -> str:
        return (
            f"Light: expected. Dark: a surprise; {self.limit(source):g} nats, the scale's end, is about a "
            f"guess among all {source.model.config.vocab_size:,} tokens. Hatched: nothing predicts it. Point "
            "at a token to read its probability, its rank, and what was likeliest instead."
        )


@named("kernel-arms")
class KernelArms(NamedFigure[Arms]):
    """Kernels of several shapes, trained alike into one base: how often each is right, with its seeds.

    `file`: of arms and seeds, "" for the arms.json beside the model.
    """

    file: str = ""
    words = (
        "An arm is the size of the kernels (queries x keys), or norms: the norm gains alone, no kernel. 1x1 "
        "is one factor a head, 1x11 the key axis alone, 6x1 the query axis alone. Bars: all answers of an "
        "arm's seeds together, with their exact 95 % interval; seeds answer the same questions, so it is of "
        "answers, and the points say how far seeds are apart. Dashed: the base."
    )

    def result(self, source: Source) -> Arms:
        """What the file holds. Raises MtaVizError where there is none."""
        file = Path(self.file) if self.file else arms_file(source.model.path)
        if file is None:
            raise MtaVizError("no arms.json lies beside this model; say which file holds the arms")
        return read_arms(file)

    def draw(self, source: Source, result: Arms) -> Figure:
        return plots.arms_chart(result)

    def caption(self, source: Source, result: Arms) -> str:
        """How to read it, and how much more the first arm has right than each other on the same samples."""
        more = "; ".join(difference.text for difference in result.differences())
        return f"{self.words} {more}." if more else self.words
