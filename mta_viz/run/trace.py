"""A captured run: what is kept of a prompt's forward pass, and any stage of it recomputed on demand.

Owns `Trace`, `StoredTrace`, one that came from a file, and `About`, what a file says of itself beside its
tensors: JSON in its header, read strictly. Running prompts is `tracing.py`'s, reading files `files.py`'s;
what maps mean is analysis.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from pydantic import AfterValidator, Field
from torch import Tensor

from mta_viz.checkpoint.params import params_from_config, parse_params
from mta_viz.checkpoint.validate import from_text
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError, check_index
from mta_viz.model.attention import Attention, QueryKeyValue
from mta_viz.model.backends import Backend
from mta_viz.model.hooking import Weights, hooked, some_of, weights_of
from mta_viz.model.ops import future_cells
from mta_viz.model.plans import Plan, PlanData, check_plan, plan_as_data
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import in_turns, set_threads
from mta_viz.tables import Printed, shortened
from mta_viz.tokenizers.base import Tokens
from mta_viz.version import VERSION

FORMAT = "mta_viz run 1"
MOST_LAYERS = 1000
MOST_CHARACTERS = 10**9  # where a token ends in its prompt
Place = tuple[int, Stage]


@dataclass(frozen=True)
class About:
    """Which run it is. `sha256` is that of the checkpoint's weights, `dtype` what it was computed in.

    `pieces`, `spans` and `text` are those of `Tokens`. `plan`: interventions the model ran with.
    `stored`: layer and stage of every map in the file.
    """

    checkpoint: str
    sha256: str
    config: ModelConfig
    dtype: str
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    text: str | None
    plan: Plan = ()
    stored: tuple[Place, ...] = ()
    version: str = VERSION

    def to_text(self) -> str:
        """As JSON, ASCII only."""
        data = {
            "format": FORMAT,
            "version": self.version,
            "checkpoint": self.checkpoint,
            "sha256": self.sha256,
            "dtype": self.dtype,
            "text": self.text,
            "pieces": self.pieces,
            "spans": self.spans,
            "interventions": plan_as_data(self.plan),
            "maps": [[layer, stage.value.key] for layer, stage in self.stored],
            "params": params_from_config(self.config, None, None),
        }
        return json.dumps(data)

    def stored_words(self) -> str:
        """`layer 3: hook_scores_kq, hook_pattern; ...`, or that there are none."""
        by_layer: dict[int, list[str]] = {}
        for layer, stage in self.stored:
            by_layer.setdefault(layer, []).append(stage.value.hook)
        return "; ".join(f"layer {layer}: {', '.join(names)}" for layer, names in by_layer.items()) or "none"


def from_header(text: str) -> About:
    """What `to_text` wrote. Raises MtaVizError listing what is missing or of the wrong kind."""
    header = from_text(_Header, text, "its description", file_format=FORMAT)
    parsed = parse_params(header.params, vocab_size=None)
    config = parsed.config
    if config is None or parsed.problems:
        raise MtaVizError(f"its model cannot be: {'; '.join(parsed.problems)}")
    if config.n_layers > MOST_LAYERS:
        raise MtaVizError(f"its model has {config.n_layers} layers; at most {MOST_LAYERS} are read")
    check_plan(header.interventions, config)
    checkpoint = header.checkpoint, header.sha256, config, header.dtype
    tokens = header.pieces, header.spans, header.text
    return About(*checkpoint, *tokens, header.interventions, _stored(header.maps, config), header.version)


def _span(span: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= span[0] <= span[1] <= MOST_CHARACTERS:
        raise ValueError("is no span of a text")
    return span


@dataclass(frozen=True)
class _Header:
    """The description as it is written."""

    version: str
    checkpoint: str
    sha256: Annotated[str, Field(min_length=64, max_length=64)]
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    text: str | None
    pieces: tuple[str, ...]
    spans: tuple[Annotated[tuple[int, int], AfterValidator(_span)], ...]
    interventions: PlanData
    maps: tuple[tuple[int, str], ...]
    params: dict[str, Any]


def _stored(maps: tuple[tuple[int, str], ...], config: ModelConfig) -> tuple[Place, ...]:
    stages = {stage.value.key: stage for stage in Stage}
    there = [
        0 <= layer < config.n_layers and stages.get(key) in layer_stages(config.kernels(layer))
        for layer, key in maps
    ]
    if not all(there) or len(set(maps)) < len(maps):
        raise MtaVizError("its list of maps names one twice, or one that its model does not compute")
    return tuple((layer, stages[key]) for layer, key in maps)


EVERYTHING = slice(None)
SLAB_ROWS = 256  # of maps that are read from a file


@dataclass(frozen=True, repr=False)
class Trace(Printed):
    """A prompt's run, small: each layer's input residual, from which any stage is recomputed.

    `residuals` [layer + 1, position, d_model] float32: row l enters layer l, the last leaves the
    model. Maps cost a partial forward of one layer each; cells with key > query are 0. `backends`: how each
    layer was computed, empty for a run that came from a file.
    """

    tokens: Tokens
    residuals: Float[Tensor, "depth position d_model"] = field(repr=False)
    model: HookedMTA = field(repr=False, compare=False)
    backends: tuple[Backend, ...] = field(default=(), kw_only=True, repr=False, compare=False)
    ran_with: Weights | None = field(default=None, repr=False, compare=False, kw_only=True)
    _projected: dict[tuple[int, torch.device], QueryKeyValue] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.ran_with is None or self.ran_with.of not in (None, id(self.model)):  # given another model
            object.__setattr__(self, "ran_with", weights_of(self.model))

    def check_model(self, *parts: str) -> None:
        """Raise MtaVizError where what is computed now by the modules `parts` would be of another model.

        That is under hooks, and where their weights were changed since the run. Call it under the lock.
        """
        check_unhooked(self.model)
        if names := (self.ran_with or weights_of(self.model)).changed(self.model, *parts):
            raise MtaVizError(
                f"{some_of(names)} changed since this run was made, and what is computed of it now would mix "
                "two models; run the prompt again (capture)"
            )

    def _title(self) -> str:
        config, source = self.model.config, self.model.source
        name = "a model" if source is None else source.name
        edits = f", {len(self.model.plan)} interventions" if self.model.plan else ""
        text = "" if self.tokens.text is None else f": {shortened(self.tokens.text)}"
        dtype = str(self.model.dtype).removeprefix("torch.")
        shape = f"{config.n_layers} layers x {config.n_heads} heads, computed in {dtype}"
        return f"{type(self).__name__} of {len(self.tokens):,} tokens through {name} ({shape}{edits}){text}"

    def map(
        self, layer: int, stage: Stage, head: int, queries: slice = EVERYTHING, keys: slice = EVERYTHING
    ) -> Float[Tensor, "query key"]:
        """One head's map at one stage, or a crop of it. Raises PromptError for what is not there."""
        check_index("head", head, self.model.config.n_heads)
        return self.maps(layer, stage, queries, keys)[head]

    def maps(
        self, layer: int, stage: Stage, queries: slice = EVERYTHING, keys: slice = EVERYTHING
    ) -> Float[Tensor, "head query key"]:
        """Every head's map at one stage, or a crop of it."""
        return self.crops(layer, {stage}, queries, keys)[stage]

    def crops(
        self, layer: int, stages: set[Stage], queries: slice = EVERYTHING, keys: slice = EVERYTHING
    ) -> dict[Stage, Float[Tensor, "head query key"]]:
        """Every head's maps at some stages, in one pass."""
        start, stop = _bounds("queries", queries, len(self.tokens))
        first_key, last_key = _bounds("keys", keys, len(self.tokens))
        for stage in stages:
            self._attention(layer, stage)
        read = self._keys_read(layer, stages, range(start, stop), range(first_key, last_key))
        left, right = first_key - read.start, max(last_key, first_key) - read.start
        empty = self.residuals.new_zeros(self.model.config.n_heads, 0, right - left)
        parts: dict[Stage, list[Tensor]] = {stage: [] for stage in stages}
        for _, slabs in self._slabs(layer, stages, range(start, stop), read):
            for stage, slab in slabs.items():
                part = slab[:, :, left:right]
                parts[stage].append(torch.nn.functional.pad(part, (0, right - left - part.shape[2])))
        return {stage: torch.cat(part, dim=1) if part else empty for stage, part in parts.items()}

    def _keys_read(self, layer: int, stages: set[Stage], queries: range, keys: range) -> range:
        """The keys a crop is computed from: before the softmax its own, and what its convolution reads."""
        attention = self.model.blocks[layer].attn
        if attention.patches or any(stage.value.unit == "weight" for stage in stages):
            return range(queries.stop)  # a patch counts from key 0
        beside = 0 if attention.kernel_pre is None else attention.kernel_pre.shape[2]
        first = min(keys.start - beside, attention.rows(queries.start, queries.stop).first)
        return range(max(first, 0), min(keys.stop + beside, queries.stop))

    def has(self, layer: int, stage: Stage) -> bool:
        """Whether the layer computes the stage and it can be had here."""
        return stage in self.model.blocks[layer].attn.stages

    def slabs(
        self, layer: int, stage: Stage, queries: range | None = None
    ) -> Iterator[tuple[int, Float[Tensor, "head query key"]]]:
        """A stage in consecutive slabs of rows: (first row, rows over keys 0..last row)."""
        self._attention(layer, stage)
        for start, slab in self._slabs(layer, {stage}, queries):
            yield start, slab[stage]

    def stage_slabs(
        self, layer: int, queries: range | None = None
    ) -> Iterator[tuple[int, dict[Stage, Float[Tensor, "head query key"]]]]:
        """Every stage of a layer at once, in slabs as in `slabs`: one pass instead of one each."""
        return self._slabs(layer, set(self._attention(layer, Stage.RAW).stages), queries)

    def _slabs(
        self, layer: int, wanted: set[Stage], queries: range | None, keys: range | None = None
    ) -> Iterator[tuple[int, dict[Stage, Tensor]]]:
        """Of all keys, or of those of `_keys_read`, whose first is then where positions count from."""
        attention = self.model.blocks[layer].attn
        queries = range(len(self.tokens)) if queries is None else queries
        keys = range(queries.stop) if keys is None else keys
        with torch.no_grad():  # with gradients on, a slab would be the whole prompt
            step = attention.slab_rows(1, max(len(keys), 1))
        qkv, first, stop = self.project(layer), keys.start, queries.stop - keys.start
        seen = slice(first, keys.stop)
        qkv = QueryKeyValue(qkv.q[:, first:], qkv.k[:, seen], qkv.v[:, seen])
        n_rows = min(step, len(queries))
        future = future_cells(range(n_rows), n_rows, self.model.device)  # earlier keys all rows see
        for start in range(queries.start - first, stop, step):
            rows = attention.rows(start, min(start + step, stop))
            slab: dict[Stage, Tensor] = {}
            with self.model.lock, torch.no_grad():
                for stage, maps in attention.stage_rows(qkv, rows):
                    if stage in wanted:
                        slab[stage] = maps[0].to(future.device).float()
                        band = slab[stage][:, :, rows.start :]  # no step reads its future cells
                        band.masked_fill_(future[: band.shape[1], : band.shape[2]], 0.0)
                    if len(slab) == len(wanted):
                        break
            yield start + first, slab  # the lock is free while the caller works

    def logits(self, positions: slice = EVERYTHING) -> Float[Tensor, "position vocab"]:
        """Logits of some positions, float32."""
        return self.lens(self.model.config.n_layers, positions)

    def lens(self, depth: int, positions: slice = EVERYTHING) -> Float[Tensor, "position vocab"]:
        """Logits read off the residual stream entering layer `depth` (logit lens)."""
        check_index("depth", depth, len(self.residuals))
        with self.model.lock, torch.no_grad():
            self.check_model("ln_final", "embed" if self.model.unembed is None else "unembed")
            return self.model.logits(self.residuals[depth, positions].to(self.model.dtype)).float()

    def gate(self, layer: int) -> Float[Tensor, "position head gate"] | None:
        """Gate values of a layer in 0..1, or None where the model has no gate."""
        check_index("layer", layer, self.model.config.n_layers)
        attention = self.model.blocks[layer].attn
        if attention.gate is None:
            return None
        with in_turns(self.model, len(self.tokens)), torch.no_grad():
            z = attention.attend(self.project(layer))
        return self.gate_of(layer, z[0])

    def gate_of(
        self, layer: int, z: Float[Tensor, "position head d"]
    ) -> Float[Tensor, "position head gate"] | None:
        """The gate that weighted values `z` would open, 0..1, float32; None where the model has no gate."""
        attention = self.model.blocks[layer].attn
        with self.model.lock, torch.no_grad():  # the norm has a hook point, where another may be listening
            self.check_model(f"blocks.{layer}.attn")
            gate = attention.gate_values(attention.normalize(z[None].to(attention.wq.weight)))
        return None if gate is None else gate[0].float().to(z.device)

    def project(self, layer: int) -> QueryKeyValue:
        """Rotated queries and keys, and values, with a batch axis; on the layer's device.

        Those of the layer asked for last are kept: most of what is asked for in a row is of one layer.
        """
        with self.model.lock, torch.no_grad():
            self.check_model(f"blocks.{layer}.ln1", f"blocks.{layer}.attn")
            set_threads(self.model.config, len(self.tokens))
            block = self.model.blocks[layer]
            place = layer, block.ln1.weight.device
            if place not in self._projected:
                self._projected.clear()
                normed = block.ln1(self.residuals[layer][None].to(self.model.dtype))
                self._projected[place] = block.attn.project(normed)
            return self._projected[place]

    def _attention(self, layer: int, stage: Stage) -> Attention:
        check_index("layer", layer, self.model.config.n_layers)
        attention = self.model.blocks[layer].attn
        if stage not in attention.stages:
            there = ", ".join(at.value.hook for at in attention.stages)
            raise PromptError(f"layer {layer} has no {stage.value.hook}; its stages are {there}")
        return attention


