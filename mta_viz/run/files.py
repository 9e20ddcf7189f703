"""A run as one safetensors file: written whole or not at all, read strictly, with its size known before.

The file holds `tokens`, `residuals` and the maps that were asked for, under their hooks' names, and a
description (`trace.py`) with the digest of all of it. Nothing in it is executed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import save, save_file
from torch import Tensor

from mta_viz.checkpoint import door, dumps
from mta_viz.checkpoint.locate import sha256_as_read
from mta_viz.checkpoint.types import dtype_name
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import FileError, MtaVizError, PromptError
from mta_viz.model.hooking import some_of, weights_of
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import printable, size_text
from mta_viz.run.trace import About, Place, StoredTrace, Trace, from_header
from mta_viz.run.tracing import operated
from mta_viz.tokenizers.base import Tokens, label
from mta_viz.writing import check_new, replacing

MAX_BYTES = 4 * door.GIB
MOST_NAMES = 96 * door.MIB  # the header, whose description lists every token
DESCRIPTION, DIGEST = "mta_viz", "sha256"
DUMP, UNKNOWN = (
    "an attention dump of the reference",
    "0" * 64,
)  # in the place of a checkpoint's name and sha256
Tensors = Mapping[str, Tensor]
Layers = Sequence[int] | None
Shapes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class SavedRun:
    """A file as read and checked: `residuals` [layer + 1, position, d_model], maps as in `StoredTrace`."""

    about: About
    ids: Int[Tensor, " position"]
    residuals: Float[Tensor, "depth position d_model"]
    maps: Mapping[Place, Float[Tensor, "head query key"]]

    @property
    def tokens(self) -> Tokens:
        """The run's tokens."""
        about = self.about
        return Tokens(tuple(self.ids.tolist()), about.pieces, about.spans, about.text)

    def trace(self, model: HookedMTA | None = None) -> StoredTrace:
        """The run, to be asked like any other. Raises MtaVizError for a model that is not its own."""
        if model is not None:
            model = self._own_model(model)
            maps = {place: kept.to(model.device) for place, kept in self.maps.items()}
            return StoredTrace(self.tokens, self.residuals.to(model.device), model, self.about, maps)
        with torch.device("meta"):
            model = HookedMTA(self.about.config)
        return StoredTrace(self.tokens, self.residuals, model, self.about, self.maps)

    @property
    def is_dump(self) -> bool:
        """Whether it is an attention dump of the reference: maps alone, with `checkpoint.dumps.LIMITS`."""
        return self.about.sha256 == UNKNOWN

    def _own_model(self, model: HookedMTA) -> HookedMTA:
        """`model` with the run's interventions."""
        about, dtype = self.about, dtype_name(model.dtype)
        if self.is_dump:
            raise MtaVizError("an attention dump names no checkpoint; open it without a model, as maps only")
        digest = weights_digest(model)
        if digest != about.sha256:
            raise MtaVizError(
                f"the run is of {printable(about.checkpoint)} with the sha256 {about.sha256[:12]}..., the "
                f"model given has {digest[:12]}...; open it with its own checkpoint, or without one"
            )
        if dtype != about.dtype:
            raise MtaVizError(
                f"the run was computed in {about.dtype}, the model given computes in {dtype}, and its maps "
                f"would differ; load it with dtype=torch.{about.dtype}"
            )
        if model.plan == about.plan:
            return model
        if model.plan:
            raise MtaVizError("the model given has interventions of its own; open the run with the original")
        return operated(model, about.plan, len(self.ids))


def save_trace(
    trace: Trace,
    path: str | Path,
    *,
    stages: Sequence[Stage] = (),
    layers: Layers = None,
    force: bool = False,
) -> Path:
    """Save a run as one safetensors file, with the maps of `stages` in `layers` (None: in every layer).

    Without stages it takes 4 (n_layers + 1) T d_model bytes for T tokens, and the checkpoint gives every map
    again; each stage of a layer adds 4 n_heads T^2 bytes and can be seen without it. Interventions are saved
    with the run. A layer without a stage is passed over. `trace_size` tells the size before. The file appears
    whole or not at all. Raises MtaVizError for a file that is there already (without `force`), more than
    4 GiB, and a model that came from no checkpoint; PromptError for a layer or stage that is not there.

    >>> file = mta_viz.save_trace(trace, folder / "run.safetensors", stages=[mta_viz.Stage.PATTERN])
    >>> file.name
    'run.safetensors'
    """
    path = Path(path)
    places = _places(trace, stages, layers)
    with replacing(path) as partial:
        check_new(path, force)
        tensors, metadata = _contents(trace, places)
        save_file(dict(tensors), partial, metadata=metadata)
    return path


