"""Figures of the labs: of one sample, of many; a prompt's story; what files of the version before held.

A story as one figure: question x asked words before a kernel, the kernel, the same after it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mta_viz.analysis.attention.maps import AttentionMap, exact_map, shared_limit
from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.cause.story import BY, RULE, Story, place_of, story_of
from mta_viz.analysis.kernels.kernels import layer_kernels
from mta_viz.analysis.labs.finder import NEIGHBOURS, Region, StepCrop, region, step_crops
from mta_viz.analysis.labs.four_prompts import example
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.figures.labs import measured, samples
from mta_viz.figures.labs.measured import ITSELF
from mta_viz.figures.labs.samples import CROP_PX, crop_limit, crop_picture
from mta_viz.model.plans import everything_to_identity
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.parts import side_by_side
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.tables import Table
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.needles import PAPER_NEEDLE, TEMPLATES

View = dict[str, str]  # the settings of the page that were not at their defaults
LABS = {  # parameter and setting of each lab's sample
    "Needle": {"needles": "needle number", "length": "needle length", "seed": "needle seed"},
    "Blocks": {
        **{"letters": "block letters", "asked_letters": "block query", "blocks": "block count"},
        **{"answer": "block output", "number": "block sample"},
    },
    "Questions": {"task": "question task", "distraction": "question distraction", "seed": "question seed"},
}
TEST = {"letters": "conjunction letters a block"}
TEST |= {name: f"conjunction {name}" for name in ("blocks", "samples", "seed")}


def _taken(view: View, names: dict[str, str]) -> dict[str, Any]:
    """Parameters by the names of their settings, where the address has them."""
    texts = {parameter: view[name] for parameter, name in names.items() if name in view}
    return {parameter: int(text) if text.isdecimal() else text for parameter, text in texts.items()}


def _text(view: View, name: str, default: str | None = None) -> str:
    """A text the address holds. Raises MtaVizError where it only names one of another computer."""
    text = view.get(name, default)
    if text is None or text.startswith("kept:"):
        raise MtaVizError(f"the file does not hold its {name}; type it in the app again and save the figure")
    return text


def _sample(view: View, source: Source) -> tuple[str, dict[str, Any]]:
    """Which lab's sample the page showed, and its parameters."""
    lab = view.get("lab", "Blocks" if source.model.config.vocab_size == VOCAB_SIZE else "Needle")
    parameters = _taken(view, LABS[lab])
    if lab != "Needle":
        return lab, parameters
    needle, question = TEMPLATES.get(view.get("needle template", next(iter(TEMPLATES))), (None, None))
    if needle is None:
        needle, question = _text(view, "needle needle", PAPER_NEEDLE), view.get("needle question")
    depth = view.get("needle depth", "50")
    words = {"needle": needle, "question": question, "depth": None if depth == "anywhere" else int(depth)}
    return lab, parameters | words


def _finder(view: View, source: Source) -> NamedFigure[Any]:
    lab, parameters = _sample(view, source)
    kinds: dict[str, Any] = {"Needle": samples.NeedleFinder, "Blocks": samples.BlockFinder}
    kind = kinds.get(lab, samples.QuestionFinder)
    parts = kind(**parameters).asked(source).parts.all
    letter = next((part.letter for part in parts if part.name == view.get("finder part")), "")
    marked = (int(view["l"]), int(view["h"])) if {"l", "h"} <= view.keys() else None
    return kind(**parameters, score=view.get("finder score", ""), part=letter, marked=marked)


def _crop(place: str, shown: str, view: View, source: Source) -> NamedFigure[Any]:
    lab, parameters = _sample(view, source)
    parameters |= _taken(view, {"layer": "l", "head": "h"}) | {"place": place, "shown": shown}
    return (samples.BlockCrop if lab == "Blocks" else samples.NeedleCrop)(**parameters)


def _twin(view: View, source: Source) -> str:
    """What ran beside the model: at first its twin. Raises MtaVizError where that is to be looked for."""
    usual = ITSELF if everything_to_identity(source.model.config) else "nothing"
    name = view.get("conjunction beside", "" if source.name.endswith(("-mta", "-transformer")) else usual)
    if name not in (ITSELF, "nothing"):
        raise MtaVizError("another model may have run beside this one; draw block-conjunction of both anew")
    return "identity" if name == ITSELF else "none"


def _conjunction(of: str, view: View, source: Source) -> NamedFigure[Any]:
    look = _taken(view, {"measure": "conjunction measure", "stage": "conjunction stage"})
    look |= {"twin": _twin(view, source), "of": of}
    letters = source.model.config.vocab_size == VOCAB_SIZE
    if letters and view.get("conjunction prompts", "Blocks") == "Blocks":
        return measured.BlockConjunction(**look, **_taken(view, TEST))
    name = "conjunction letters" if letters else "conjunction text"
    names, usual = (name, f"{name} span", f"{name} lines"), example(source.model)
    text, span, lines = map(partial(_text, view), names, usual)
    return measured.TextConjunction(**look, text=text, span=span, lines=lines)


def _sweep(view: View, source: Source) -> NamedFigure[Any]:
    raise MtaVizError(
        "the file does not hold its sweep; save its Results (JSON), or measure them with the command needle, "
        "and draw sweep-lines or sweep-map with the parameter file"
    )


