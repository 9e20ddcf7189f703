"""Turns shapes and scenes into sentences and paragraphs, from a seed alone."""

import random
import re
from collections.abc import Iterator

from mta_viz.tasks.grammar.inflect import with_article
from mta_viz.tasks.grammar.scene import Scene
from mta_viz.tasks.grammar.shapes import ENDINGS, MIDDLES, OPENINGS
from mta_viz.tasks.grammar.topics import TOPICS

Paragraph = tuple[str, ...]
_SLOT = re.compile(r"\{(\^?)(\w+)\}")


def paragraphs(seed: int, stream: str = "haystack") -> Iterator[Paragraph]:
    """Endless paragraphs of 5 to 9 sentences each; no sentence comes twice.

    `seed` and `stream` alone decide the text, whatever the machine or the hash order. Different
    streams are independent: what is trained on and what is tested on never share one.
    """
    rng = random.Random(f"{stream}:{seed}")
    written: set[str] = set()
    while True:
        yield _paragraph(rng, written)


def sentences(seed: int, stream: str = "haystack") -> Iterator[str]:
    """The sentences of `paragraphs`, one by one."""
    for paragraph in paragraphs(seed, stream):
        yield from paragraph


def _paragraph(rng: random.Random, written: set[str]) -> Paragraph:
    scene = Scene(rng, rng.choice(TOPICS))
    middles = rng.sample(MIDDLES, rng.randint(3, 7))
    shapes = [rng.choice(OPENINGS), *middles, rng.choice(ENDINGS)]
    return tuple(_new_sentence(scene, shape, written) for shape in shapes)


def _new_sentence(scene: Scene, shape: str, written: set[str]) -> str:
    """A sentence that is not in `written`; other shapes are tried once this one seems used up."""
    attempts = 0
    while (sentence := write_sentence(scene, shape)) in written:
        attempts += 1
        if attempts >= 3:
            shape = scene.rng.choice(MIDDLES)
    written.add(sentence)
    return sentence


def write_sentence(scene: Scene, shape: str) -> str:
    """`shape` with its slots filled, the first letter a capital."""
    text = ""
    for literal, caret, slot in _parts(shape):
        words = scene.fill(slot) if slot else ""
        # The article needs the words that follow it; a slot with a caret is followed by its noun.
        text += literal + (with_article(words) if caret else words)
    return _capitalised(text)


def _parts(shape: str) -> list[tuple[str, str, str]]:
    if shape not in _PARSED:
        pieces = _SLOT.split(shape)
        pieces += ["", ""]
        _PARSED[shape] = [(pieces[i], pieces[i + 1], pieces[i + 2]) for i in range(0, len(pieces), 3)]
    return _PARSED[shape]


_PARSED: dict[str, list[tuple[str, str, str]]] = {}


def _capitalised(text: str) -> str:
    start = 1 if text.startswith('"') else 0
    return text[:start] + text[start].upper() + text[start + 1 :]