@dataclass(frozen=True, repr=False)
class StoredTrace(Trace):
    """A saved run. `maps_in_file[layer, stage]` [head, query, key] float32, `about` what the file says.

    `model` has the run's interventions; without the checkpoint it has shapes and no weights.
    """

    about: About
    maps_in_file: Mapping[Place, Float[Tensor, "head query key"]] = field(repr=False, compare=False)

    @property
    def recomputes(self) -> bool:
        """Whether the checkpoint is here, and with it every stage."""
        return not self.model.kernels_only

    def has(self, layer: int, stage: Stage) -> bool:
        """Without the checkpoint, whether the file holds the map."""
        return super().has(layer, stage) and (self.recomputes or (layer, stage) in self.maps_in_file)

    def _keys_read(self, layer: int, stages: set[Stage], queries: range, keys: range) -> range:
        in_file = any((layer, stage) in self.maps_in_file for stage in stages)
        return range(queries.stop) if in_file else super()._keys_read(layer, stages, queries, keys)

    def _slabs(
        self, layer: int, wanted: set[Stage], queries: range | None, keys: range | None = None
    ) -> Iterator[tuple[int, dict[Stage, Tensor]]]:
        read = {stage for stage in wanted if (layer, stage) in self.maps_in_file}
        if read == wanted:
            rows = range(len(self.tokens)) if queries is None else queries
            for start in range(rows.start, rows.stop, SLAB_ROWS):
                yield start, self._rows(layer, read, start, min(start + SLAB_ROWS, rows.stop))
            return
        self._check_weights(f"layer {layer}'s {', '.join(stage.value.hook for stage in wanted - read)}")
        for start, slab in super()._slabs(layer, wanted, queries, keys):
            stop = start + next(iter(slab.values())).shape[1]
            yield start, slab | self._rows(layer, read, start, stop)

    def _rows(self, layer: int, stages: set[Stage], start: int, stop: int) -> dict[Stage, Tensor]:
        return {stage: self.maps_in_file[layer, stage][:, start:stop, :stop] for stage in stages}

    def lens(self, depth: int, positions: slice = EVERYTHING) -> Float[Tensor, "position vocab"]:
        """As of every trace. Raises PromptError without the checkpoint."""
        self._check_weights("the logits")
        return super().lens(depth, positions)

    def project(self, layer: int) -> QueryKeyValue:
        """As of every trace. Raises PromptError without the checkpoint."""
        self._check_weights("queries, keys and values")
        return super().project(layer)

    def _check_weights(self, what: str) -> None:
        if not self.recomputes:
            raise PromptError(
                f"this saved run does not hold {what}. It holds the maps of {self.about.stored_words()}. For "
                f"all others open it with its checkpoint, {self.about.checkpoint}: "
                "open_trace(file, model=load(checkpoint))"
            )


def check_unhooked(model: HookedMTA) -> None:
    """Raise MtaVizError where hooks wait at the model: a trace's maps are computed without them."""
    if names := hooked(model):
        raise MtaVizError(
            f"the model has hooks at {some_of(names)}; a trace recomputes its maps without them, so it would "
            "mix two models. Make the change an intervention (mta_viz.model.editing.edited) and run that, "
            "use run_with_cache for the hooked run, or take the hooks away: "
            "model.reset_hooks(including_permanent=True), handle.remove() for torch's own"
        )


def _bounds(name: str, part: slice, n_tokens: int) -> tuple[int, int]:
    if part.step not in (None, 1):
        raise PromptError(f"{name} goes in steps of {part.step}; a crop is a slice with step 1")
    start, stop, _ = part.indices(n_tokens)
    return start, stop
