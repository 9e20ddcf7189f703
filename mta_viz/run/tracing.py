"""A prompt through a model, under the model's lock: capture, hook tensors, greedy continuation, patches.

Parts of a run and batches are `scoring.py`'s. Does not own what results mean (analysis) or how a forward
is computed (model).
"""

import gc
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.checkpoint.relatives import Progress, read_model
from mta_viz.errors import MemoryFullError, MtaVizError, PromptError, TooLongError, is_out_of_memory
from mta_viz.model.attention import Attention, QueryKeyValue, smaller_slabs
from mta_viz.model.backends import Backend
from mta_viz.model.editing import Sources, edited
from mta_viz.model.hooking import HookPoint
from mta_viz.model.interventions import Intervention, PatchHead
from mta_viz.model.plans import check_plan
from mta_viz.model.transformer import HookedMTA
from mta_viz.model.turns import pause
from mta_viz.printed import size_text
from mta_viz.run.devices import (
    FLOAT_BYTES,
    capture_bytes,
    conversion,
    free_bytes,
    hooks_bytes,
    in_turns,
    multiply_adds,
    run_seconds,
    set_threads,
)
from mta_viz.run.placing import first_device, placed
from mta_viz.run.trace import Trace, check_unhooked
from mta_viz.tokenizers.base import Tokens, tokens_from_ids, tokens_of
from mta_viz.tokenizers.chat import chat_prompt

T = TypeVar("T")
Prompt = str | Tokens | Iterable[SupportsIndex]
CALIBRATION = 4e9  # multiply-adds of the run that measures this machine, about 0.2 s
LONG_RUN = 1e12  # multiply-adds of a run whose time is looked at before it starts: at least about 5 s
MAX_TOKENS = 2**17  # of a run
KERNELS_ONLY = (
    "this file holds kernels only, so no prompt can be run with it; open the whole model for attention maps"
)
_seconds: WeakKeyDictionary[HookedMTA, dict[int, float]] = WeakKeyDictionary()


def ignore(so_far: object) -> None:
    """The progress nobody watches; what takes results on the way, or words, where nobody wants them."""


def load(
    path: str | Path,
    *,
    device: str = "cpu",
    dtype: torch.dtype | None = torch.float32,
    tokenizer: Path | None = None,
    base: str | Path | None = None,
    progress: Progress | None = None,
) -> HookedMTA:
    """Read a checkpoint folder and build its model on `device`, computing in `dtype` (None: the file's own).

    `device` "auto" spreads the layers over all GPUs, what they do not hold on the CPU (accelerate).
    `tokenizer` is a tokenizer's file, where the folder lacks its own. `base` is an adapter's model, where it
    is not found by itself; without one only the kernels can be looked at. `progress` gets the share of bytes
    read, 0 to 1. Raises CheckpointError listing every fault, MtaVizError for a device that is not there and
    where the memory is too small.

    >>> mta_viz.load("assets/blocks-n5-mta").config.n_heads
    2
    """
    there = first_device(str(device))
    place, making = None if base is None else Path(base), conversion(there, dtype)
    checkpoint = read_model(path, base=place, tokenizer=tokenizer, progress=progress, conversion=making)
    return placed(checkpoint, str(device), dtype)


def capture(model: HookedMTA, prompt: Prompt, *, progress: Progress | None = None) -> Trace:
    """Run a prompt (text or token ids) and keep each layer's input residual. Memory grows with T.

    `progress(share done)` is called after every slab of rows; raise `Cancelled` in it to stop. Raises
    PromptError and TokenizerError for what the model cannot take, TooLongError and MemoryFullError for what
    this machine cannot, MtaVizError where hooks wait at the model.

    >>> trace = mta_viz.capture(model, "hjnvt.qdgzf.aoxsb#gd")
    >>> trace.residuals.shape, trace.map(3, mta_viz.Stage.PATTERN, head=1).shape
    (torch.Size([5, 21, 256]), torch.Size([21, 21]))
    """
    tokens = tokenize(model, prompt)
    check_length(model, len(tokens))

    def run() -> tuple[Float[Tensor, "depth position d_model"], tuple[Backend, ...]]:
        with in_turns(model, len(tokens)), torch.no_grad():
            check_unhooked(model)
            return captured(model, as_batch(model, tokens.ids), progress)

    residuals, backends = with_less_memory(model, len(tokens), run)
    return Trace(tokens, residuals, model, backends=backends)


