"""The recipes that begin with a new model: block finding, and needles.

Blocks are sequences of random letters, and how often the answer is wrong is measured. Needles have a
tokenizer and text of their own, needles in half of the sequences, and make a language model.
"""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Library

from mta_viz.analysis.labs.blocks import evaluate_blocks
from mta_viz.analysis.labs.evaluation import evaluate_needles, full_plan
from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.analysis.labs.text import text_losses
from mta_viz.config import ModelConfig
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.blocks import BlockTask, stream_generator
from mta_viz.tasks.words import stream_seed
from mta_viz.training import needle_data as data
from mta_viz.training.needle_data import Book, flowing_text, grammar_paragraphs, training_paragraphs
from mta_viz.training.recipe import Batches, ModelRecipe, Progress
from mta_viz.training.settings import BlocksConfig, NeedleConfig
from mta_viz.training.trainer import Batch, Prefetched
from mta_viz.writing import write


def train_blocks(config: BlocksConfig, out: Path, **options: Any) -> dict[str, Any]:
    """Train a block-finding model into the folder `out`, as `ModelRecipe.train` says; returns the card.

    Raises `MtaVizError` also for settings that describe no task.
    """
    return BlocksRecipe(config, block_task(config)).train(out, **options)


def block_task(config: BlocksConfig) -> BlockTask:
    """The task at full length."""
    return BlockTask(config.n_letters, config.n_query, config.n_blocks, config.output)


@dataclass(frozen=True)
class BlocksRecipe(ModelRecipe):
    """Block finding, on sequences of the lengths in the mixture."""

    config: BlocksConfig
    task: BlockTask
    title = "Block finding"

    def batches(self, device: torch.device) -> AbstractContextManager[Batches]:
        """Drawn on the device, whose type they depend on too."""
        config = self.config
        tasks = [dataclasses.replace(self.task, n_blocks=count) for count in config.block_mixture]

        def batch(step: int) -> Batch:
            task = tasks[stream_seed("blocks training length", config.seed, step) % len(tasks)]
            generator = stream_generator("blocks training", config.seed, step, device=device)
            drawn = task.batch(config.batch_size, generator)
            return Batch(drawn.tokens, drawn.answer.float())

        return nullcontext(batch)

    def facts(self, steps: int) -> dict[str, Any]:
        """Where the sequences come from, and how many were seen."""
        source = "random letter blocks made by mta_viz.tasks.blocks"
        data = f"{source}; training and evaluation are separate random streams"
        return {"data": data, "sequences": steps * self.config.batch_size}

    def evaluate(self, model: HookedMTA, progress: Progress = lambda share: None) -> dict[str, Any]:
        """The error on full-length sequences."""
        n, seed = self.config.evaluation_samples, self.config.evaluation_seed
        evaluation = evaluate_blocks(model, self.task, n=n, seed=seed, progress=progress)
        return {"evaluation": dataclasses.asdict(evaluation)}

    def summary(self, card: dict[str, Any]) -> str:
        """The task, and the error with its interval."""
        config, evaluation = self.config, card["evaluation"]
        low, high = evaluation["interval"]
        return (
            f"Finds the one block of {config.n_letters} letters (of {config.n_blocks}) that holds "
            f"{config.n_query} query letters, and answers its letters ({config.output}). Wrong in "
            f"{evaluation['wrong']} of {evaluation['n']} unseen full-length sequences: error "
            f"{evaluation['error']:.2%}, 95 % interval {low:.2%} to {high:.2%}."
        )


Stage = Callable[[str], None]


def train_needle(
    config: NeedleConfig, corpus: Path, out: Path, *, stage: Stage | None = None, **options: Any
) -> dict[str, Any]:
    """Train on the books in `corpus` and the grammar into `out`, as `ModelRecipe.train`; returns the card.

    `out` gets tokenizer.json too. `stage` is told what is being prepared. Raises `MtaVizError` also
    for a missing corpus.
    """
    return NeedleRecipe(config, data.read_books(corpus), stage).train(out, **options)


@dataclass(frozen=True)
class NeedleText:
    """What is trained on: the tokenizer and the text encoded with it."""

    library: Library
    tables: tuple[data.SentenceTable, ...]


