"""Model files without a text form: SentencePiece's, and tiktoken's ranks as Llama 3 uses them.

Each library is imported when a file of its kind is opened.
"""

import binascii
from base64 import b64decode
from collections.abc import Sequence

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers import base


class SentencePieceTokenizer(base.LabelledOnce):
    """Encodes every text, after the model's own normaliser.

    The normaliser may drop or replace characters (double spaces, "ﬁ", "①"); spans still partition
    the text as typed. Control pieces typed in it ("<s>") are plain text.
    """

    kind: str = "sp"

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError when `data` is no model (loading.py adds the file's name)."""
        from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise TokenizerError("the SentencePiece library cannot read it.") from error
        self.vocab_size: int = self._processor.vocab_size()
        # The library gives -1 for a special token the model does not have.
        special = self._processor.bos_id(), self._processor.eos_id()
        self.bos_id, self.eos_id = (None if token_id < 0 else token_id for token_id in special)

    def encode(self, text: str) -> base.Tokens:
        """BOS + ids. Raises TokenizerError for a lone surrogate."""
        base.utf8(text)
        encoded = self._processor.encode(text, return_type="offset_mapping")
        return base.with_bos(self, text, encoded["ids"], base.spans_of_offsets(encoded["offsets"], len(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out; broken bytes become U+FFFD."""
        return str(self._processor.decode([i for i in ids if 0 <= i < self.vocab_size]))

    def _label(self, token_id: int) -> str:
        if not 0 <= token_id < self.vocab_size:
            return base.unnamed(token_id)
        piece = self._processor.id_to_piece(token_id)
        if self._processor.is_byte(token_id):
            return base.label_bytes(bytes([int(piece[3:5], 16)]))
        return base.label(piece.replace("▁", " "))


class PlainSentencePieceTokenizer(SentencePieceTokenizer):
    """The same without BOS, where the model beside it was trained without."""

    kind = "sp-plain"

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError as `SentencePieceTokenizer`."""
        super().__init__(data)
        self.bos_id = None


SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_N_SPECIALS = 256
_NAMED_SPECIALS = {0: "<|begin_of_text|>", 1: "<|end_of_text|>"}


class TiktokenTokenizer(base.LabelledOnce):
    """Encodes every text; special strings typed in it are plain text.

    The 256 ids after the ranks are special: +0 begins a text, +1 ends it, the others are labelled
    "<reserved 5>" by their place. No network: the ranks come from the given bytes of the file.
    """

    kind: str = "tiktoken"

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError when `data` is no rank file (loading.py adds the file's name)."""
        import tiktoken

        ranks = parse_ranks(data)
        self._pieces = tuple(sorted(ranks, key=ranks.__getitem__))
        self._encoding = tiktoken.Encoding(
            "rank file", pat_str=SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={}
        )
        self.vocab_size: int = len(ranks) + _N_SPECIALS
        self.bos_id: int | None = len(ranks)
        self.eos_id: int | None = len(ranks) + 1

    def encode(self, text: str) -> base.Tokens:
        """BOS + ids. Raises TokenizerError for a lone surrogate."""
        encoded = base.utf8(text)
        ids = self._encoding.encode_ordinary(text)
        return base.with_bos(
            self, text, ids, base.spans_of_bytes([len(self._pieces[i]) for i in ids], encoded)
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, specials left out; broken bytes become U+FFFD."""
        known = (self._pieces[i] for i in ids if 0 <= i < len(self._pieces))
        return b"".join(known).decode("utf-8", errors="replace")

    def _label(self, token_id: int) -> str:
        special = token_id - len(self._pieces)
        if 0 <= special < _N_SPECIALS:
            return _NAMED_SPECIALS.get(special) or base.reserved(special)
        return (
            base.label_bytes(self._pieces[token_id])
            if 0 <= token_id < len(self._pieces)
            else base.unnamed(token_id)
        )


def rank_of_line(line: bytes) -> tuple[bytes, int]:
    """The bytes of a token and its rank. Raises ValueError for a line that holds none."""
    piece, rank = line.split()
    return b64decode(piece, validate=True), int(rank)


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """{bytes of a token: its rank} of a rank file. Raises TokenizerError saying what is wrong with it."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            piece, rank = rank_of_line(line)
            ranks[piece] = rank
        except (ValueError, binascii.Error) as error:
            raise TokenizerError(f'line {number} is not "base64 rank".') from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise TokenizerError("its ranks do not count from 0 to the number of tokens, each once.")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(
            f"{len(missing)} of the 256 single bytes have no rank (such as 0x{missing[0]:02X})."
        )
    return ranks