def captured(
    model: HookedMTA, ids: Int[Tensor, "1 position"], progress: Progress | None = None
) -> tuple[Float[Tensor, "depth position d_model"], tuple[Backend, ...]]:
    """What `capture` keeps: residuals, and how each layer was computed.

    Where its caller holds the model alone, without gradients, nothing is waited for: a CUDA graph holds it.
    """
    resid, backends = model.embed(ids), list[Backend]()
    residuals = resid.new_empty((model.config.n_layers + 1, *resid.shape[1:]), dtype=torch.float32)
    residuals[0] = resid[0]
    for layer, block in enumerate(model.blocks):
        resid = resid.to(block.ln1.weight.device)
        backends.append(block.attn.backend(resid))
        resid = block(resid, _row_progress(progress, layer, model.config.n_layers, ids.shape[1]))
        residuals[layer + 1] = resid[0]
    return residuals, tuple(backends)


def progress_within(progress: Progress | None, start: float, share: float) -> Progress:
    """The progress of a part of some work, a `share` of it from `start` on, as that of the whole."""
    return lambda done: progress(start + share * done) if progress else None


def tokenize(model: HookedMTA, prompt: Prompt, *, in_windows: bool = False) -> Tokens:
    """The prompt as `Tokens` the model can take, or the text that it reads `in_windows`, however long.

    Raises PromptError, TooLongError or TokenizerError.
    """
    check_runs(model)
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise PromptError("this checkpoint came without its tokenizer; give the file, or token ids")
        prompt = (model.tokenizer.encode if in_windows else partial(tokens_of, model.tokenizer))(prompt)
    ids = prompt.ids if isinstance(prompt, Tokens) else prompt
    checked = tokens_from_ids(ids, vocab_size=model.config.vocab_size, tokenizer=model.tokenizer)
    return prompt if isinstance(prompt, Tokens) else checked


def chat(model: HookedMTA, message: str) -> Tokens:
    """A user's message in the model's chat template, up to where the model answers: a prompt for `capture`.

    The template is that of the model's folder or GGUF file, of an adapter its base's; the ids are those that
    `transformers` gives. Raises PromptError for a model without one, or one that cannot be rendered.
    """
    if model.source is None or model.tokenizer is None:
        raise PromptError("a chat template needs a model read from its folder, with its tokenizer")
    return chat_prompt(model.tokenizer, model.source.base or model.source.path, message)


def run_hooks(model: HookedMTA, prompt: Prompt, names: Sequence[str]) -> dict[str, Tensor]:
    """Activations by hook name, and `logits`: float32, CPU, no batch axis. PromptError for unknown names."""
    unknown = [name for name in names if name not in model.hook_dict]
    if unknown:
        raise PromptError(f"the model has no hook named {', '.join(unknown)}")
    tokens, kept = tokenize(model, prompt), dict[str, Tensor]()
    check_length(model, len(tokens), partial(hooks_bytes, model.config, names))

    def keep(tensor: Tensor, hook: HookPoint) -> None:
        kept[str(hook.name)] = tensor[0].float().cpu()

    def part(prefix: str, run: Callable[[Tensor], Tensor], entering: Tensor) -> Tensor:
        """A part of the model with its own hooks on, which nobody else may meet."""
        hooks: list[Any] = [(name, keep) for name in set(names) if name.startswith(prefix)]
        with model.lock, torch.no_grad(), model.hooks(fwd_hooks=hooks):
            set_threads(model.config, len(tokens))
            return run(entering)

    resid = part("hook_embed", model.embedded, as_batch(model, tokens.ids))
    for layer, block in enumerate(model.blocks):
        resid = part(f"blocks.{layer}.", block, resid)
    logits = part("ln_final", model.logits, resid)[0].float().cpu()
    return {"logits": logits} | {name: kept[name] for name in model.hook_dict if name in kept}


