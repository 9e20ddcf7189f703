"""The needle model's own tokenizer: byte-level BPE in which digits and sentence ends stand alone.

A space after a sentence end is a token of its own, so a sentence has the same tokens wherever it
stands, and tables of encoded sentences can be put together freely.
"""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from mta_viz.tokenizers.hf_json import JsonTokenizer

VOCAB_SIZE = 4096
BOS, EOS = "<BOS>", "<EOS>"
_PATTERN = (
    r"(?<=[.!?]|[.!?][\"')]) "  # the space between two sentences
    r"| ?[0-9]"  # digits one by one, the first with its space
    r"| ?[\p{L}\p{M}]+"
    r"|'[\p{L}\p{M}]+"
    r"| ?[^\s\p{L}\p{M}0-9]"
    r"|\n| +(?= )|\s"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A tokenizer trained on `texts`; every byte has a token, so any text encodes.

    Deterministic: the same texts in the same order give the same file.
    """
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(BOS, special=True), AddedToken(EOS, special=True)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    library.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, library.token_to_id(BOS))]
    )
    return library


def as_tokenizer(library: Tokenizer) -> JsonTokenizer:
    """The trained tokenizer as the rest of the project reads it from its file."""
    return JsonTokenizer(library.to_str().encode())
