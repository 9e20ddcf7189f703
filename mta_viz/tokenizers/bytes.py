"""The byte tokenizer: ids 0 to 255 are the UTF-8 bytes of the text, then BOS 256 and EOS 257."""

from collections.abc import Sequence

from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.labels import label_bytes, unnamed
from mta_viz.tokenizers.spans import spans_of_bytes, utf8, with_bos

_N_BYTES = 256


class BytesTokenizer:
    """One id per byte; encodes every text."""

    kind: str = "bytes"
    vocab_size: int = _N_BYTES + 2

    def __init__(self) -> None:
        self.bos_id: int | None = _N_BYTES
        self.eos_id: int | None = _N_BYTES + 1
        self._labels = (*(label_bytes(bytes([byte])) for byte in range(_N_BYTES)), "<BOS>", "<EOS>")

    def encode(self, text: str) -> Tokens:
        """BOS + one id per byte. Raises TokenizerError for a lone surrogate."""
        encoded = utf8(text)
        return with_bos(self, text, tuple(encoded), spans_of_bytes([1] * len(encoded), encoded))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the bytes, BOS and EOS left out; broken bytes become U+FFFD."""
        return bytes(i for i in ids if 0 <= i < _N_BYTES).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The character, or "<0xC3>" for a byte that is only part of one, for each id."""
        return tuple(self._labels[i] if 0 <= i < self.vocab_size else unnamed(i) for i in ids)
