"""Train a needle language model and leave a checkpoint folder with tokenizer, history and card.

Owns the order of the work and what the card says. The loop is trainer.py's, text and batches
needle_text.py's and needle_data.py's, the measurement needle_evaluation.py's.
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Library

from mta_viz.checkpoint.history import HISTORY_FILE
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.errors import MtaVizError
from mta_viz.run import tracing
from mta_viz.run.devices import checked_device
from mta_viz.training.needle_data import (
    HELD_OUT_STREAM,
    Book,
    NeedleBatches,
    Prefetched,
    SentenceTable,
    flowing_text,
    grammar_paragraphs,
    read_books,
    sentence_table,
    training_paragraphs,
)
from mta_viz.training.needle_evaluation import NeedlePlan, evaluate_needles, full_plan, perplexity
from mta_viz.training.needle_settings import NeedleConfig
from mta_viz.training.needle_tokenizer import as_tokenizer, train_tokenizer
from mta_viz.training.running import (
    check_export,
    check_seconds,
    export_lingua,
    hardware_name,
    loss_curve,
    prepare_folder,
    write_card,
    write_history,
)
from mta_viz.training.trainer import Report, Trainer, TrainingResult, initial_model

STATE_FILE = "training_state.pt"
TOKENIZER_FILE = "tokenizer.json"
FILE_DTYPE = torch.float16

Stage = Callable[[str], None]


@dataclass(frozen=True)
class NeedleText:
    """What is trained and tested on: the tokenizer, the encoded training text, and the books."""

    library: Library
    tables: tuple[SentenceTable, ...]
    books: tuple[Book, ...]


def train_needle(
    config: NeedleConfig,
    corpus: Path,
    out: Path,
    *,
    lingua: Path | None = None,
    device: str = "cpu",
    max_seconds: float | None = None,
    resume: bool = False,
    report: Report | None = None,
    stage: Stage | None = None,
    evaluation_progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Train on the books in `corpus` and the grammar, write `out`, measure it; returns the card.

    `out` gets model.safetensors and params.json (float16), tokenizer.json,
    kernel_history.safetensors (models with kernels), card.json and README.md; while training, and
    when `max_seconds` stops the run early, also the state that `resume=True` continues from.
    `lingua` is a folder for the same weights and tokenizer in Lingua's format. `stage` is told what
    is being prepared. Raises `MtaVizError` for a missing corpus, an `out` or `lingua` that exists
    (without `resume`) or a missing device, before any work.
    """
    check_seconds(max_seconds)
    place = checked_device(device)
    settings, model_config = config.trainer_settings(), config.model_config()
    books = read_books(corpus)
    check_export(lingua, out, resume)
    prepare_folder(out, resume)
    text = prepare_text(config, books, stage)
    model_config = config.model_config(text.library.get_vocab_size())
    trainer, batches = _trainer(config, settings, text, out, place)
    try:
        if resume:
            trainer.resume()
        result = trainer.run(max_seconds=max_seconds, report=report)
    finally:
        batches.close()
    _write_model(out, model_config, text, trainer, result)
    export_lingua(lingua, out)
    card = _card(out, config, books, result, place) | evaluate_folder(
        out,
        books,
        samples=config.evaluation_samples,
        sentences=config.evaluation_sentences,
        seed=config.evaluation_seed,
        device=device,
        progress=evaluation_progress,
    )
    write_card(out, card, title=f"Needles: {config.variant}", summary=_summary(config, card))
    if result.steps_done == config.steps:
        (out / STATE_FILE).unlink()
    return card


