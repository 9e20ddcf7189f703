"""Figures of the labs: of one sample, of many, a prompt's story; what files of the version before held."""

from collections.abc import Callable
from functools import partial
from typing import Any

from mta_viz.analysis.labs.four_prompts import example
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.labs import measured, samples
from mta_viz.figures.labs import story as story
from mta_viz.figures.labs.measured import ITSELF
from mta_viz.model.plans import everything_to_identity
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
