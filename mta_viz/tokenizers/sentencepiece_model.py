"""SentencePiece models: ids, BOS and EOS as the model file defines them."""

from collections.abc import Sequence

from sentencepiece import SentencePieceProcessor

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.base import (
    LabelledOnce,
    Tokens,
    label,
    label_bytes,
    spans_of_offsets,
    unnamed,
    utf8,
    with_bos,
)


class SentencePieceTokenizer(LabelledOnce):
    """Encodes every text, after the model's own normaliser.

    The normaliser may drop or replace characters (double spaces, "ﬁ", "①"); spans still partition
    the text as typed. Control pieces typed in it ("<s>") are plain text.
    """

    kind: str = "sp"

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError when `data` is no model (loading.py adds the file's name)."""
        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise TokenizerError("the SentencePiece library cannot read it.") from error
        self.vocab_size: int = self._processor.vocab_size()
        # The library gives -1 for a special token the model does not have.
        special = self._processor.bos_id(), self._processor.eos_id()
        self.bos_id, self.eos_id = (None if token_id < 0 else token_id for token_id in special)

    def encode(self, text: str) -> Tokens:
        """BOS + ids. Raises TokenizerError for a lone surrogate."""
        utf8(text)
        encoded = self._processor.encode(text, return_type="offset_mapping")
        return with_bos(self, text, encoded["ids"], spans_of_offsets(encoded["offsets"], len(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out; broken bytes become U+FFFD."""
        return str(self._processor.decode([i for i in ids if 0 <= i < self.vocab_size]))

    def _label(self, token_id: int) -> str:
        if not 0 <= token_id < self.vocab_size:
            return unnamed(token_id)
        piece = self._processor.id_to_piece(token_id)
        if self._processor.is_byte(token_id):
            return label_bytes(bytes([int(piece[3:5], 16)]))
        return label(piece.replace("▁", " "))


class PlainSentencePieceTokenizer(SentencePieceTokenizer):
    """The same without BOS, where the model beside it was trained without."""

    kind = "sp-plain"

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError as `SentencePieceTokenizer`."""
        super().__init__(data)
        self.bos_id = None