def prepare_text(config: NeedleConfig, books: tuple[Book, ...], stage: Stage | None = None) -> NeedleText:
    """Train the tokenizer and encode books and grammar; equal for every seed and variant."""
    tell = stage or (lambda _: None)
    tell("writing grammar sentences")
    from_books = training_paragraphs(paragraph for book in books for paragraph in book.training)
    from_grammar = training_paragraphs(grammar_paragraphs(config.grammar_sentences))
    tell("training the tokenizer")
    n_paragraphs = max(1, config.tokenizer_sentences // 7)
    library = train_tokenizer(
        map(flowing_text, ([paragraph] for paragraph in from_books + from_grammar[:n_paragraphs])),
        config.vocab_size,
    )
    tell("encoding the text")
    tables = (sentence_table(library, from_books), sentence_table(library, from_grammar, " "))
    return NeedleText(library, tables, books)


def evaluate_folder(
    folder: Path,
    books: tuple[Book, ...],
    *,
    samples: int,
    sentences: int,
    seed: int = 0,
    device: str = "cpu",
    plan: NeedlePlan | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Measure a written checkpoint: needles, and perplexity on held-out books and grammar.

    `plan` None: `full_plan` at half of and at the whole trained length, samples numbered from `seed`.
    """
    model = tracing.load(folder, device=device, dtype=torch.float32)
    if model.tokenizer is None:
        raise MtaVizError(f"{folder} has no tokenizer; put its {TOKENIZER_FILE} there.")
    plan = plan or full_plan(samples, (model.config.n_ctx // 2, model.config.n_ctx), seed)
    evaluation = evaluate_needles(model, model.tokenizer, plan, progress=progress)
    texts = {
        "books": flowing_text(paragraph for book in books for paragraph in book.held_out),
        "grammar": flowing_text(grammar_paragraphs(sentences, HELD_OUT_STREAM)),
    }
    window = min(512, model.config.n_ctx)
    scores = {
        name: perplexity(model, model.tokenizer, text, window=window) for name, text in texts.items() if text
    }
    return {"needles": dataclasses.asdict(evaluation), "perplexity": scores}


def _trainer(
    config: NeedleConfig, settings: Any, text: NeedleText, out: Path, device: torch.device
) -> tuple[Trainer, Prefetched]:
    batches = Prefetched(NeedleBatches(text.library, text.tables, config), device)
    trainer = Trainer(
        initial_model(config.model_config(text.library.get_vocab_size()), config.seed, device),
        batches,
        settings,
        state_file=out / STATE_FILE,
        identity=json.dumps({"device": device.type} | dataclasses.asdict(config), sort_keys=True),
    )
    return trainer, batches


def _write_model(
    out: Path, model_config: Any, text: NeedleText, trainer: Trainer, result: TrainingResult
) -> None:
    tokenizer_file = out / TOKENIZER_FILE
    tokenizer_file.write_text(text.library.to_str(pretty=False), encoding="utf-8")
    state = {name: value.detach().cpu() for name, value in trainer.model.state_dict().items()}
    write_native(
        out,
        model_config,
        state,
        tokenizer_name=as_tokenizer(text.library).kind,
        tokenizer_path=tokenizer_file,
        dtype=FILE_DTYPE,
        overwrite=True,  # what a run stopped by the clock left
    )
    write_history(out / HISTORY_FILE, model_config, result.history, FILE_DTYPE)


def _card(
    out: Path, config: NeedleConfig, books: tuple[Book, ...], result: TrainingResult, device: torch.device
) -> dict[str, Any]:
    return {
        "task": "needle",
        "variant": config.variant,
        "command": command_line(config, device.type),
        "config": dataclasses.asdict(config),
        "data": "half from the books (all but the last twentieth of each), half from mta_viz.tasks.grammar; "
        f"sentences with a held-out city or number left out. {_names(config)}",
        "books": [book.name for book in books],
        "seed": config.seed,
        "steps": result.steps_done,
        "planned_steps": config.steps,
        "tokens": result.steps_done * config.tokens_per_step,
        "seconds": round(result.seconds, 1),
        "hardware": hardware_name(device),
        "torch": torch.__version__,
        "training_precision": "bfloat16 autocast" if device.type == "cuda" else "float32",
        "sha256": sha256(out),
        "loss_curve": loss_curve(result.losses),
    }


def _names(config: NeedleConfig) -> str:
    if not config.made_up_cities or not config.made_up_share:
        return "Needles name known cities alone"
    return (
        f"Needles name known cities and, about {config.made_up_share:.0%} of them, {config.made_up_cities} "
        "invented ones (mta_viz.tasks.cities), none with a word that only held-out cities have"
    )


def command_line(config: NeedleConfig, device: str) -> str:
    """The command that repeats the run; fields without a flag go into a TOML file."""
    flags: dict[str, Any] = {
        "variant": config.variant,
        "seed": config.seed,
        "steps": config.steps,
        "learning_rate": config.learning_rate,
    }
    command = "python -m mta_viz train needle --corpus CORPUS"
    if dataclasses.replace(NeedleConfig(), **flags) != config:
        command += " --config needle.toml (the fields under config)"
    options = "".join(f" --{name.replace('_', '-')} {value}" for name, value in flags.items())
    return f"{command}{options} --device {device}"


def _summary(config: NeedleConfig, card: dict[str, Any]) -> str:
    score = card["needles"]["total"]["all"]
    low, high = score["interval"]
    stopped = "" if card["steps"] == config.steps else f" Stopped early, after {card['steps']} steps."
    return (
        "Finds the number that one sentence among running text gives a city. Right in "
        f"{score['right']} of {score['n']} unseen prompts: {score['accuracy']:.1%}, 95 % interval "
        f"{low:.1%} to {high:.1%}.{stopped}"
    )
