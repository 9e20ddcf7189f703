"""Which characters of the prompt each token stands for, always a partition of the prompt.

A character cut into several tokens belongs to the one that holds its last byte: only there can the
model know which character it is. Characters that no token covers (a normaliser removed them) belong
to the token after them, at the end of the prompt to the last token.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.base import Tokenizer, Tokens

Span = tuple[int, int]


def utf8(text: str) -> bytes:
    """The UTF-8 bytes of `text`. Raises TokenizerError for a lone surrogate, which has none."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"The prompt holds half a character (lone surrogate U+{ord(text[error.start]):04X}) at position "
            f"{error.start}; it is no valid text. Remove it."
        ) from error


def spans_of_bytes(lengths: Iterable[int], encoded: bytes) -> tuple[Span, ...]:
    """Character spans of tokens that are `lengths` bytes long and together make up `encoded`."""
    starts = [byte & 0xC0 != 0x80 for byte in encoded]
    # complete[p]: characters that end at or before byte p, for p = 0 .. len(encoded)
    complete = [count - 1 for count in accumulate([*starts, True])]
    edges = [complete[end] for end in accumulate(lengths, initial=0)]
    return tuple(pairwise(edges))


def spans_of_offsets(offsets: Sequence[Span], length: int) -> tuple[Span, ...]:
    """A partition of 0..length from a library's (start, end) offsets, which may overlap or leave gaps."""
    if not offsets:
        return ()
    furthest_end = accumulate((end for _, end in offsets[:-1]), max)
    next_start = list(accumulate((start for start, _ in reversed(offsets[1:])), min))[::-1]
    inner = [min(pair) for pair in zip(furthest_end, next_start, strict=True)]
    edges = [0, *inner, length]
    return tuple(pairwise(edges))


def with_bos(tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span]) -> Tokens:
    """BOS, where the tokenizer has one, and then `ids`, labelled.

    BOS has an empty span, but for a text of which the tokenizer keeps nothing (SentencePiece and a
    line of spaces): it is then the only token and stands for all of it. Raises TokenizerError when
    there is not even a BOS.
    """
    if text and not ids and tokenizer.bos_id is None:
        raise TokenizerError(f"The tokenizer makes no token of the prompt {text[:40]!r}. Type some words.")
    before = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
    all_ids = (*before, *ids)
    bos_span = (0, 0) if ids else (0, len(text))
    all_spans = (*(bos_span for _ in before), *spans)
    return Tokens(ids=all_ids, pieces=tokenizer.pieces(all_ids), spans=all_spans, text=text)
