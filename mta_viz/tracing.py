"""Every inference call goes through here, under the model's lock.

Owns running a model: capture -> `Trace`, hook tensors, greedy continuation, batched scoring. Does
not own what results mean (analysis) or how a forward is computed (model).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import SupportsIndex
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.cost import multiply_adds, set_threads
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.attention import Attention, QueryKeyValue, Rows
from mta_viz.model.generation import Continuation
from mta_viz.model.ops import future_cells
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA, build_model
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.pasted import tokens_from_ids

Progress = Callable[[float], None]
Prompt = str | Tokens | Iterable[SupportsIndex]
EVERYTHING = slice(None)
CALIBRATION = 4e9  # multiply-adds of the run that measures this machine, about 0.2 s
KERNELS_ONLY = (
    "this file holds kernels only, so no prompt can be run with it; open the whole model for attention maps"
)
_seconds: WeakKeyDictionary[HookedMTA, dict[int, float]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Trace:
    """A prompt's run, small: each layer's input residual, from which any stage is recomputed.

    `residuals` [layer + 1, position, d_model] float32: row l enters layer l, the last leaves the
    model. Maps cost a partial forward of one layer each; cells with key > query are 0.
    """

    tokens: Tokens
    residuals: Float[Tensor, "depth position d_model"] = field(repr=False)
    model: HookedMTA = field(repr=False, compare=False)

    def map(
        self, layer: int, stage: Stage, head: int, queries: slice = EVERYTHING, keys: slice = EVERYTHING
    ) -> Float[Tensor, "query key"]:
        """One head's map at one stage, or a crop of it. Raises PromptError for what is not there."""
        _check_index("head", head, self.model.config.n_heads)
        return self.maps(layer, stage, queries, keys)[head]

    def maps(
        self, layer: int, stage: Stage, queries: slice = EVERYTHING, keys: slice = EVERYTHING
    ) -> Float[Tensor, "head query key"]:
        """Every head's map at one stage, or a crop of it."""
        start, stop = _bounds("queries", queries, len(self.tokens))
        first_key, last_key = _bounds("keys", keys, len(self.tokens))
        parts = []
        for _, slab in self.slabs(layer, stage, range(start, stop)):
            missing = max(last_key - slab.shape[2], 0)
            parts.append(torch.nn.functional.pad(slab, (0, missing))[:, :, first_key:last_key])
        if not parts:
            return self.residuals.new_zeros(self.model.config.n_heads, 0, max(last_key - first_key, 0))
        return torch.cat(parts, dim=1)

    def slabs(
        self, layer: int, stage: Stage, queries: range | None = None
    ) -> Iterator[tuple[int, Float[Tensor, "head query key"]]]:
        """A stage in consecutive slabs of rows: (first row, rows over keys 0..last row)."""
        self._attention(layer, stage)
        for start, found in self._slabs(layer, {stage}, queries):
            yield start, found[stage]

    def stage_slabs(
        self, layer: int, queries: range | None = None
    ) -> Iterator[tuple[int, dict[Stage, Float[Tensor, "head query key"]]]]:
        """Every stage of a layer at once, in slabs as in `slabs`: one pass instead of one each."""
        return self._slabs(layer, set(self._attention(layer, Stage.RAW).stages), queries)

    def _slabs(
        self, layer: int, wanted: set[Stage], queries: range | None
    ) -> Iterator[tuple[int, dict[Stage, Tensor]]]:
        attention = self.model.blocks[layer].attn
        queries = range(len(self.tokens)) if queries is None else queries
        with torch.no_grad():  # with gradients on, a slab would be the whole prompt
            step = attention.slab_rows(1, max(queries.stop, 1))
        qkv = self.project(layer)
        for start in range(queries.start, queries.stop, step):
            rows = attention.rows(start, min(start + step, queries.stop))
            with self.model.lock, torch.no_grad():
                found = _found(attention, qkv, rows, wanted)
            yield start, found  # the lock is free while the caller works

    def logits(self, positions: slice = EVERYTHING) -> Float[Tensor, "position vocab"]:
        """Logits of some positions, float32."""
        return self.lens(self.model.config.n_layers, positions)

    def lens(self, depth: int, positions: slice = EVERYTHING) -> Float[Tensor, "position vocab"]:
        """Logits read off the residual stream entering layer `depth` (logit lens)."""
        _check_index("depth", depth, len(self.residuals))
        with self.model.lock, torch.no_grad():
            return self.model.logits(self.residuals[depth, positions].to(self.model.dtype)).float()

    def gate(self, layer: int) -> Float[Tensor, "position head gate"] | None:
        """Gate values of a layer in 0..1, or None where the model has no gate."""
        _check_index("layer", layer, self.model.config.n_layers)
        attention = self.model.blocks[layer].attn
        if attention.gate is None:
            return None
        with self.model.lock, torch.no_grad():
            gate = attention.gate_values(attention.normalize(attention.attend(self.project(layer))))
        return None if gate is None else gate[0].float()

    def project(self, layer: int) -> QueryKeyValue:
        """Rotated queries and keys, and values, of every position of a layer; with a batch axis."""
        with self.model.lock, torch.no_grad():
            set_threads(self.model.config, len(self.tokens))
            block = self.model.blocks[layer]
            return block.attn.project(block.ln1(self.residuals[layer][None].to(self.model.dtype)))

    def _attention(self, layer: int, stage: Stage) -> Attention:
        _check_index("layer", layer, self.model.config.n_layers)
        attention = self.model.blocks[layer].attn
        if stage not in attention.stages:
            there = ", ".join(at.value.hook for at in attention.stages)
            raise PromptError(f"layer {layer} has no {stage.value.hook}; its stages are {there}")
        return attention


