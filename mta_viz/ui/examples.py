"""The example prompts of `assets/examples.json`, and which of them a tokenizer can encode."""

import json
from dataclasses import dataclass

from mta_viz.errors import MtaVizError
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.ui.site import ASSETS


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