def prepare_text(config: NeedleConfig, books: tuple[Book, ...], stage: Stage | None = None) -> NeedleText:
    """Train the tokenizer and encode books and grammar; equal for every seed and variant."""
    tell = stage or (lambda _: None)
    tell("writing grammar sentences")
    from_books = training_paragraphs(paragraph for book in books for paragraph in book.training)
    from_grammar = training_paragraphs(grammar_paragraphs(config.grammar_sentences))
    tell("training the tokenizer")
    n_paragraphs = max(1, config.tokenizer_sentences // 7)
    texts = (flowing_text([paragraph]) for paragraph in from_books + from_grammar[:n_paragraphs])
    library = data.train_tokenizer(texts, config.vocab_size)
    tell("encoding the text")
    tables = data.sentence_table(library, from_books), data.sentence_table(library, from_grammar, " ")
    return NeedleText(library, tables)


@dataclass(frozen=True)
class NeedleRecipe(ModelRecipe):
    """Finding a needle's number, in text from books and the grammar. `stage` is told what is prepared."""

    config: NeedleConfig
    books: tuple[Book, ...]
    stage: Stage | None = None
    title = "Needles"

    @cached_property
    def text(self) -> NeedleText:
        """Prepared when it is first asked for."""
        return prepare_text(self.config, self.books, self.stage)

    def model_config(self) -> ModelConfig:
        """With the vocabulary that the tokenizer came to."""
        return dataclasses.replace(self.config.model_config(), vocab_size=self.text.library.get_vocab_size())

    def write_tokenizer(self, out: Path) -> tuple[str, Path | None]:
        """The trained one."""
        library = self.text.library
        file = out / "tokenizer.json"
        write(file, library.to_str(pretty=False))
        return data.as_tokenizer(library).kind, file

    def batches(self, device: torch.device) -> AbstractContextManager[Batches]:
        """Made ahead in a thread, which ends with the context."""
        text = self.text
        return closing(Prefetched(data.NeedleBatches(text.library, text.tables, self.config), device))

    def facts(self, steps: int) -> dict[str, Any]:
        """Where text and cities come from, and how many tokens were seen."""
        config, names = self.config, "known cities alone"
        if config.made_up_cities and config.made_up_share:
            names = (
                f"known cities and, about {config.made_up_share:.0%} of them, {config.made_up_cities} "
                "invented ones (mta_viz.tasks.words), none with a word that only held-out cities have"
            )
        sources = (
            "half from the books (all but the last twentieth of each), half from mta_viz.tasks.grammar; "
            f"sentences with a held-out city or number left out. Needles name {names}"
        )
        tokens = steps * config.tokens_per_step
        return {"data": sources, "books": [book.name for book in self.books], "tokens": tokens}

    def evaluate(self, model: HookedMTA, progress: Progress = lambda share: None) -> dict[str, Any]:
        """Needles at half of and at the whole trained length; `text_losses` of held-out books and grammar."""
        config, n_ctx = self.config, model.config.n_ctx
        tokenizer = check_vocabulary(model, model.tokenizer)
        plan = full_plan(config.evaluation_samples, (n_ctx // 2, n_ctx), config.evaluation_seed)
        evaluation = evaluate_needles(model, tokenizer, plan, progress=progress)
        texts = {
            "books": flowing_text(paragraph for book in self.books for paragraph in book.held_out),
            "grammar": flowing_text(grammar_paragraphs(config.evaluation_sentences, data.HELD_OUT_STREAM)),
        }
        scores = {name: text_losses(model, text).perplexity for name, text in texts.items() if text}
        return {"needles": dataclasses.asdict(evaluation), "perplexity": scores}

    def summary(self, card: dict[str, Any]) -> str:
        """The task, and the accuracy with its interval."""
        score = card["needles"]["total"]["all"]
        low, high = score["interval"]
        return (
            "Finds the number that one sentence among running text gives a city. Right in "
            f"{score['right']} of {score['n']} unseen prompts: {score['accuracy']:.1%}, 95 % interval "
            f"{low:.1%} to {high:.1%}."
        )
