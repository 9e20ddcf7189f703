"""The prompt in a page's address, so that a copied link shows the same run: `ex`, `p`, `ids` or `kept`.

`ex=NAME` is an example of `examples.json`, `p=TEXT` a prompt, `ids=1,2,3` token ids; `kept=ID` is a prompt
too long for an address, which this machine keeps. The selection in the address is `state`'s.

What of a run's places an address holds: the exact part of a long map, and spans a visitor named.
The example prompts of `assets/examples.json`, and which of them a tokenizer can encode.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.spans import Span
from mta_viz.config import DTYPES
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.pasted import ids_from_text
from mta_viz.ui.shell import kept_prompts, state
from mta_viz.ui.shell.pickers import CROP_SIZE, Crop
from mta_viz.ui.shell.plan import NAME as PLAN
from mta_viz.ui.shell.site import ASSETS

NAMES = ("crop", "spans")
MAX_PLACES_CHARACTERS = 1000
MAX_NAME = 200  # characters of a span's name


def place_parameters(crop: Crop | None, spans: Sequence[Span] | None) -> dict[str, str]:
    """`crop=q0,q1,k0,k1` and `spans=[["Oslo","A",3,9]]`; what is None or too long is left out."""
    found = {}
    if crop is not None:
        found["crop"] = f"{crop.query_start},{crop.query_stop},{crop.key_start},{crop.key_stop}"
    if spans is not None:
        rows = [[span.name, span.letter, span.start, span.stop] for span in spans]
        found["spans"] = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return {name: text for name, text in found.items() if len(text) <= MAX_PLACES_CHARACTERS}


def read_crop(found: Mapping[str, str]) -> Crop | None:
    """The crop an address names; None for none, or for what is none."""
    parts = found.get("crop", "").split(",")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    crop = Crop(*map(int, parts))
    sizes = (crop.query_stop - crop.query_start, crop.key_stop - crop.key_start)
    return crop if all(0 < size <= CROP_SIZE for size in sizes) else None


def read_spans(found: Mapping[str, str], n_tokens: int) -> tuple[Span, ...] | None:
    """The spans an address names, all within the prompt; None for none, or for what are none."""
    text = found.get("spans", "")
    if not text or len(text) > MAX_PLACES_CHARACTERS:
        return None
    try:
        spans = tuple(_span(row, n_tokens) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, PromptError):
        return None
    return spans


def _span(row: object, n_tokens: int) -> Span:
    if not isinstance(row, list) or [type(value) for value in row] != [str, str, int, int]:
        raise ValueError("a span is a name, a letter, its first token and the one after its last")
    name, letter, start, stop = row
    (name + letter).encode()  # a UnicodeEncodeError, which is a ValueError, for halves of characters
    if stop > n_tokens or len(letter) != 1 or len(name) > MAX_NAME:
        raise ValueError("outside the prompt")
    return Span(name, letter, start, stop)


@dataclass(frozen=True)
class Example:
    """A prompt named by what it shows; `tokenizers` are the kinds it is meant for."""

    name: str
    text: str
    tokenizers: tuple[str, ...]


def examples() -> tuple[Example, ...]:
    """All examples, in the order of the file. `repeat` there makes a long prompt from a short one."""
    entries = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    return tuple(
        Example(entry["name"], " ".join([entry["text"]] * entry.get("repeat", 1)), tuple(entry["tokenizers"]))
        for entry in entries
    )


def fitting(tokenizer: Tokenizer) -> tuple[Example, ...]:
    """The examples meant for this kind of tokenizer that it can encode."""
    meant = [example for example in examples() if tokenizer.kind in example.tokenizers]
    return tuple(example for example in meant if _encodes(tokenizer, example.text))


def _encodes(tokenizer: Tokenizer, text: str) -> bool:
    try:
        tokenizer.encode(text)
    except MtaVizError:
        return False
    return True


def prompt_for(tokenizer: Tokenizer, current: str | None, n_ctx: int) -> str:
    """The prompt to show for a model: `current`, unless it is an example for other tokenizers.

    Without a current prompt: the first example within the trained length `n_ctx`.
    """
    offered = [example.text for example in fitting(tokenizer)]
    foreign = {example.text for example in examples()} - set(offered)
    if current is not None and current not in foreign:
        return current
    short = [text for text in offered if len(tokenizer.encode(text)) <= n_ctx]
    return next(iter([*short, *offered]), "")


MAX_CHARACTERS = 1000
# Settings that count before their widgets are drawn: default and options.
GLOBAL: dict[str, tuple[Any, Sequence[Any] | None]] = {
    "dtype": (DTYPES[0], DTYPES),
    "numbering": (0, (0, 1)),
    "first_token": (False, None),
}
QUICK = 1e11  # multiply-adds a slow computer does in 10 s; a link does not start more by itself
Prompt = str | tuple[int, ...]


@dataclass(frozen=True)
class Linked:
    """The prompt an address holds, None without a usable one; `problem` says what is wrong with it."""

    prompt: Prompt | None = None
    problem: str = ""


def parameters(prompt: Prompt | None) -> dict[str, str]:
    """The prompt as parameters of an address; a long one by its id. Empty where there is none to name."""
    if not prompt:
        return {}
    text = ",".join(map(str, prompt)) if isinstance(prompt, tuple) else prompt
    name = next((example.name for example in examples() if example.text == prompt), None)
    if name is not None:
        return {"ex": name}
    if len(text) <= MAX_CHARACTERS:
        return {"ids" if isinstance(prompt, tuple) else "p": text}
    if state.get("kept prompt", (None, None))[0] != prompt:  # once, not at every rerun
        state.put("kept prompt", (prompt, kept_prompts.keep(json.dumps(prompt))))
    kept = state.get("kept prompt")[1]
    return {} if kept is None else {"kept": kept}


def read(found: Mapping[str, str]) -> Linked:
    """The prompt in an address's parameters; an example before a text before ids before a kept one."""
    for name, make in READERS.items():
        if found.get(name):
            return make(found[name])
    return Linked()


