"""The vocabulary in a GGUF file -> a tokenizer's file of a kind there is: tokenizer.json, or SentencePiece's.

`gpt2` there means byte-level BPE, whose merges act on pieces of a text; how it is cut up the file tells
by a name only, so a name not known here makes no tokenizer. `llama` means SentencePiece with scores.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mta_viz.errors import TokenizerError
from mta_viz.printed import short_repr

_PREFIX = "tokenizer.ggml."
_NO_TOKEN = "\uffff"  # no character: what SentencePiece finds no token by (an empty name means its default)
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
# `pre` -> how a text is cut; of the first two the library has the rules itself.
_GPT2 = dict.fromkeys(("gpt-2", "default"), "gpt2")
_SPLITS = {**_GPT2, "smollm": "digits"} | dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), "llama3")
_SPLITS |= dict.fromkeys(("qwen2", "deepseek-r1-qwen"), "qwen2")


@dataclass(frozen=True)
class Vocabulary:
    """What the metadata says of the tokenizer; `types` and `scores` may be empty."""

    model: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    add_bos: bool
    add_space: bool

    def typed(self, *kinds: int) -> list[int]:
        """The ids of tokens of these types."""
        return [token_id for token_id, kind in enumerate(self.types) if kind in kinds]


def vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Raises TokenizerError for a file without one, and for lists that do not fit each other."""
    fields = {key.removeprefix(_PREFIX): value for key, value in metadata.items() if key.startswith(_PREFIX)}
    model, tokens, pre = fields.get("model"), _texts(fields, "tokens"), str(fields.get("pre", ""))
    if model not in ("gpt2", "llama") or not tokens:
        raise TokenizerError(f"its tokenizer is {short_repr(model)}; gpt2 and llama can be read.")
    read = Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        types=_numbers(fields, "token_type", len(tokens)),
        scores=_numbers(fields, "scores", len(tokens)),
        merges=_texts(fields, "merges"),
        **{f"{name}_id": _token_id(fields, name, len(tokens)) for name in ("bos", "eos", "unknown")},
        add_bos=_flag(fields, "add_bos_token", model == "llama" or _SPLITS.get(pre) == "llama3"),
        add_space=_flag(fields, "add_space_prefix", True),
    )
    twice = [token for token, count in Counter(read.tokens).most_common(1) if count > 1]
    if twice:
        raise TokenizerError(f"its vocabulary has the token {short_repr(twice[0])} twice.")
    return read


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name)
    return value if isinstance(value, tuple) else ()


def _numbers(fields: Mapping[str, Any], name: str, count: int) -> Sequence[Any]:
    values = fields.get(name, ())
    numbers = values.tolist() if hasattr(values, "tolist") else values
    if len(numbers) not in (0, count) or not all(type(number) in (int, float) for number in numbers):
        raise TokenizerError(f"its {name} do not fit its {count:,} tokens.")
    return numbers


def _token_id(fields: Mapping[str, Any], name: str, count: int) -> int | None:
    value = fields.get(f"{name}_token_id")
    return value if type(value) is int and 0 <= value < count else None


def _flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    return value if isinstance(value, bool) else default


def tokenizer_file(words: Vocabulary) -> tuple[str, str, bytes]:
    """Kind, file name and bytes of the tokenizer. Raises TokenizerError where the vocabulary makes none."""
    if words.model == "llama":
        return "sp" if words.add_bos else "sp-plain", "tokenizer.model", sentencepiece_file(words)
    return "huggingface", "tokenizer.json", json_file(words)


def json_file(words: Vocabulary) -> bytes:
    """tokenizer.json of a byte-level BPE."""
    split = _SPLITS.get(words.pre)
    if split is None:
        named = f"is called {short_repr(words.pre)} there" if words.pre else "does not stand there"
        raise TokenizerError(
            f"the rule that cuts a text before its merges act {named} and is not known here."
        )
    merges = [merge.split(" ") for merge in words.merges]
    if any(len(pair) != 2 for pair in merges):
        raise TokenizerError("its merges are no pairs of tokens.")
    model = {
        "type": "BPE",
        "ignore_merges": split == "llama3",
        "vocab": {token: token_id for token_id, token in enumerate(words.tokens)},
        "merges": merges,
    }
    whole = {
        "version": "1.0",
        "added_tokens": [_added(words, token_id) for token_id in words.typed(_CONTROL, _USER_DEFINED)],
        "normalizer": {"type": "NFC"} if split == "qwen2" else None,
        "pre_tokenizer": _pre_tokenizer(split),
        "post_processor": _around(words),
        "decoder": _byte_level(use_regex=True),
        "model": model,
    }
    return json.dumps(whole).encode()


def _added(words: Vocabulary, token_id: int) -> dict[str, Any]:
    special = words.types[token_id] == _CONTROL
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": words.tokens[token_id], "special": special, **plain}


def _around(words: Vocabulary) -> dict[str, Any]:
    """BOS, if the file wants it, and EOS: how a tokenizer.json tells them."""
    before, after = words.bos_id if words.add_bos else None, words.eos_id
    ids = {words.tokens[token_id]: token_id for token_id in (before, after) if token_id is not None}
    first, last = (
        [] if token_id is None else [{"SpecialToken": {"id": words.tokens[token_id], "type_id": 0}}]
        for token_id in (before, after)
    )
    single = [*first, {"Sequence": {"id": "A", "type_id": 0}}, *last]
    named = {name: {"id": name, "ids": [token_id], "tokens": [name]} for name, token_id in ids.items()}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": named}


def _pre_tokenizer(split: str) -> dict[str, Any]:
    if split == "gpt2":
        return _byte_level(use_regex=True)
    if split == "digits":
        parts = [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)]
    else:
        from mta_viz.tokenizers.tiktoken_ranks import SPLIT_PATTERN

        pattern = SPLIT_PATTERN if split == "llama3" else SPLIT_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
        cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        parts = [cut, _byte_level(use_regex=False)]
    return {"type": "Sequence", "pretokenizers": parts}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sentencepiece_file(words: Vocabulary) -> bytes:
    """SentencePiece's own file of a BPE with scores: token types are numbered there as in GGUF."""
    from sentencepiece import sentencepiece_model_pb2 as protobuf

    if not words.scores or not words.types:
        raise TokenizerError("its vocabulary has no scores or no types.")
    model = protobuf.ModelProto()  # type: ignore[attr-defined]
    for token, score, kind in zip(words.tokens, words.scores, words.types, strict=True):
        if not token or not _NORMAL <= kind <= _BYTE:
            raise TokenizerError(f"its token {short_repr(token)} is of the type {short_repr(kind)}.")
        model.pieces.add(piece=token, score=score, type=int(kind))
    if words.unknown_id is not None:
        model.pieces[words.unknown_id].type = _UNKNOWN
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.vocab_size = trainer.BPE, len(words.tokens)
    trainer.byte_fallback = bool(words.typed(_BYTE))
    ids = (words.bos_id, words.eos_id, words.unknown_id)
    names = (_NO_TOKEN if token_id is None else words.tokens[token_id] for token_id in ids)
    trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = names
    normalizer.name, normalizer.add_dummy_prefix = "identity", words.add_space
    normalizer.remove_extra_whitespaces, normalizer.escape_whitespaces = False, True
    return model.SerializeToString()
