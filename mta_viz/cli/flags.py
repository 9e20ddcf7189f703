"""Flags that several commands share, beside what they open: a model, a prompt's tokens, a text.

Imports nothing heavy: torch comes with the first model.
"""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mta_viz
from mta_viz.checkpoint import door
from mta_viz.cli.output import ProgressLine, note
from mta_viz.cli.values import output_path, stage_named
from mta_viz.config import DTYPES, ModelConfig
from mta_viz.errors import (
    CheckpointError,
    MtaVizError,
    PromptError,
    TokenizerError,
    TooLongError,
    check_index,
)
from mta_viz.tokenizers.base import MOST_CHARACTERS, Tokens, cut_text, quoted

if TYPE_CHECKING:
    from mta_viz.checkpoint.types import Checkpoint, Conversion
    from mta_viz.model.transformer import HookedMTA
    from mta_viz.run.trace import Trace

PATH = "a checkpoint folder, a GGUF file, an adapter, or a Hugging Face repository (org/name)"


def add_model(command: ArgumentParser) -> None:
    """PATH, and where and how to run it."""
    command.add_argument("path", type=Path, metavar="PATH", help=PATH)
    add_base(command)
    add_running(command)


def add_running(command: ArgumentParser) -> None:
    """`--device`, `--dtype`, `--tokenizer`."""
    about = (
        "cpu (default), cuda, cuda:1 ..., or auto: layers spread over all GPUs, for a model too large for one"
    )
    command.add_argument("--device", default="cpu", metavar="D", help=about)
    about = f"to compute in (default: {DTYPES[0]}, as in the app)"
    command.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help=about)
    command.add_argument("--tokenizer", type=Path, metavar="FILE", help="the tokenizer's file")


def add_on(command: ArgumentParser) -> None:
    """`--on`: where independent runs are computed."""

    def cluster(text: str) -> str:
        if not re.fullmatch(r"ray(://[^/\s]+:\d+)?", text):
            raise ArgumentTypeError(f"{text!r} is no place to run; write ray, or ray://HOST:PORT")
        return text

    about = "run on Ray, a worker a device: ray (here), or a cluster's ray://HOST:PORT; same results"
    command.add_argument("--on", type=cluster, metavar="ray", help=about)


def add_base(command: ArgumentParser) -> None:
    """`--base`."""
    about = "the model an adapter belongs to (default: looked for by its sha256)"
    command.add_argument("--base", type=Path, metavar="PATH", help=about)


def open_model(arguments: Namespace, path: Path | None = None, *, kernels_do: bool = False) -> "HookedMTA":
    """The model of PATH, or of another; notes go to stderr. Raises MtaVizError for an unusable device.

    `kernels_do`: kernels alone will do, as of an adapter without its base.
    """
    import torch

    from mta_viz.run.devices import conversion
    from mta_viz.run.placing import first_device

    device = first_device(arguments.device)  # before a file is read that may be large
    making = conversion(device, getattr(torch, arguments.dtype))
    return model_of(open_checkpoint(arguments, path, making), arguments, kernels_do=kernels_do)


def open_checkpoint(
    arguments: Namespace,
    path: Path | None = None,
    conversion: "Conversion | None" = None,
    *,
    alone: bool = False,
) -> "Checkpoint":
    """The weights of PATH, or of another, notes go to stderr; an adapter without its base where `alone`."""
    from mta_viz.checkpoint.reading import read_checkpoint
    from mta_viz.checkpoint.relatives import read_model
    from mta_viz.tokenizers.loading import remember_given

    path, tokenizer = path or arguments.path, arguments.tokenizer
    with ProgressLine("reading") as progress:
        if alone:
            return read_checkpoint(path, tokenizer=tokenizer, progress=progress)
        base = base_for(path, arguments)
        checkpoint = read_model(
            path, base=base, tokenizer=tokenizer, progress=progress, conversion=conversion
        )
    if tokenizer is not None:
        remember_given(checkpoint.source.base or checkpoint.source.path, tokenizer)
    for text in checkpoint.notes:
        note(text)
    return checkpoint


def base_for(path: Path, arguments: Namespace) -> Path | None:
    """`--base` for an adapter; for another model it is said that it takes none."""
    from mta_viz.checkpoint.locate import locate

    base: Path | None = getattr(arguments, "base", None)
    if base is not None and locate(path).format != "adapter":
        note(f"{path} is no adapter: --base is not used for it")
        return None
    return base