def _example(name: str) -> Linked:
    text = next((example.text for example in examples() if example.name == name), None)
    shown = name if len(name) <= 60 else f"{name[:60]}..."
    problem = f"The link names the example {shown!r}, which is not here. Choose another or type a prompt."
    return Linked(text, "" if text else problem)


def _text(text: str) -> Linked:
    return Linked(text) if len(text) <= MAX_CHARACTERS else Linked(problem=_too_long(text))


def _ids(text: str) -> Linked:
    if len(text) > MAX_CHARACTERS:
        return Linked(problem=_too_long(text))
    try:
        return Linked(ids_from_text(text))
    except MtaVizError as error:
        return Linked(problem=f"The link's token ids could not be read: {error}")


def _kept(name: str) -> Linked:
    prompt = kept_prompts.find(name)
    if prompt is None:
        return Linked(
            problem="The link's prompt is too long to be in it and is kept on the machine the link was made "
            "on, not here, or no longer. Ask for the prompt and paste it into the box."
        )
    found = json.loads(prompt)
    return Linked(found if isinstance(found, str) else tuple(found))


def _too_long(text: str) -> str:
    return (
        f"The link's prompt has {len(text):,} characters and was left out: at most {MAX_CHARACTERS:,} "
        "are taken from a link. Paste the prompt into the box."
    )


READERS = {"ex": _example, "p": _text, "ids": _ids, "kept": _kept}


def restore() -> None:
    """Put the address's prompt into its box, once a session, before the box is drawn; keep its settings."""
    _read_once()
    for name, (default, options) in GLOBAL.items():
        state.declare(name, default, options)


def _read_once() -> None:
    if state.get("link read"):
        return
    state.put("link read", True)
    state.read_settings({*READERS, *NAMES, PLAN})
    state.put("linked places", {name: st.query_params.get(name, "") for name in NAMES})
    state.put("crop", read_crop(state.get("linked places")))
    linked = read(dict(st.query_params))
    state.put("link problem", linked.problem)
    if linked.prompt is None:
        return
    state.put("linked", linked.prompt)
    if isinstance(linked.prompt, tuple):
        state.put("ids", ", ".join(map(str, linked.prompt)))
    else:
        state.put("prompt", linked.prompt)


def problem(prompt: Prompt) -> str:
    """Why the box holds something else than the link's prompt; "" when it holds that, or has none."""
    linked = state.get("linked")
    if linked is None or linked == prompt:
        return state.get("link problem", "")
    state.put("linked", None)
    kinds = ("token ids", "a text") if isinstance(linked, tuple) else ("a text", "token ids")
    said = f"The link's prompt is {kinds[0]}, and this model takes {kinds[1]}: it was left out."
    if isinstance(linked, str) and isinstance(prompt, str):
        said = "The link's prompt is an example for other models: it was left out."
    state.put("link problem", said)
    return said


def take(prompt: Prompt, multiply_adds: float) -> bool:
    """Whether the link's prompt is in the box and is to be run without being asked; True only once."""
    if state.get("linked") != prompt:
        return False
    state.put("linked", None)
    return multiply_adds <= QUICK


def asking_for(prompt: str | Sequence[int]) -> dict[str, Any]:
    """The kept values that put a prompt into its box and have it run, however long it is."""
    if isinstance(prompt, str):
        return {"prompt": prompt, "run": prompt}
    return {"ids": ", ".join(map(str, prompt)), "run": tuple(prompt)}


def forget() -> None:
    """Say no more of what the link asked for: something else is run."""
    nothing = {"link problem": "", "linked settings": {}, "refused settings": (), "session sha256": ""}
    for name, value in nothing.items():
        state.put(name, value)
