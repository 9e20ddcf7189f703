"""Token ids given instead of text, for a model whose tokenizer is not at hand."""

import json
import re
from collections.abc import Sequence

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


def tokens_from_ids(ids: Sequence[object], *, vocab_size: int, tokenizer: Tokenizer | None = None) -> Tokens:
    """Tokens of `ids` taken as they are (no BOS added), labelled by `tokenizer` or, without one, "<id 17>".

    `ids` may come straight from a JSON file. `vocab_size` is the model's. There is no text, so
    every span is empty. Raises PromptError for no ids, for entries that are no integers, and for
    ids outside 0 .. vocab_size - 1, naming them.
    """
    if not ids:
        raise PromptError("No token ids were given. Give at least one.")
    wrong = [f"{entry!r} at {place}" for place, entry in enumerate(ids) if not _is_id(entry, vocab_size)]
    if wrong:
        more = f" and {len(wrong) - _MAX_NAMED} more" if len(wrong) > _MAX_NAMED else ""
        raise PromptError(
            f"The model's token ids are whole numbers from 0 to {vocab_size - 1}; "
            f"given: {', '.join(wrong[:_MAX_NAMED])}{more} (positions count from 0). Correct them."
        )
    plain = tuple(entry for entry in ids if isinstance(entry, int))
    pieces = tuple(map(unnamed, plain)) if tokenizer is None else tokenizer.pieces(plain)
    return Tokens(ids=plain, pieces=pieces, spans=tuple((0, 0) for _ in plain), text=None)


def _is_id(entry: object, vocab_size: int) -> bool:
    """Whether `entry` is an int (a bool is not, a JSON 3.0 is not) the model has a row for."""
    return isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < vocab_size