def _found(attention: Attention, qkv: QueryKeyValue, rows: Rows, wanted: set[Stage]) -> dict[Stage, Tensor]:
    """The wanted stages of some rows, float32, cells with key > query 0; stops at the last of them."""
    found: dict[Stage, Tensor] = {}
    for stage, maps in attention.stage_rows(qkv, rows):
        if stage in wanted:
            found[stage] = maps[0].float().masked_fill(_future(maps, rows.start), 0.0)
        if len(found) == len(wanted):
            break
    return found


def _future(maps: Tensor, first_row: int) -> Tensor:
    return future_cells(range(first_row, first_row + maps.shape[2]), maps.shape[3], maps.device)


def load(
    path: str | Path,
    *,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: Path | None = None,
    progress: Progress | None = None,
) -> HookedMTA:
    """Read a checkpoint folder and build its model. Raises CheckpointError listing every fault."""
    checkpoint = read_checkpoint(path, tokenizer=tokenizer, progress=progress)
    return build_model(checkpoint, device=device, dtype=dtype)


def capture(model: HookedMTA, prompt: Prompt, *, progress: Progress | None = None) -> Trace:
    """Run a prompt and keep each layer's input residual. Memory grows with T.

    `progress(share done)` is called after every slab of rows; raise `Cancelled` in it to stop.
    """
    tokens = tokenize(model, prompt)
    with model.lock, torch.no_grad():
        set_threads(model.config, len(tokens))
        resid = model.embed(_batch(model, tokens.ids))
        residuals = [resid[0].float()]
        for layer, block in enumerate(model.blocks):
            resid = block(resid, _row_progress(progress, layer, model.config.n_layers, len(tokens)))
            residuals.append(resid[0].float())
    return Trace(tokens, torch.stack(residuals), model)


def tokenize(model: HookedMTA, prompt: Prompt) -> Tokens:
    """The prompt as `Tokens` the model can take. Raises PromptError or TokenizerError."""
    _check_runs(model)
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise PromptError("this checkpoint came without its tokenizer; give the file, or token ids")
        prompt = model.tokenizer.encode(prompt)
    ids = prompt.ids if isinstance(prompt, Tokens) else prompt
    checked = tokens_from_ids(ids, vocab_size=model.config.vocab_size, tokenizer=model.tokenizer)
    return prompt if isinstance(prompt, Tokens) else checked


