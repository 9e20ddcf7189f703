"""From `PATH`, `--device`, `--dtype`, `--tokenizer` and `--prompt` to a model and its tokens."""

import json
from argparse import Namespace
from pathlib import Path

import torch

from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.cli.output import ProgressLine, note
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA, build_model
from mta_viz.run.devices import checked_device
from mta_viz.run.tracing import tokenize
from mta_viz.tokenizers.base import Tokens


def open_model(arguments: Namespace) -> HookedMTA:
    """The checkpoint's model; its notes go to stderr. Raises MtaVizError for an unusable device."""
    device = checked_device(arguments.device)
    with ProgressLine("reading") as progress:
        checkpoint = read_checkpoint(arguments.path, tokenizer=arguments.tokenizer, progress=progress)
    for text in checkpoint.notes:
        note(text)
    if checkpoint.tokenizer is None and getattr(arguments, "prompt", None) is not None:
        reason = checkpoint.tokenizer_problem or "the checkpoint names no tokenizer"
        raise TokenizerError(f"a text prompt needs the tokenizer: {reason}; give it with --tokenizer FILE")
    dtype = getattr(torch, arguments.dtype) if arguments.dtype else None
    return build_model(checkpoint, device=device, dtype=dtype)


def valid_text(prompt: str) -> str:
    """The prompt, which on a command line can hold bytes that are no UTF-8. Raises PromptError then."""
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError("the prompt is not valid UTF-8 text") from error
    return prompt


def note_length(model: HookedMTA, n_tokens: int) -> None:
    """Say when a run goes beyond what the model was trained on."""
    if n_tokens > model.config.n_ctx:
        note(f"{n_tokens} tokens is beyond the trained length of {model.config.n_ctx}")


def open_prompt(arguments: Namespace) -> tuple[HookedMTA, Tokens]:
    """The model, and the tokens of `--prompt` or `--tokens`; says when the prompt is long for the model."""
    ids = read_ids(arguments.tokens) if arguments.tokens else None
    model = open_model(arguments)
    tokens = tokenize(model, valid_text(arguments.prompt) if ids is None else ids)
    note_length(model, len(tokens))
    return model, tokens


def stage_named(name: str) -> Stage:
    """The stage of that hook or key, as `hook_scores_kq` or `kq`. Raises PromptError for another name."""
    found = next((stage for stage in Stage if name in (stage.value.hook, stage.value.key)), None)
    if found is None:
        raise PromptError(f"{name!r} is no stage; expected {', '.join(one.value.hook for one in Stage)}")
    return found


def read_ids(path: Path) -> list[int]:
    """A JSON list of token ids. Raises PromptError for anything else."""
    try:
        ids = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{path} is no JSON ({error}); expected a list of token ids: [0, 17, 4]") from error
    if not isinstance(ids, list) or not all(type(entry) is int for entry in ids):
        raise PromptError(f"{path} holds no list of whole numbers; expected token ids: [0, 17, 4]")
    return ids
