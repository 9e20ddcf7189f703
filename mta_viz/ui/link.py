"""The prompt in a page's address, so that a copied link shows the same run: `ex`, `p` or `ids`.

`ex=NAME` is an example of `examples.json`, `p=TEXT` a prompt, `ids=1,2,3` token ids. What is too long
for an address stays out, and the page says so. The selection in the address is `state`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.tokenizers.pasted import ids_from_text
from mta_viz.ui import state
from mta_viz.ui.examples import examples

MAX_CHARACTERS = 1000
QUICK = 1e11  # multiply-adds a slow computer does in 10 s; a link does not start more by itself
Prompt = str | tuple[int, ...]


@dataclass(frozen=True)
class Linked:
    """The prompt an address holds, None without a usable one; `problem` says what is wrong with it."""

    prompt: Prompt | None = None
    problem: str = ""


def parameters(prompt: Prompt | None) -> dict[str, str]:
    """The prompt as parameters of an address; empty without one, and for one that is too long."""
    if not prompt:
        return {}
    if isinstance(prompt, tuple):
        return _short("ids", ",".join(map(str, prompt)))
    name = next((example.name for example in examples() if example.text == prompt), None)
    return _short("p", prompt) if name is None else {"ex": name}


def _short(name: str, text: str) -> dict[str, str]:
    return {name: text} if len(text) <= MAX_CHARACTERS else {}


def read(found: Mapping[str, str]) -> Linked:
    """The prompt in an address's parameters; an example before a text before ids."""
    for name, make in (("ex", _example), ("p", _text), ("ids", _ids)):
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


def _too_long(text: str) -> str:
    return (
        f"The link's prompt has {len(text):,} characters and was left out: at most {MAX_CHARACTERS:,} "
        "are taken from a link. Paste the prompt into the box."
    )


def restore() -> None:
    """Put the address's prompt into its box, once a session, before the box is drawn."""
    if state.get("link read"):
        return
    state.put("link read", True)
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