def generate(
    model: HookedMTA, prompt: Prompt, max_new_tokens: int, *, progress: Progress | None = None
) -> tuple[int, ...]:
    """Greedy continuation: new ids up to (and without) the tokenizer's EOS. MtaVizError for NaN in logits."""
    tokens = tokenize(model, prompt)
    eos = model.tokenizer.eos_id if model.tokenizer else None
    new: list[int] = []
    if max_new_tokens < 1:
        return ()
    check_length(model, len(tokens) + max_new_tokens)
    with in_turns(model, len(tokens)), torch.no_grad():
        run = Continuation(model, as_batch(model, tokens.ids)[0])
        while True:
            pause()
            if run.logits.isnan().any():
                raise MtaVizError(
                    f"the logits for new token {len(new) + 1} hold NaN, so there is no next token; look for "
                    "weights that are NaN or infinite, or compute in float32"
                )
            if (token := int(run.logits.argmax())) == eos:
                break
            new.append(token)
            if progress:
                progress(len(new) / max_new_tokens)
            if len(new) == max_new_tokens:
                break
            run.append(token)
    return tuple(new)


class Continuation:
    """A prompt being continued: `logits` [vocab] are those of the next token.

    Keeps each layer's keys and values, and the last queries its convolutions reach back to, (c_q - 1) before
    and (c_q - 1) after the softmax: of a new token only its own rows are computed. Whoever makes one holds
    the model's lock.
    """

    def __init__(self, model: HookedMTA, ids: Int[Tensor, " position"]) -> None:
        check_unhooked(model)  # a row's maps are computed beside the hook points
        self.model = model
        self.length = len(ids)
        self.past: list[QueryKeyValue] = []
        resid = model.embed(ids[None])
        for block in model.blocks:
            qkv = block.attn.project(block.ln1(resid))
            resid = block.finish(resid, block.attn.output(block.attn.attend(qkv)))
            self.past.append(_keep_reach(block.attn, qkv))
        self.logits: Float[Tensor, " vocab"] = model.logits(resid[0, -1])

    def append(self, token: int) -> None:
        """Take `token` as the next one and compute the logits after it."""
        model = self.model
        resid = model.embed(torch.tensor([[token]], device=model.device))
        for layer, block in enumerate(model.blocks):
            new = block.attn.project(block.ln1(resid), start=self.length)
            past = self.past[layer]
            q, k, v = (torch.cat([getattr(past, part), getattr(new, part)], dim=1) for part in "qkv")
            qkv = QueryKeyValue(q, k, v, past.q_start)
            z = block.attn.attend_rows(qkv, block.attn.rows(self.length, self.length + 1))
            resid = block.finish(resid, block.attn.output(z))
            self.past[layer] = _keep_reach(block.attn, qkv)
        self.length += 1
        self.logits = model.logits(resid[0, -1])


def _keep_reach(attention: Attention, qkv: QueryKeyValue) -> QueryKeyValue:
    """Drop the queries that no later row's convolution reads."""
    n_keys = qkv.k.shape[1]
    first = attention.rows(n_keys, n_keys + 1).first
    return replace(qkv, q=qkv.q[:, first - qkv.q_start :], q_start=first)


def check_runs(model: HookedMTA) -> None:
    """Raise PromptError for a model without values for all its weights, saying what is missing."""
    if model.kernels_only:
        missing = None if model.source is None else model.source.missing_base
        raise PromptError(f"{missing}; give the base (--base PATH)" if missing else KERNELS_ONLY)


