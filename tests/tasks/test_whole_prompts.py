"""A task's prompt is one text encoded whole, whatever the tokenizer: ids, spans, length and answer say so."""

import io
import itertools
import string
from collections.abc import Callable
from functools import cache

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from mta_viz.errors import PromptError
from mta_viz.tasks import grammar
from mta_viz.tasks.needles import PAPER_NEEDLE, RULER_NEEDLE, RULER_QUESTION, NeedleTask, PairsTask
from mta_viz.tasks.questions import QuestionTask, make_question_sample
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.builtin import BytesTokenizer
from mta_viz.tokenizers.hf_json import JsonTokenizer
from mta_viz.tokenizers.model_files import SentencePieceTokenizer

LINES = [
    *itertools.islice(grammar.sentences(3, "whole prompts"), 400),
    RULER_NEEDLE,
    "Where is it? Answer: 7",
]
HAYSTACK = " ".join(LINES[:150]) + ' Zoë saw 3 cafés in 日本 😀! Why? "Yes." He said so.'
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # after tiktoken's own


def bpe(before: pre_tokenizers.PreTokenizer, decoder: decoders.Decoder) -> JsonTokenizer:
    """A BPE of 700 entries whose texts are cut by `before`."""
    library = Library(models.BPE())
    library.pre_tokenizer, library.decoder = before, decoder
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<BOS>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(LINES, trainer)
    return JsonTokenizer(library.to_str().encode())


def byte_level(prefix: bool) -> Tokenizer:
    return bpe(pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel())


def split_pattern() -> Tokenizer:
    """Cut as tiktoken's patterns cut, then bytes."""
    cuts = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    return bpe(
        pre_tokenizers.Sequence([cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        decoders.ByteLevel(),
    )


def across_words() -> Tokenizer:
    """No cut at all: merges run over spaces and sentence ends."""
    return bpe(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel())


def unigram() -> Tokenizer:
    """Metaspace before every word, the first too."""
    library = Library(models.Unigram())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<unk>"],
        unk_token="<unk>",
        initial_alphabet=list(string.printable + "éë"),  # names of cities have letters that no line has
        show_progress=False,
    )
    library.train_from_iterator(LINES, trainer)
    library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return JsonTokenizer(library.to_str().encode())


def sentence_piece(**options: object) -> Tokenizer:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=600, hard_vocab_limit=False,
        byte_fallback=True, minloglevel=3, num_threads=1, **options,
    )  # fmt: skip
    return SentencePieceTokenizer(model.getvalue())


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": BytesTokenizer,
    "byte-level": lambda: byte_level(False),
    "byte-level with a prefix space": lambda: byte_level(True),
    "a tiktoken pattern": split_pattern,
    "merges across words": across_words,
    "unigram with metaspace": unigram,
    "sentencepiece": sentence_piece,
    "sentencepiece without dummy prefix": lambda: sentence_piece(add_dummy_prefix=False),
}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return KINDS[kind]()


def check_spans(tokenizer: Tokenizer, tokens, spans) -> None:
    """Each span is exactly the tokens that overlap its text, and decoded and stripped it holds the text."""
    for span in spans:
        assert span.text in tokenizer.decode(tokens.ids[span.start : span.stop]).strip()
        first, last = tokens.spans[span.start], tokens.spans[span.stop - 1]
        assert span.text in tokens.text[first[0] : last[1]]
        inner = tokens.text[first[1] : last[0]] if span.stop - span.start > 1 else ""
        assert span.text not in inner and len(inner) < len(span.text)  # both ends are needed


def check_answer(tokenizer: Tokenizer, sample) -> None:
    """The answer continues the prompt as the tokenizer writes both, unless it cuts the prompt's end anew."""
    assert tokenizer.decode(sample.answer_ids).strip() == sample.answer
    whole = tokenizer.encode(f"{sample.tokens.text} {sample.answer}").ids
    if whole[: len(sample.tokens)] == sample.tokens.ids:
        assert whole == sample.tokens.ids + sample.answer_ids
    else:
        assert tokenizer is tokenizer_of("merges across words")


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 6),
    more=st.integers(0, 700),
    depth=st.none() | st.floats(0, 100),
    ruler=st.booleans(),
    haystack=st.sampled_from([None, HAYSTACK]),
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_needle_prompt_is_its_text_encoded(kind, seed, n, more, depth, ruler, haystack):
    tokenizer = tokenizer_of(kind)
    needle, question = (RULER_NEEDLE, RULER_QUESTION) if ruler else (PAPER_NEEDLE, None)
    length = 200 + 110 * n + more
    task = NeedleTask(n, length, depth, needle, question, haystack)
    check_needles(tokenizer, task.sample(tokenizer, seed), length)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 4),
    more=st.integers(0, 700),
    depth=st.none() | st.floats(0, 100),
    haystack=st.sampled_from([None, HAYSTACK]),
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pairs_prompt_is_its_text_encoded(kind, seed, n, more, depth, haystack):
    tokenizer, length = tokenizer_of(kind), 200 + 180 * n + more
    sample = PairsTask(n, 3, length, depth, haystack).sample(tokenizer, seed)
    check_needles(tokenizer, sample, length)


def check_needles(tokenizer: Tokenizer, sample, length: int) -> None:
    """The prompt is its text encoded, as long as asked for, every span where its text is."""
    tokens = sample.tokens
    assert tokens == tokenizer.encode(tokens.text) and len(tokens) == length
    check_answer(tokenizer, sample)
    check_spans(tokenizer, tokens, sample.spans[:-1])
    assert sample.question.stop == len(tokens) and sample.spans[-1].start == len(tokens)
    assert all(a.stop <= b.start + 1 for a, b in itertools.pairwise(sample.spans))


@settings(max_examples=6)
@given(
    name=st.sampled_from(["qa2", "qa5"]),
    seed=st.integers(0, 10**6),
    distraction=st.sampled_from([0, 60, 211]),
)
@example(name="qa5", seed=0, distraction=0)  # some tokenizers take a token more than for each fact alone
@pytest.mark.parametrize("kind", KINDS)
def test_a_question_prompt_is_its_text_encoded(kind, name, seed, distraction):
    tokenizer = tokenizer_of(kind)
    sample = make_question_sample(tokenizer, QuestionTask(name, distraction), seed)
    tokens = sample.tokens
    assert tokens == tokenizer.encode(tokens.text)
    check_answer(tokenizer, sample)
    check_spans(tokenizer, tokens, sample.spans[:-1])


def test_what_cannot_be_filled_is_said():
    with pytest.raises(PromptError, match="too short"):
        NeedleTask(1, 4000, haystack="A word. Two.").sample(tokenizer_of("byte-level"), 0)
