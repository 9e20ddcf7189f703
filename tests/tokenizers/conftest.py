"""One small tokenizer of every kind, made here: none needs a network or the golden files."""

import io
from base64 import b64encode
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.loading import load_tokenizer

LINES = ["The old ferry waited in Rome.", "café 日本 the thing in the north", "12 gates, don't they'll"] * 4


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder that holds ranks.tiktoken, tokenizer.model, tokenizer.json and more."""
    folder = tmp_path_factory.mktemp("tokenizers")
    merges = [b"th", b"the", b" the", b"\xe6\x97", b" \xf0", b"\r\n", b"\n\n", b"LA"]
    pieces = [bytes([byte]) for byte in range(256)] + merges
    (folder / "ranks.tiktoken").write_bytes(
        b"".join(b64encode(piece) + f" {rank}\n".encode() for rank, piece in enumerate(pieces))
    )
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(byte_fallback=True))
    (folder / "unknowns.model").write_bytes(sentencepiece_model(byte_fallback=False, bos_id=-1, eos_id=-1))
    byte_level_bpe().save(str(folder / "tokenizer.json"))
    trimmed = byte_level_bpe()
    trimmed.post_processor = processors.ByteLevel(trim_offsets=True)
    trimmed.normalizer = normalizers.NFC()
    trimmed.save(str(folder / "trimmed.json"))
    word_pieces().save(str(folder / "words.json"))
    return folder


def sentencepiece_model(**options: object) -> bytes:
    model = io.BytesIO()
    size = 330 if options["byte_fallback"] else 50
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=3,
        num_threads=1,
        **options,
    )
    return model.getvalue()


def byte_level_bpe() -> Library:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<BOS>", "<EOS>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(LINES, trainer)
    return library


def word_pieces() -> Library:
    """Lower-cases, strips accents, drops control characters, pads and cuts: all a file can ask for."""
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    library.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=120, special_tokens=specials, show_progress=False)
    )
    library.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    library.enable_truncation(4)
    library.enable_padding(length=8, pad_id=3, pad_token="[PAD]")
    return library


FILES = {
    "tiktoken": ("tiktoken", "ranks.tiktoken"),
    "sp": ("sp", "tokenizer.model"),
    "sp without fallback": ("sp", "unknowns.model"),
    "byte-level": ("tokenizers", "tokenizer.json"),
    "byte-level trimmed": ("tokenizers", "trimmed.json"),
    "word pieces": ("tokenizers", "words.json"),
}


@pytest.fixture(scope="session")
def all_tokenizers(tokenizer_folder: Path) -> dict[str, Tokenizer]:
    """Every tokenizer that takes any text, by name."""
    made = {name: load_tokenizer(kind, file, folder=tokenizer_folder) for name, (kind, file) in FILES.items()}
    return {"bytes": load_tokenizer("bytes", None, folder=tokenizer_folder), **made}