def trace_bytes(trace: Trace, *, stages: Sequence[Stage] = (), layers: Layers = None) -> bytes:
    """The file's content; for the rest as `save_trace`."""
    tensors, metadata = _contents(trace, _places(trace, stages, layers))
    return save(dict(tensors), metadata=metadata)


def trace_size(trace: Trace, *, stages: Sequence[Stage] = (), layers: Layers = None) -> int:
    """Bytes the file will take, up to some hundred for the names in its header. Raises as `save_trace`."""
    about = _about(trace, _places(trace, stages, layers), "0" * 64)
    return len(about.to_text()) + _n_bytes(about)


def open_trace(path: str | Path, model: HookedMTA | None = None) -> StoredTrace:
    """Open a run that `save_trace` wrote, or a folder of attention dumps of the reference; nothing is run.

    With `model`, the checkpoint it was made with, every stage is there; without, the stored maps [head,
    query, key] are, and asking for another says which. Raises MtaVizError for a file that is damaged, cut
    short, of another kind or over 4 GiB, and for a model with other weights or another dtype.

    >>> file = mta_viz.save_trace(trace, folder / "kept.safetensors", stages=[mta_viz.Stage.PATTERN])
    >>> alone = mta_viz.open_trace(file)
    >>> alone.map(3, mta_viz.Stage.PATTERN, head=1).shape
    torch.Size([21, 21])
    >>> mta_viz.open_trace(file, model).logits().shape
    torch.Size([21, 32])
    """
    return read_run(Path(path)).trace(model)


def read_run(path: Path) -> SavedRun:
    """Read and check a file, or of a folder of attention dumps the first batch.

    Raises MtaVizError with the reason why it is none of a run.
    """
    if dumps.is_attention(path):
        return _of_dump(dumps.read_attention(path))
    try:
        door.size(path, MAX_BYTES)
        with door.open_tensors(path, names=MOST_NAMES) as opened:
            return _read(opened)
    except FileError as error:
        reason = f"it {error.reason}"
    except MtaVizError as error:
        reason = str(error)
    raise MtaVizError(f"{printable(path.name)} cannot be opened as a saved run: {reason}")


def _read(opened: Any) -> SavedRun:
    metadata = opened.metadata() or {}
    if DESCRIPTION not in metadata:
        raise MtaVizError(
            "it does not say what run it is of. Expected a file of `save_trace`, of the app's Save "
            "run, or of `python -m mta_viz trace ... --format run`"
        )
    about = from_header(metadata[DESCRIPTION])
    wanted, found = _shapes(about), set(opened.keys())
    _compare(wanted, {name: opened.get_slice(name) for name in sorted(found)})
    tensors = {name: opened.get_tensor(name).clone() for name in wanted}
    if _digest(metadata[DESCRIPTION], tensors) != metadata.get(DIGEST):
        raise MtaVizError("it is damaged: its contents are not those that were written. Copy it again")
    ids = tensors["tokens"]
    if int(ids.min()) < 0 or int(ids.max()) >= about.config.vocab_size:
        raise MtaVizError(f"its token ids are not all in 0 to {about.config.vocab_size - 1}")
    maps = {(layer, stage): tensors[stage.hook_name(layer)] for layer, stage in about.stored}
    if any(bool(kept.triu(1).any()) for kept in maps.values()):
        raise MtaVizError("a map of it has cells for keys after their query, which no run has")
    return SavedRun(about, ids, tensors["residuals"], maps)


def _of_dump(dump: dumps.AttentionDump) -> SavedRun:
    """Ids are not the model's: equal tokens have equal ones. A token that the dump does not name is "?"."""
    heads, rows, _ = next(iter(dump.maps.values())).shape
    # the smallest model with such maps; it mixes heads, so that no row is taken for a distribution
    sizes: dict[str, Any] = {
        "n_layers": max(dump.maps) + 1,
        "n_heads": heads,
        "n_kv_heads": heads,
        "d_head": 2,
    }
    sizes |= {"d_model": 2 * heads, "d_mlp": 1, "vocab_size": rows, "n_ctx": rows}
    config = ModelConfig(**sizes, mta=MTAOptions(head_post_linear=True))
    maps = {(layer, Stage.PATTERN): values for layer, values in dump.maps.items()}
    ids = torch.tensor([*map(dump.words.index, dump.words)] or range(rows))
    pieces, spans = tuple(map(label, dump.words)) or ("?",) * rows, ((0, 0),) * rows
    about = About(DUMP, UNKNOWN, config, "float32", pieces, spans, None, stored=tuple(maps))
    return SavedRun(about, ids, torch.zeros(config.n_layers + 1, rows, config.d_model), maps)


