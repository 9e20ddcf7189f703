"""Figures of the labs: of one sample, of many; and what files of the version before called them."""

from collections.abc import Callable
from typing import Any

from mta_viz.analysis.labs.four_prompts import example
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.labs.measured import (
    ITSELF,
    BlockConjunction,
    LastWords,
    LossText,
    QuestionAnswers,
    SweepLines,
    TextConjunction,
)
from mta_viz.figures.labs.samples import (
    BlockCrop,
    BlockFinder,
    NeedleCrop,
    NeedleFinder,
    QuestionFinder,
)
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.needles import PAPER_NEEDLE, TEMPLATES

View = dict[str, str]


def _whole(view: View, **names: str) -> dict[str, Any]:
    """Parameters that are whole numbers, where the address has them: `seed="needle seed"`."""
    return {parameter: int(view[name]) for parameter, name in names.items() if name in view}


def _wording(view: View) -> dict[str, Any]:
    name = view.get("needle template", "the paper's")
    needle, question = TEMPLATES.get(
        name, (_text(view, "needle needle", PAPER_NEEDLE), _text(view, "needle question", "") or None)
    )
    return {"needle": needle, "question": question}


def _text(view: View, name: str, default: str | None = None) -> str:
    """A text the address holds. Raises MtaVizError where it only names one of another computer."""
    text = view.get(name, default)
    if text is None or text.startswith("kept:"):
        raise MtaVizError(
            f"the file does not hold its text ({name}); type it in the app's lab again and save the figure"
        )
    return text


def _sample(view: View, source: Source) -> tuple[str, dict[str, Any]]:
    """Which lab's sample the page showed, and its parameters."""
    first = "Blocks" if source.model.config.vocab_size == VOCAB_SIZE else "Needle"
    lab = view.get("lab", first)
    if lab == "Blocks":
        names = {"letters": "block letters", "asked_letters": "block query", "blocks": "block count"}
        answer = {"answer": view["block output"]} if "block output" in view else {}
        return lab, _whole(view, **names, number="block sample") | answer
    if lab == "Questions":
        task = {"task": view["question task"]} if "question task" in view else {}
        return lab, _whole(view, distraction="question distraction", seed="question seed") | task
    depth = view.get("needle depth", "50")
    parameters = _whole(view, needles="needle number", length="needle length", seed="needle seed")
    return lab, parameters | _wording(view) | {"depth": None if depth == "anywhere" else int(depth)}


def _finder(view: View, source: Source) -> NamedFigure[Any]:
    lab, parameters = _sample(view, source)
    marked = (int(view["l"]), int(view["h"])) if {"l", "h"} <= view.keys() else None
    kinds: dict[str, Any] = {"Blocks": BlockFinder, "Questions": QuestionFinder}
    kind = kinds.get(lab, NeedleFinder)
    figure = kind(**parameters, score=view.get("finder score", ""), marked=marked)
    parts = figure.asked(source).parts.all
    letter = next((part.letter for part in parts if part.name == view.get("finder part")), "")
    return kind(**parameters, score=figure.score, part=letter, marked=marked)


def _crop(place: str, shown: str) -> Callable[[View, Source], NamedFigure[Any]]:
    def figure(view: View, source: Source) -> NamedFigure[Any]:
        lab, parameters = _sample(view, source)
        parameters |= _whole(view, layer="l", head="h") | {"place": place, "shown": shown}
        return BlockCrop(**parameters) if lab == "Blocks" else NeedleCrop(**parameters)

    return figure


def _conjunction(of: str) -> Callable[[View, Source], NamedFigure[Any]]:
    def figure(view: View, source: Source) -> NamedFigure[Any]:
        beside = {ITSELF: "identity", "nothing": "nothing"}.get(view.get("conjunction beside", ""))
        if beside is None:
            raise MtaVizError(
                "the file does not say what stood beside the model; draw block-conjunction anew"
            )
        look: dict[str, Any] = {"beside": beside, "of": of, "stage": view.get("conjunction stage", "")}
        look["measure"] = view.get("conjunction measure", "share")
        letters = source.model.config.vocab_size == VOCAB_SIZE
        if letters and view.get("conjunction prompts", "Blocks") == "Blocks":
            numbers = {"letters": "letters a block", "blocks": "blocks", "samples": "samples", "seed": "seed"}
            named = {parameter: f"conjunction {name}" for parameter, name in numbers.items()}
            return BlockConjunction(**look, **_whole(view, **named))
        name, usual = f"conjunction {'letters' if letters else 'text'}", example(source.model)
        names = (name, f"{name} span", f"{name} lines")
        text, span, lines = map(_text, (view, view, view), names, usual)
        return TextConjunction(**look, text=text, span=span, lines=lines)

    return figure


def _sweep(view: View, source: Source) -> NamedFigure[Any]:
    raise MtaVizError(
        "the file does not hold its sweep; save its Results (JSON), or measure them with the command needle, "
        f"and draw {SweepLines.name} with the parameter file"
    )


def _answers(view: View, source: Source) -> NamedFigure[Any]:
    _, parameters = _sample(view | {"lab": "Questions"}, source)
    return QuestionAnswers(**parameters, **_whole(view, samples="question n"))


def _words(view: View, source: Source) -> NamedFigure[Any]:
    return LastWords((_text(view, "text typed"),))


def _losses(view: View, source: Source) -> NamedFigure[Any]:
    return LossText(_text(view, "text typed"), **_whole(view, part="text part"))


OLDER: dict[str, Callable[[View, Source], NamedFigure[Any]]] = {
    "finder": _finder,
    "crop.AttentionMap.raw": _crop("pre", "before"),
    "crop.AttentionMap.kq": _crop("pre", "after"),
    "crop.DifferenceMap.kq": _crop("pre", "difference"),
    "crop.AttentionMap.sm": _crop("post", "before"),
    "crop.AttentionMap.kq2": _crop("post", "after"),
    "crop.DifferenceMap.kq2": _crop("post", "difference"),
    "conjunction.own": _conjunction("model"),
    "conjunction.beside": _conjunction("beside"),
    "sweep.lines": _sweep,
    "opened.lines": _sweep,
    "table.questions": _answers,
    "table.words": _words,
    "losses": _losses,
}
