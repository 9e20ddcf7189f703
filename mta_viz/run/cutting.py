"""A prompt that is too long for this machine made shorter, at the left, in the middle or at the right."""

from typing import Literal, get_args

from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.base import Tokens

Place = Literal["left", "middle", "right"]
PLACES: tuple[Place, ...] = get_args(Place)
TRIES = 8  # a text that is cut may have other tokens at its ends


def cut(model: HookedMTA, tokens: Tokens, most: int, place: Place) -> str | tuple[int, ...]:
    """What is left of a prompt of which `most` tokens fit; a text stays a text.

    What comes before the first character (BOS) counts among the tokens that fit.
    """
    if tokens.text is None or model.tokenizer is None:
        return _kept(tokens.ids, most, place)
    text, room = tokens.text, most
    for _ in range(TRIES):
        first = next((at for at, (start, stop) in enumerate(tokens.spans) if stop > start), len(tokens))
        spans = _kept(tokens.spans[first:], max(room - first, 0), place)
        text = "".join(tokens.text[start:stop] for start, stop in spans)
        beyond = len(model.tokenizer.encode(text)) - most if text else 0
        if beyond <= 0:
            break
        room -= beyond
    return text


def _kept(values: tuple, most: int, place: Place) -> tuple:
    left = {"left": 0, "middle": most // 2, "right": most}[place]
    return (*values[:left], *values[len(values) - (most - left) :])
