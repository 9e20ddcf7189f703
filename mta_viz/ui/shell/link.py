"""The prompt in a page's address, so that a copied link shows the same run: `ex`, `p`, `ids` or `kept`.

`ex=NAME` is an example of `examples.json`, `p=TEXT` a prompt, `ids=1,2,3` token ids; `kept=ID` is a prompt
too long for an address, which this machine keeps. Of a run's places the address holds the exact part of a
long map, and spans a visitor named. The selection in the address is `state`'s.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import streamlit as st

from mta_viz.analysis.attention.spans import Span
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.tokenizers.base import Tokenizer, ids_from_text
from mta_viz.tokenizers.chat import chat_text
from mta_viz.ui.shell import kept_prompts, state
from mta_viz.ui.shell.page import ASSETS
from mta_viz.ui.shell.pickers import CROP_SIZE, Crop, NamedSpans, Part
from mta_viz.ui.shell.plan import NAME as PLAN
from mta_viz.ui.shell.state import Setting

NAMES = ("crop", "spans")
PROMPTS = ("ex", "p", "ids", "kept")
MAX_CHARACTERS = 1000  # of a prompt, of a crop, of spans
MAX_NAME = 200  # characters of a span's name
NOT_KEPT = "none"  # stands for a prompt that is too long and could not be kept: the link says so
QUICK = 1e11  # multiply-adds a slow computer does in 10 s; a link does not start more by itself
Prompt = str | tuple[int, ...]
# beside the prompt that is shown: what was typed since, and the message that was put into a chat template
TYPED, MESSAGE = Setting("typed", ""), Setting("message", "")


def place_parameters(crop: Crop | None, spans: Sequence[Span] | None) -> dict[str, str]:
    """`crop=q0,q1,k0,k1` and `spans=[["Oslo","A",3,9]]`; what is None or too long is left out."""
    texts = {}
    if crop is not None:
        texts["crop"] = ",".join(map(str, (*crop.queries, *crop.keys)))
    if spans is not None:
        rows = [[span.name, span.letter, span.start, span.stop] for span in spans]
        texts["spans"] = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return {name: text for name, text in texts.items() if len(text) <= MAX_CHARACTERS}


def read_crop(parameters: Mapping[str, str]) -> Crop | None:
    """The crop an address names; None for none, or for what is none."""
    parts = parameters.get("crop", "").split(",")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    q0, q1, k0, k1 = map(int, parts)
    fits = 0 < q1 - q0 <= CROP_SIZE and 0 < k1 - k0 <= CROP_SIZE
    return Crop((q0, q1), (k0, k1)) if fits else None


def read_spans(parameters: Mapping[str, str], n_tokens: int) -> tuple[Span, ...] | None:
    """The spans an address names, all within the prompt; None for none, or for what are none."""
    text = parameters.get("spans", "")
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        return tuple(_span(row, n_tokens) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, PromptError):
        return None


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
    """A prompt named by what it shows; `tokenizers` are the kinds it is meant for, `task` one it is of."""

    name: str
    text: str
    tokenizers: tuple[str, ...]
    task: str | None = None


@cache
def examples() -> tuple[Example, ...]:
    """All examples, in the order of the file. `repeat` there makes a long prompt from a short one."""
    listed = []
    for entry in json.loads((ASSETS / "examples.json").read_text(encoding="utf-8")):
        text = " ".join([entry["text"]] * entry.get("repeat", 1))
        listed.append(Example(entry["name"], text, tuple(entry["tokenizers"]), entry.get("task")))
    return tuple(listed)


@lru_cache(maxsize=8)  # of a tokenizer as the models hold it
def fitting(tokenizer: Tokenizer) -> tuple[Example, ...]:
    """The examples meant for this kind of tokenizer that it can encode."""
    offered = []
    for example in examples():
        if tokenizer.kind in example.tokenizers:
            with suppress(MtaVizError):
                tokenizer.encode(example.text)
                offered.append(example)
    return tuple(offered)


@lru_cache(maxsize=8)
def usual_example(tokenizer: Tokenizer, n_ctx: int, task: str | None) -> str:
    """The first example of the model's task, else the first, of those within `n_ctx`, else of all."""
    offered = fitting(tokenizer)
    short = [example for example in offered if len(tokenizer.encode(example.text)) <= n_ctx]
    of_task = [example for example in short if task is not None and example.task == task]
    return next((example.text for example in (*of_task, *short, *offered)), "")


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
    return {"kept": (state.part(kept_prompts.Own).address("kept", prompt) or NOT_KEPT).removeprefix("kept:")}


def read(parameters: Mapping[str, str]) -> tuple[Prompt | None, str]:
    """The prompt in an address, the first of `PROMPTS`, or None; and what is wrong with it."""
    name = next((name for name in PROMPTS if parameters.get(name)), "")
    text = parameters.get(name, "")
    if name == "ex":
        prompt = next((example.text for example in examples() if example.name == text), None)
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        problem = f"The link names the example {shown!r}, which is not here. Choose another or type a prompt."
        return prompt, "" if prompt else problem
    if name == "kept":
        return _kept(text)
    if len(text) > MAX_CHARACTERS:
        return None, (
            f"The link's prompt has {len(text):,} characters and was left out: at most {MAX_CHARACTERS:,} "
            "are taken from a link. Paste the prompt into the box."
        )
    try:
        return ids_from_text(text) if name == "ids" else text or None, ""
    except MtaVizError as error:
        return None, f"The link's token ids could not be read: {error}"