def _compare(wanted: Shapes, slices: Mapping[str, Any]) -> None:
    words = {torch.int64: "I64", torch.float32: "F32"}
    expected = {name: f"{words[dtype]} {list(shape)}" for name, (shape, dtype) in wanted.items()}
    there = {name: f"{part.get_dtype()} {list(part.get_shape())}" for name, part in slices.items()}
    wrong = sorted(name for name in {*expected, *there} if expected.get(name) != there.get(name))
    if wrong:
        name = wrong[0]
        raise MtaVizError(
            f"{len(wrong)} of its tensors are not what its model and prompt call for, first "
            f"{printable(name)}: {there.get(name, 'none')} instead of {expected.get(name, 'none')}"
        )


def weights_digest(model: HookedMTA) -> str:
    """The sha256 of the weights file a model was read from.

    Raises MtaVizError when it came from none, and where its weights are no longer those of the file.
    """
    if model.source is None:
        raise MtaVizError(
            "this model came from no checkpoint, so its run could not be told from another's; write it as a "
            "checkpoint (mta_viz.checkpoint.native.write_native) and load that"
        )
    check_as_read(model, weights_of(model).marks)
    return sha256_as_read(model.source)


def check_as_read(model: HookedMTA, marks: Mapping[str, str]) -> None:
    """Raise MtaVizError where weights with these marks are not the source's after the model's plan."""
    read = model.as_read or marks  # none: the model was put together by hand
    names = sorted(name for name in {*marks, *read} if marks.get(name) != read.get(name))
    if names:
        raise MtaVizError(
            f"{some_of(names)} changed since the model was read, so a file would name other weights than the "
            "run's; write the model as a checkpoint (mta_viz.checkpoint.native.write_native), load that and "
            "run the prompt again"
        )


def _places(trace: Trace, stages: Sequence[Stage], layers: Iterable[int] | None) -> tuple[Place, ...]:
    """Layer and stage of every map that is asked for and computed."""
    config = trace.model.config
    chosen = range(config.n_layers) if layers is None else sorted(set(layers))
    missing = [layer for layer in chosen if type(layer) is not int or not 0 <= layer < config.n_layers]
    if missing:
        raise PromptError(f"no layer {missing[0]}; the model has layers 0 to {config.n_layers - 1}")
    places = [(at, stage) for at in chosen for stage in layer_stages(config.kernels(at)) if stage in stages]
    absent = [stage for stage in stages if all(stage is not computed for _, computed in places)]
    if absent:
        raise PromptError(f"none of these layers computes {', '.join(stage.value.hook for stage in absent)}")
    return tuple(places)


def _about(trace: Trace, places: tuple[Place, ...], digest: str) -> About:
    if isinstance(trace, StoredTrace):
        return replace(trace.about, stored=places)
    model, tokens = trace.model, trace.tokens
    name = "" if model.source is None else model.source.name
    words = tokens.pieces, tokens.spans, tokens.text
    return About(name, digest, model.config, dtype_name(model.dtype), *words, model.plan, places)


def _shapes(about: About) -> Shapes:
    """Every tensor of the file. Raises MtaVizError where pieces and spans differ in number."""
    config, n_tokens = about.config, len(about.pieces)
    if n_tokens != len(about.spans) or not n_tokens:
        raise MtaVizError(f"it has {n_tokens} tokens and {len(about.spans)} spans")
    maps = {stage.hook_name(layer): (config.n_heads, n_tokens, n_tokens) for layer, stage in about.stored}
    return {
        "tokens": ((n_tokens,), torch.int64),
        "residuals": ((config.n_layers + 1, n_tokens, config.d_model), torch.float32),
        **{name: (shape, torch.float32) for name, shape in maps.items()},
    }


def _n_bytes(about: About) -> int:
    return sum(prod(shape) * dtype.itemsize for shape, dtype in _shapes(about).values())


def _contents(trace: Trace, places: tuple[Place, ...]) -> tuple[Tensors, dict[str, str]]:
    digest = trace.about.sha256 if isinstance(trace, StoredTrace) else weights_digest(trace.model)
    if not isinstance(trace, StoredTrace) and trace.ran_with is not None:
        check_as_read(trace.model, trace.ran_with.marks)
    about = _about(trace, places, digest)
    if (n_bytes := _n_bytes(about)) > MAX_BYTES:
        raise MtaVizError(
            f"the file would take {size_text(n_bytes)}, more than the {size_text(MAX_BYTES)} that are opened "
            "again; choose fewer stages or layers"
        )
    tensors = {
        "tokens": torch.tensor(trace.tokens.ids),
        "residuals": trace.residuals.detach().float().cpu().contiguous(),
        **{stage.hook_name(layer): trace.maps(layer, stage).cpu().contiguous() for layer, stage in places},
    }
    text = about.to_text()
    return tensors, {DESCRIPTION: text, DIGEST: _digest(text, tensors)}


def _digest(text: str, tensors: Tensors) -> str:
    """Of the description and every tensor's bytes, by name."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()
