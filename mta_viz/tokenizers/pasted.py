"""Token ids given instead of text, for a model whose tokenizer is not at hand."""

import json
import re
from collections.abc import Iterable
from operator import index
from typing import Any

from mta_viz.errors import PromptError
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tokenizers.labels import unnamed

_MAX_NAMED = 5


def ids_from_text(text: str) -> tuple[int, ...]:
    """The ids in pasted text: a JSON list, or whole numbers between spaces, commas or line ends.

    Raises PromptError naming the first entry that is no whole number.
    """
    entries = re.split(r"[\s,]+", text.strip().removeprefix("[").removesuffix("]").strip(" ,\t\r\n"))
    if entries == [""]:
        raise PromptError("No token ids were given. Paste whole numbers such as: 256, 104, 105")
    for place, entry in enumerate(entries):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", entry):
            raise PromptError(
                f"Entry {place} of the token ids is {json.dumps(entry[:40])}, not a whole number. "
                "Paste whole numbers such as: 256, 104, 105"
            )
    return tuple(int(entry) for entry in entries)


def tokens_from_ids(ids: Iterable[Any], *, vocab_size: int, tokenizer: Tokenizer | None = None) -> Tokens:
    """Tokens of `ids` taken as they are (no BOS added), labelled by `tokenizer` or, without one, "<id 17>".

    `ids` may come straight from a JSON file, or be integers of numpy or torch. `vocab_size` is the
    model's. There is no text, so every span is empty. Raises PromptError for no ids, for entries that are no
    integers, and for ids outside 0 .. vocab_size - 1, naming them.
    """
    entries = tuple(ids)
    if not entries:
        raise PromptError("No token ids were given. Give at least one.")
    plain = tuple(map(_whole, entries))
    wrong = [f"{entries[at]!r} at {at}" for at, found in enumerate(plain) if not 0 <= found < vocab_size]
    if wrong:
        more = f" and {len(wrong) - _MAX_NAMED} more" if len(wrong) > _MAX_NAMED else ""
        raise PromptError(
            f"The model's token ids are whole numbers from 0 to {vocab_size - 1}; "
            f"given: {', '.join(wrong[:_MAX_NAMED])}{more} (positions count from 0). Correct them."
        )
    pieces = tuple(map(unnamed, plain)) if tokenizer is None else tokenizer.pieces(plain)
    return Tokens(ids=plain, pieces=pieces, spans=tuple((0, 0) for _ in plain), text=None)


def _whole(entry: Any) -> int:
    """Any kind of integer as an int (a bool is none, a JSON 3.0 is none); -1, never an id, for the rest."""
    try:
        return -1 if isinstance(entry, bool) else index(entry)
    except TypeError:
        return -1