def _kept(name: str) -> tuple[Prompt | None, str]:
    prompt = kept_prompts.value_of(name)
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return tuple(prompt), ""
    if not isinstance(prompt, str):
        return None, (
            "The link's prompt is too long to be in it and is kept on the machine the link was made on, not "
            "here, or no longer. Another is shown, with the link's settings. Ask for the prompt and paste it "
            "into the box."
        )
    return prompt, ""


@dataclass
class PromptLink:
    """What the address said of the prompt: the one it holds until it is run, and what was wrong with it.

    `places`: its crop and spans; `weights` is the sha256 an opened session names.
    """

    read: bool = False
    prompt: Prompt | None = None
    problem: str = ""
    places: dict[str, str] = field(default_factory=dict)
    weights: str = ""


@dataclass(frozen=True)
class Chat:
    """A message, and where the template is that it was put into; `note`: what is to be said of that.

    `problem`: why it could not be put into the template.
    """

    message: str
    place: Path
    note: str = ""
    problem: str = ""


def in_template(tokenizer: Tokenizer, place: Path, message: str) -> tuple[str, Chat]:
    """The message in the template, as it is where that fails, and what is to be said of it."""
    try:
        text, ids = chat_text(tokenizer, place, message)
        begun, note = tokenizer.encode(text), ""
    except MtaVizError as error:
        return message, Chat(message, place, problem=str(error))
    if begun.ids != ids:
        note = f"{begun.pieces[0]} stands before it, as before every text; the template leaves it out."
    return text, Chat(message, place, note)


@dataclass
class Box:
    """What the prompt's box holds (`text` is None before the first example), and what was asked to be run.

    `usual`: the example that stood there unasked, which another model's takes the place of. `last`: by a
    model's path, the last prompt it was asked to run that it can take. `chat`: the last message that was to
    be put into a chat template.
    """

    text: str | None = None
    usual: str | None = None
    ids: str = ""
    kind: Literal["text", "ids"] = "text"
    run: Prompt | None = None
    last: dict[str, Prompt] = field(default_factory=dict)
    chat: Chat | None = None

    def ask(self, prompt: Prompt) -> None:
        """Put a prompt into its box and have it run, however long it is."""
        self.chat = None
        if isinstance(prompt, str):
            self.text = prompt
        else:
            self.ids = ", ".join(map(str, prompt))
        self.run = prompt

    def fill(self, tokenizer: Tokenizer, n_ctx: int, task: str | None) -> None:
        """The model's usual example, but where the visitor gave a text that is none for other tokenizers."""
        usual = usual_example(tokenizer, n_ctx, task)
        foreign = {example.text for example in examples()} - {each.text for each in fitting(tokenizer)}
        given = self.text not in {None, self.usual, *foreign}
        if not given and self.text != usual:
            self.ask(usual)
        if not given or (self.usual is None and self.text == usual):  # a link to a page as it opens
            self.usual = usual


def restore() -> None:
    """Put the address's prompt into its box, once a session, before the box is drawn; keep its settings.

    Again after Back and Forward, where the prompt was run before and is shown without being asked.
    """
    again = state.session().restoring
    if again:
        for kind in (PromptLink, NamedSpans):
            state.session().parts.pop(kind, None)
    link, box = state.part(PromptLink), state.part(Box)
    if link.read:
        return
    link.read = True
    state.read_settings({*PROMPTS, *NAMES, PLAN})
    link.places = {name: st.query_params.get(name, "") for name in NAMES}
    state.part(Part).crop = read_crop(link.places)
    link.prompt, link.problem = read(dict(st.query_params))
    if link.prompt is not None:
        run = box.run
        box.ask(link.prompt)
        box.run = link.prompt if again else run  # else it is run by `take`
    elif link.problem:  # the cell and the part are of a prompt that is not here
        state.select(query=None, key=None)
        link.places, state.part(Part).crop = {}, None


def keep_typed(newer: bool) -> None:
    """Text in the box that is `newer` than the run that is shown: it is there again after a reload."""
    box, opened = state.part(Box), TYPED.name in state.session().link.settings
    if opened and (text := TYPED.declare()):
        box.text, state.part(PromptLink).prompt = text, None
        st.rerun()
    TYPED.put(box.text or "" if newer and box.kind == "text" else "")
    TYPED.declare()


def open_message(tokenizer: Tokenizer, place: Path) -> None:
    """The message in the chat template at `place`, where the address that was opened has one."""
    opened = MESSAGE.name in state.session().link.settings
    if message := MESSAGE.declare() if opened else "":
        state.part(Box).chat = in_template(tokenizer, place, message)[1]


def keep_message(message: str) -> None:
    """The message that stands in a chat template, "" for none, goes into the address."""
    MESSAGE.put(message)
    MESSAGE.declare()


def problem(prompt: Prompt) -> str:
    """Why the box holds something else than the link's prompt; "" when it holds that, or has none."""
    link = state.part(PromptLink)
    linked = link.prompt
    if linked is None or linked == prompt:
        return link.problem
    kinds = ("token ids", "a text") if isinstance(linked, tuple) else ("a text", "token ids")
    link.prompt = None
    link.problem = f"The link's prompt is {kinds[0]}, and this model takes {kinds[1]}: it was left out."
    if isinstance(linked, str) and isinstance(prompt, str):
        link.problem = "The link's prompt is an example for other models: it was left out."
    return link.problem


def take(prompt: Prompt, multiply_adds: float) -> bool:
    """Whether the link's prompt is in the box and is to be run without being asked; True only once."""
    link = state.part(PromptLink)
    if link.prompt != prompt:
        return False
    link.prompt = None
    return multiply_adds <= QUICK


def forget() -> None:
    """Say no more of what the link asked for: something else is run."""
    link, settings = state.part(PromptLink), state.session().link
    link.problem = link.weights = ""
    settings.settings, settings.refused = {}, []