def model_of(checkpoint: "Checkpoint", arguments: Namespace, *, kernels_do: bool = False) -> "HookedMTA":
    """The checkpoint's model on `--device` in `--dtype`. Raises MtaVizError for an unusable device.

    And for what holds kernels alone, as an adapter without its base, unless `kernels_do`.
    """
    import torch

    from mta_viz.run.placing import placed
    from mta_viz.run.tracing import KERNELS_ONLY

    if not checkpoint.is_whole and not kernels_do:
        base = checkpoint.source.missing_base
        problem = f"{base}; give it with --base PATH" if base else KERNELS_ONLY
        raise CheckpointError([problem], str(checkpoint.source.path))
    asked = checkpoint.is_whole and getattr(arguments, "prompt", None) is not None
    if asked and checkpoint.tokenizer is None:
        reason = checkpoint.tokenizer_problem or "the checkpoint names no tokenizer"
        raise TokenizerError(f"a text prompt needs the tokenizer: {reason}; give it with --tokenizer FILE")
    return placed(checkpoint, arguments.device, getattr(torch, arguments.dtype))


def add_prompt(command: ArgumentParser, *, chat: bool = True) -> None:
    """A model, and one of `--prompt`, `--tokens` and `--task`; `--chat`, unless it makes no sense."""
    add_model(command)
    prompt = command.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="a text, encoded by the checkpoint's tokenizer")
    about = "a JSON list of token ids, taken as it is"
    prompt.add_argument("--tokens", type=Path, metavar="FILE", help=about)
    add_task(prompt, "blocks", about="or a sample of a task, without its answer")
    about = "of the task: number of the sample (default 0)"
    command.add_argument("--seed", type=int, default=0, metavar="S", help=about)
    about = "where to cut a prompt that is too long for this machine (default: it is refused)"
    command.add_argument("--cut", choices=("left", "middle", "right"), help=about)
    if chat:
        add_chat(command)


def add_chat(command: ArgumentParser) -> None:
    """`--chat`."""
    about = (
        "put the text into the model's chat template, as a user's message (Hugging Face folders, GGUF files)"
    )
    command.add_argument("--chat", action="store_true", help=about)


def open_prompt(arguments: Namespace) -> "tuple[HookedMTA, Tokens]":
    """The model, and the prompt's tokens; says when the prompt is long for the model.

    The answer of a file's sample becomes `--answer`, where that is asked for and not given.
    """
    prompt = None if arguments.task else prompt_of(arguments)
    model = open_model(arguments)
    place = vars(arguments).get("kernel") or arguments
    check_place(model.config, getattr(place, "layer", None), getattr(place, "head", None))
    given = _sample(model, arguments) if prompt is None else prompt
    if getattr(arguments, "chat", False):
        given = as_chat(model, given)
    return model, encode(model, given, arguments.cut)


def _sample(model: "HookedMTA", arguments: Namespace) -> Tokens | str:
    """The task's sample, as a text where it has one; what it is goes to stderr."""
    from mta_viz.analysis.labs.task_samples import one_prompt

    drawn = one_prompt(model, arguments.task, arguments.seed)
    if drawn.answer is not None and vars(arguments).get("answer", "") is None:
        arguments.answer = drawn.answer
    note(f"the prompt is {quoted(drawn.tokens.text or '')}")
    return drawn.tokens.text or drawn.tokens


def as_chat(model: "HookedMTA", prompt: str | list[int] | Tokens) -> Tokens:
    """A text in the model's chat template; what the model sees goes to stderr. PromptError for token ids."""
    from mta_viz.run.tracing import chat

    if not isinstance(prompt, str):
        raise PromptError("--chat needs --prompt TEXT: token ids are taken as they are")
    tokens = chat(model, prompt)
    note(f"the model sees {''.join(tokens.pieces)}")
    return tokens


def check_place(config: ModelConfig, layer: object, head: object) -> None:
    """Before anything runs. Raises PromptError for a layer or head (numbers, else unchecked) that is not."""
    for word, number, count in (("layer", layer, config.n_layers), ("head", head, config.n_heads)):
        if isinstance(number, int):
            check_index(word, number, count)


def prompt_of(arguments: Namespace) -> str | list[int]:
    """What `--prompt` or `--tokens` gives. Raises PromptError for a file that holds no token ids."""
    if not arguments.tokens:
        return str(arguments.prompt)
    ids = door.read_json(arguments.tokens, 16 * door.MIB)
    if not isinstance(ids, list) or not all(type(entry) is int for entry in ids):
        raise PromptError(
            f"{arguments.tokens} holds no list of whole numbers; expected token ids: [0, 17, 4]"
        )
    return ids


def run_prompt(arguments: Namespace) -> "Trace":
    """The model's run of the prompt."""
    return mta_viz.capture(*open_prompt(arguments))