OLDER: dict[str, Callable[[View, Source], NamedFigure[Any]]] = {
    "finder": _finder,
    "crop.AttentionMap.raw": partial(_crop, "pre", "before"),
    "crop.AttentionMap.kq": partial(_crop, "pre", "after"),
    "crop.DifferenceMap.kq": partial(_crop, "pre", "difference"),
    "crop.AttentionMap.sm": partial(_crop, "post", "before"),
    "crop.AttentionMap.kq2": partial(_crop, "post", "after"),
    "crop.DifferenceMap.kq2": partial(_crop, "post", "difference"),
    "conjunction.own": partial(_conjunction, "model"),
    "conjunction.beside": partial(_conjunction, "twin"),
    "sweep.lines": _sweep,
    "opened.lines": _sweep,
    "table.questions": lambda view, source: measured.QuestionAnswers(
        **_taken(view, LABS["Questions"] | {"samples": "question n"})
    ),
    "table.words": lambda view, source: measured.LastWords((_text(view, "text typed"),)),
    "losses": lambda view, source: measured.LossText(
        _text(view, "text typed"), **_taken(view, {"part": "text part"})
    ),
}


KERNEL_PX = 440
SHARES = (
    "What the head gives is of the last token's row: the sum of sizes over the span, over that of the row; "
    "before the softmax what it would be if the softmax came there."
)
ODDS = (
    "Without the kernel: its own tap alone is left, everything after it is computed anew. Log-odds are "
    "log(p / (1 - p)) of the whole answer, in nats; its rank is the largest of its tokens' ranks."
)


@dataclass(frozen=True)
class StoryCrops:
    """A story with the maps it is about: both sides of the kernel, or (a plain model's) the final one."""

    story: Story
    crop: StepCrop | None = None
    final: AttentionMap | None = None

    @property
    def maps(self) -> tuple[AttentionMap, ...]:
        """Those that are drawn."""
        sides = () if self.crop is None else (self.crop.before, self.crop.after)
        return sides if self.final is None else (self.final,)


@named("story")
class StoryFigure(NamedFigure[StoryCrops]):
    """Question x asked words before the story's kernel, the kernel, and the same cells after it.

    `answer`: None as of `mta_viz.story`. The model beside the source, if any, is the plain twin.
    """

    answer: str | None = None

    def result(self, source: Source) -> StoryCrops:
        """Raises as `mta_viz.story` does."""
        run, twin = source.trace, None if source.beside is None else source.beside.model
        opening = story_of(run, answer=self.answer, twin=twin, progress=source.progress)
        if opening.place is None:
            return StoryCrops(opening)
        shown, place = _region(opening), opening.place
        if opening.kernel is None:
            rows, columns = (slice(side.start, side.stop) for side in (shown.queries, shown.keys))
            return StoryCrops(opening, final=exact_map(run, place[0], Stage.PATTERN, place[1], rows, columns))
        crops = {crop.place: crop for crop in step_crops(run, shown, *place)}
        return StoryCrops(opening, crops[place_of(opening.kernel)])

    def draw(self, source: Source, result: StoryCrops) -> Figure | None:
        """Three panels, of a plain model one; none where the last token sees no other key."""
        title, tokens = result.story.sentence(source.numbering), result.story.tokens
        if result.final is not None:
            spans = (result.story.asking, result.story.asked)
            look: dict[str, Any] = {
                "numbering_from": source.numbering,
                "size": CROP_PX,
                "spans": spans,
                "look": SMALL,
            }
            picture = attention_map(result.final, tokens, limit=shared_limit([result.final]), **look)
            return side_by_side([picture], title)
        if result.crop is None:
            return None
        limit = crop_limit(result.crop, "after")
        before, after = (
            crop_picture(result.crop, side, tokens, limit=limit, numbering_from=source.numbering)
            for side in ("before", "after")
        )
        return side_by_side([before, self._kernel(source, result.story), after], title)

    def _kernel(self, source: Source, opening: Story) -> Figure:
        kernel, model = opening.kernel, source.model
        assert kernel is not None
        place = place_of(kernel)
        kernels = layer_kernels(model.state_dict(), model.config, kernel.layer)
        taps, offsets = kernels.taps(place), kernels.offsets(place)
        assert taps is not None and offsets is not None
        return kernel_picture(
            taps[kernel.head].double().numpy(), offsets, title="its kernel", width=KERNEL_PX
        )

    def table(self, source: Source, result: StoryCrops) -> Table:
        """A row a cell of every map; without maps a row for each state of the answer."""
        tables = [shown.table(result.story.tokens) for shown in result.maps]
        if not tables:
            return result.story.table()
        return Table(tables[0].columns, tuple(row for table in tables for row in table.rows))

    def caption(self, source: Source, result: StoryCrops) -> str:
        """The sentence, what is drawn, and every definition."""
        opening = result.story
        words = [opening.sentence(source.numbering), f"The answer is {opening.answer_words}."]
        if not isinstance(opening.twin, Absent):
            words.append(f"{opening.twin_words}.")
        if result.crop is not None:
            limit = limit_text(crop_limit(result.crop, "after"))
            words.append(
                "Left to right: the head's map before the convolution, the kernel (its own tap framed), the "
                f"map after it, on one scale to {limit}, of the asked cells."
            )
        if result.maps:
            words += ["Rows are queries, columns keys; hatched: masked.", SHARES]
        if opening.kernel is not None:
            words.append(ODDS)
        return " ".join([*words, f"Chosen: {BY[opening.by]}.", RULE])

    def file_parts(self) -> tuple[object, ...]:
        """Its name."""
        return (self.name,)


def _region(opening: Story) -> Region:
    """Question x asked words, with a few tokens around."""
    assert opening.asked is not None
    around = {"above": NEIGHBOURS, "beside": NEIGHBOURS}
    return region(opening.asking, opening.asked, len(opening.tokens), **around)