def run_hooks(model: HookedMTA, prompt: Prompt, names: Sequence[str]) -> dict[str, Tensor]:
    """Activations by hook name, and `logits`: float32, on the CPU, without batch axis.

    Raises PromptError for names the model does not have.
    """
    unknown = [name for name in names if name not in model.hook_dict]
    if unknown:
        raise PromptError(f"the model has no hook named {', '.join(unknown)}")
    tokens, wanted = tokenize(model, prompt), set(names)
    with model.lock, torch.no_grad():
        set_threads(model.config, len(tokens))
        logits, cache = model.run_with_cache(_batch(model, tokens.ids), names_filter=lambda n: n in wanted)
    found = {"logits": logits, **cache}
    return {name: tensor[0].float().cpu() for name, tensor in found.items()}


def generate(
    model: HookedMTA, prompt: Prompt, max_new_tokens: int, *, progress: Progress | None = None
) -> tuple[int, ...]:
    """Greedy continuation: the new ids, up to (and without) the tokenizer's EOS.

    Raises MtaVizError when the logits hold NaN, of which none is the largest.
    """
    tokens = tokenize(model, prompt)
    eos = model.tokenizer.eos_id if model.tokenizer else None
    new: list[int] = []
    if max_new_tokens < 1:
        return ()
    with model.lock, torch.no_grad():
        set_threads(model.config, len(tokens))
        run = Continuation(model, _batch(model, tokens.ids)[0])
        while (token := _likeliest(run.logits, len(new))) != eos:
            new.append(token)
            if progress:
                progress(len(new) / max_new_tokens)
            if len(new) == max_new_tokens:
                break
            run.append(token)
    return tuple(new)


def _check_runs(model: HookedMTA) -> None:
    if model.kernels_only:
        raise PromptError(KERNELS_ONLY)


def _likeliest(logits: Float[Tensor, " vocab"], n_new: int) -> int:
    if logits.isnan().any():
        raise MtaVizError(
            f"the logits for new token {n_new + 1} hold NaN, so there is no next token; look for weights "
            "that are NaN or infinite, or compute in float32"
        )
    return int(logits.argmax())


def score(model: HookedMTA, ids: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position vocab"]:
    """Logits of a batch of equally long sequences, in the model's dtype, on its device."""
    _check_runs(model)
    with model.lock, torch.no_grad():
        set_threads(model.config, ids.shape[1], batch=ids.shape[0])
        return model(ids.to(model.device))


def estimate_seconds(model: HookedMTA, n_tokens: int) -> float:
    """Seconds a capture of `n_tokens` will take here: a shorter run, measured once, scaled up."""
    sizes = [size for size in (16, 32, 64, 128, 256, 512) if size <= n_tokens] or [max(n_tokens, 1)]
    fitting = [size for size in sizes if multiply_adds(model.config, size) <= CALIBRATION]
    size = max(fitting, default=sizes[0])
    measured = _seconds.setdefault(model, {})
    if size not in measured:
        measured[size] = min(_timed_run(model, size) for _ in range(2))
    return measured[size] * multiply_adds(model.config, n_tokens) / multiply_adds(model.config, size)


def _timed_run(model: HookedMTA, n_tokens: int) -> float:
    start = time.perf_counter()
    score(model, torch.zeros(1, n_tokens, dtype=torch.long))
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - start


def _batch(model: HookedMTA, ids: Sequence[int]) -> Int[Tensor, "batch position"]:
    return torch.tensor([ids], device=model.device)


def _row_progress(progress: Progress | None, layer: int, n_layers: int, n_tokens: int):
    """Share of the work done: rows near the end attend to more keys, so area counts."""
    if progress is None:
        return None
    return lambda stop: progress((layer + (stop / n_tokens) ** 2) / n_layers)


def _bounds(name: str, part: slice, n_tokens: int) -> tuple[int, int]:
    if part.step not in (None, 1):
        raise PromptError(f"{name} goes in steps of {part.step}; a crop is a slice with step 1")
    start, stop, _ = part.indices(n_tokens)
    return start, stop


def _check_index(name: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise PromptError(f"{name} {index} does not exist; the model has {count}, counted from 0")