def score(model: HookedMTA, ids: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position vocab"]:
    """Logits of a batch of equally long sequences, in the model's dtype, on its device."""
    check_runs(model)
    batch, length = ids.shape
    check_length(model, length, lambda n: FLOAT_BYTES * batch * n * model.config.vocab_size)

    def run() -> Tensor:
        with in_turns(model, length, batch), torch.no_grad():
            return model(ids.to(model.device))

    return with_less_memory(model, length, run)


def estimate_seconds(model: HookedMTA, n_tokens: int) -> float:
    """Seconds a capture of `n_tokens` will take here: a shorter run, measured once, scaled up."""
    check_runs(model)
    sizes = [size for size in (16, 32, 64, 128, 256, 512) if size <= n_tokens] or [max(n_tokens, 1)]
    fitting = [size for size in sizes if multiply_adds(model.config, size) <= CALIBRATION]
    size = max(fitting, default=sizes[0])
    measured = _seconds.setdefault(model, {})
    if size not in measured:
        with model.lock:  # what others run is not measured
            measured[size] = min(_seconds_of(model, size) for _ in range(2))
    return measured[size] * multiply_adds(model.config, n_tokens) / multiply_adds(model.config, size)


def _seconds_of(model: HookedMTA, size: int) -> float:
    start = time.perf_counter()
    with in_turns(model, size), torch.no_grad():
        model(torch.zeros(1, size, dtype=torch.long, device=model.device))
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - start


def check_length(model: HookedMTA, n_tokens: int, more: Callable[[int], int] = lambda n: 0) -> None:
    """Raise TooLongError, before any work, for a run that this machine has no time or no memory for.

    `more(n)`: the bytes it takes besides those of a capture, for n tokens.
    """
    config, free = model.config, free_bytes(model.device)
    needed = partial(capture_bytes, config, device=model.device.type)

    def seconds(n: int) -> float:
        """Of a run that is short anyway, nothing is measured."""
        return estimate_seconds(model, n) if multiply_adds(config, n) > LONG_RUN else 0.0

    def fits(n: int) -> bool:
        enough = free is None or needed(n) + more(n) <= free
        return n <= MAX_TOKENS and enough and seconds(n) <= run_seconds()

    if not fits(n_tokens):
        most = bisect_left(range(1, min(n_tokens, MAX_TOKENS) + 1), True, key=lambda n: not fits(n))
        room = "any memory" if free is None else size_text(free)
        raise TooLongError(
            f"the run of {n_tokens:,} tokens would take about {seconds(n_tokens):,.0f} s and "
            f"{size_text(needed(n_tokens) + more(n_tokens))}; here a run may take {run_seconds():,.0f} s, "
            f"{room} and {MAX_TOKENS:,} tokens: {most:,} fit. Cut the prompt at the left, in the middle or "
            "at the right",
            most,
        )


def with_less_memory(model: HookedMTA, n_tokens: int, run: Callable[[], T]) -> T:
    """`run()`; where its memory runs out once more, in small slabs; else MemoryFullError."""
    for share in (1, 16):
        try:
            with smaller_slabs(share):
                return run()
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        gc.collect()
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
    free, needed = (
        free_bytes(model.device) or 0,
        partial(capture_bytes, model.config, device=model.device.type),
    )
    most = bisect_left(range(1, n_tokens), True, key=lambda n: needed(n) > free)
    raise MemoryFullError(
        f"{model.device} ran out of memory: {n_tokens:,} tokens take about {size_text(needed(n_tokens))}, "
        f"and {size_text(free)} is free, enough for about {most:,}. Cut the prompt, or compute in bfloat16 "
        "or on cpu"
    )


def as_batch(model: HookedMTA, ids: Sequence[int]) -> Int[Tensor, "batch position"]:
    """One prompt's ids on the model's device."""
    return torch.tensor([ids], dtype=torch.long, device=model.device)


def _row_progress(progress: Progress | None, layer: int, n_layers: int, n_tokens: int):
    """Share of the work done: rows near the end attend to more keys, so area counts."""
    if progress is None:
        return None
    return lambda stop: progress((layer + (stop / n_tokens) ** 2) / n_layers)


def operated(
    model: HookedMTA, plan: Sequence[Intervention], n_tokens: int, sources: Sources | None = None
) -> HookedMTA:
    """`edited(model, plan)` for prompts of `n_tokens`; each prompt a patch names is run by `model` itself.

    `sources`: what `activations` gave for these patches, so that they need not be run again. Raises
    ConfigError for what the model lacks, PromptError where another prompt has another length.
    """
    check_plan(plan, model.config)
    return edited(model, plan, activations(model, plan, n_tokens) if sources is None else sources)


def activations(model: HookedMTA, plan: Sequence[Intervention], n_tokens: int) -> Sources:
    """What each patch of a plan puts in place; every prompt is run once. Raises as `operated`."""
    patches = [intervention for intervention in plan if isinstance(intervention, PatchHead)]
    sources: dict[PatchHead, Tensor] = {}
    for prompt in dict.fromkeys(patch.prompt for patch in patches):
        tokens = tokenize(model, prompt)
        if len(tokens) != n_tokens:
            raise PromptError(
                f"the prompt to patch from has {len(tokens)} tokens, this one {n_tokens}. Position takes the "
                "place of position: give a prompt of equally many tokens"
            )
        of_prompt = [patch for patch in patches if patch.prompt == prompt]
        names = {patch: f"blocks.{patch.layer}.attn.{patch.hook}" for patch in of_prompt}
        hooks = run_hooks(model, tokens, sorted(set(names.values())))
        for patch, name in names.items():
            whole = hooks[name]  # weighted values have their heads second, maps first
            own = whole[:, patch.head] if patch.stage == "z" else whole[patch.head]
            sources[patch] = own.to(model.device, model.dtype)
    return sources