def encode(model: "HookedMTA", prompt: str | list[int] | Tokens, cut: Any = None) -> Tokens:
    """The tokens of a prompt, cut there if need be; says when they are more than the model was trained on.

    Raises TooLongError for more than this machine runs.
    """
    from mta_viz.run import devices
    from mta_viz.run.tracing import check_length, tokenize

    if isinstance(prompt, str) and len(prompt) > MOST_CHARACTERS and cut is not None:
        prompt = cut_text(prompt, cut)
        note(f"the prompt was cut ({cut}) to {MOST_CHARACTERS:,} characters")
    try:
        tokens = tokenize(model, prompt)
        check_length(model, len(tokens))
    except TooLongError as error:
        if cut is None:
            raise TooLongError(f"{error} (--cut left, middle or right)", error.most) from None
        tokens = tokenize(model, devices.cut(model, tokens, error.most, cut))
        note(f"the prompt was cut ({cut}) to {len(tokens):,} tokens: {error}")
    note_length(model, len(tokens))
    return tokens


def note_length(model: "HookedMTA", n_tokens: int) -> None:
    """Say when a run goes beyond what the model was trained on."""
    if n_tokens > model.config.n_ctx:
        note(f"{n_tokens} tokens is beyond the trained length of {model.config.n_ctx}")


def note_seconds(model: "HookedMTA", what: str, lengths: Iterable[int], runs: float = 1.0) -> None:
    """About how long `runs` runs of each length (tokens) will take here, from short ones timed now."""
    from mta_viz.run.tracing import estimate_seconds

    counts = Counter(lengths)
    seconds = runs * sum(n * estimate_seconds(model, length) for length, n in counts.items())
    note(f"{what}, about {max(seconds, 1):,.0f} s here")


def add_task(
    command: Any, *others: str, about: str = "what to measure it at", required: bool = False
) -> None:
    """`--task`: needle, pairs, one of `others`, or a file of prompts, by its path."""
    names = ("needle", "pairs", *others)
    expected = f"{', '.join(names)} or FILE.jsonl"

    def task(text: str) -> str:
        if text not in names and not text.endswith(".jsonl"):
            raise ArgumentTypeError(f"invalid choice: {text!r} (choose from {expected})")
        return text

    metavar = "|".join((*names, "FILE.jsonl"))
    help = f"{about}: {expected}, a prompt and its answer a line"
    command.add_argument("--task", type=task, required=required, metavar=metavar, help=help)


def refuse_length(arguments: Namespace) -> None:
    """Raises MtaVizError for `--length` beside a task whose prompts have a length of their own."""
    if arguments.length and arguments.task not in ("needle", "pairs"):
        raise MtaVizError(f"--length is of the tasks needle and pairs, not of {arguments.task}; leave it out")


def add_head(command: ArgumentParser) -> None:
    """A model, a prompt, and one head's map at a stage: `--layer`, `--head`, `--stage`."""
    add_prompt(command)
    command.add_argument("--layer", type=int, required=True, metavar="L", help="counted from 0")
    command.add_argument("--head", type=int, required=True, metavar="H", help="counted from 0")
    about = "for example kq, final, or hook_scores_kq"
    command.add_argument("--stage", type=stage_named, required=True, metavar="NAME", help=about)


def add_answer(command: ArgumentParser) -> None:
    """`--answer TEXT`, the answer whose probability is measured."""
    about = "default: the number or block asked for, else the likeliest token"
    command.add_argument("--answer", metavar="TEXT", help=about)


def add_question(command: ArgumentParser) -> None:
    """A model, a prompt, the answer and where it stands."""
    add_prompt(command)
    add_answer(command)
    command.add_argument("--position", type=int, metavar="N", help="its last token (default: the prompt's)")


def add_out(command: ArgumentParser) -> None:
    """`--out FILE` for the answer, which is written when the command has run."""
    add_file(command, "--out", "write the answer to a file (JSON) as well", out_is="answer")


def add_file(
    command: ArgumentParser,
    flag: str,
    help: str,
    *,
    required: bool = False,
    metavar: str = "FILE",
    force: str = "overwrite an existing file",
    out_is: str = "file",
    ending: str = ".json",
) -> None:
    """A file to write, in `arguments.out`, and `--force`; it is checked before the command runs.

    `ending`: how the names of such files end; other kinds of file are refused ("": the command looks itself).
    `out_is` is `answer`, or for what the command writes itself `file`, or `results` when a file that is there
    is gone on with.
    """
    command.add_argument(flag, dest="out", type=output_path, required=required, metavar=metavar, help=help)
    command.add_argument("--force", action="store_true", help=force)
    command.set_defaults(out_is=out_is, ending=ending)


def add_format(command: ArgumentParser, as_csv: Callable[[Any], str], help: str) -> None:
    """`--format json|csv`: how the answer is printed; `as_csv` makes the table's text of it."""
    command.add_argument("--format", choices=("json", "csv"), default="json", help=help)
    command.set_defaults(as_csv=as_csv)
