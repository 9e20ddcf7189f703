"""Adapters: one safetensors file with what was added to a plain model, its base, and changed in it.

Tensors have Lingua's keys and layouts, as in every file of this project; the header describes the base by
name, sha256 and sizes, so that kernels can be looked at without it. Owns the file alone: finding the base and
making one model of both is `relatives`'s.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from safetensors.torch import save_file
from torch import Tensor

from mta_viz.checkpoint import digests, door, types
from mta_viz.checkpoint.layout import Entry, file_entries, kernel_entries, read_parameters, tensor_problems
from mta_viz.checkpoint.native import open_safetensors
from mta_viz.checkpoint.params import params_from_config, parse_params
from mta_viz.checkpoint.validate import from_text
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import CheckpointError, ConfigError, FileError
from mta_viz.printed import printable, size_text
from mta_viz.tables import finite
from mta_viz.version import VERSION
from mta_viz.writing import replacing

FORMAT = "mta_viz adapter 1"
ABOUT = "mta_viz_adapter"  # the entry of the file's header that describes it
ADAPTER = "adapter.safetensors"  # its name in a folder of its own, with its history and card beside it
MOST_ABOUT = door.TENSOR_NAMES // 2  # bytes; the header lists the tensors too
MOST_LAYERS = 1000


def _local_path(path: str | None) -> str | None:
    if path is not None and (path[:2] in ("//", "\\\\") or not path.isprintable()):
        raise ValueError("is no path on this machine")  # another machine would be asked for it
    return path


@dataclass(frozen=True)
class AdapterBase:
    """The model that an adapter was made of: its name, the sha256 of its weights, and where it lay then."""

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    path: Annotated[str | None, AfterValidator(_local_path)] = None

    @property
    def text(self) -> str:
        """`needle-transformer (weights with sha256 0123456789ab...)`."""
        return f"{printable(self.name)} (weights with sha256 {self.sha256[:12]}...)"


@dataclass(frozen=True)
class AdapterAbout:
    """What an adapter says of itself. `options` are those of base and adapter together.

    `recipe`: how it was trained, `numbers`: what was measured; both any JSON values, empty if nothing was.
    """

    base: AdapterBase
    options: MTAOptions
    recipe: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Adapter:
    """An adapter as read. `config` is that of base and adapter together, `tensors` go by our names.

    They are all kernels and head mixing, whatever else the base lacks (gate, group norm), and what training
    changed in it.
    """

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    about: AdapterAbout


@dataclass(frozen=True)
class StoredAdapter:
    """The same with its tensors unread. `entries`: our name -> place in the file, of what it holds."""

    file: Path
    config: ModelConfig
    about: AdapterAbout
    weights: types.StoredWeights
    entries: Mapping[str, Entry]

    def read(self, progress: Callable[[float], None] | None = None) -> dict[str, Tensor]:
        """The tensors by our names. Raises CheckpointError for damaged ones."""
        try:
            return read_parameters(self.config, self.weights.tensors, progress, self.entries)
        except CheckpointError as error:
            raise CheckpointError(error.problems, printable(self.file)) from error

    def alone(self, path: Path, progress: Callable[[float], None] | None = None) -> types.Checkpoint:
        """What can be seen without the base. `path`: of the adapter, its folder where that is its own."""
        dtype, n_bytes = types.common_dtype(self.weights), self.weights.n_bytes
        missing = f"it is an adapter, opened without its base {self.about.base.text}"
        files = digests.noted([self.file])
        source = types.Source(path, "adapter", dtype, n_bytes, missing_base=missing, files=files)
        return types.Checkpoint(self.config, self.read(progress), None, source)

    def summary(self, path: Path) -> types.Summary:
        """What it is, as of any checkpoint; the tokenizer is the base's."""
        dtype, n_bytes = types.common_dtype(self.weights), self.weights.n_bytes
        base, task = printable(self.about.base.name), self.about.recipe.get("task")
        own = types.Summary(self.config, "adapter", dtype, None, None, n_bytes, path, base=base)
        return replace(own, task=task if isinstance(task, str) else None)


def write_adapter(
    file: Path | str,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    about: AdapterAbout,
    *,
    overwrite: bool = False,
) -> None:
    """Write an adapter, whole or not at all. `config`, `tensors`: as in `Adapter`; dtypes are kept.

    Raises CheckpointError listing everything wrong: tensors that are missing, unknown or of another shape,
    other options in `about`, a file that is there, a disk that refuses. What is not finite becomes null.
    """
    file = Path(file)
    entries = file_entries(config)
    problems = _writing_problems(config, tensors, about)
    if file.exists() and not overwrite:
        problems.append("it is there already; choose another name, or allow overwriting")
    text = _about_text(config, about)
    if len(text) > MOST_ABOUT:
        problems.append(f"recipe and numbers take {size_text(len(text))}, at most {size_text(MOST_ABOUT)}")
    if problems:
        raise CheckpointError(problems, printable(file))
    stored = {
        entries[name].key: entries[name].layout.write(tensor.detach()).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    with replacing(file) as partial:
        partial.touch()
        mode = partial.stat().st_mode  # safetensors lets the owner alone read what it writes
        save_file(stored, partial, metadata={"format": "pt", ABOUT: text})
        partial.chmod(mode)


def _writing_problems(config: ModelConfig, tensors: Mapping[str, Tensor], about: AdapterAbout) -> list[str]:
    shapes = types.parameter_shapes(config)
    problems = [f"{name} is missing" for name in kernel_entries(config) if name not in tensors]
    for name, tensor in tensors.items():
        if name not in shapes:
            problems.append(f"{name} is no parameter of the model")
        elif tuple(tensor.shape) != shapes[name]:
            problems.append(f"{name} has shape {list(tensor.shape)}; expected {list(shapes[name])}")
    if about.options != config.mta:
        problems.append("its description has other options than its configuration")
    return problems


def _about_text(config: ModelConfig, about: AdapterAbout) -> str:
    data = {
        "format": FORMAT,
        "version": VERSION,
        "base": asdict(about.base),
        "options": asdict(about.options),
        "params": params_from_config(replace(config, mta=MTAOptions()), None, None),
        "recipe": finite(about.recipe),
        "numbers": finite(about.numbers),
    }
    return json.dumps(data, allow_nan=False)


def read_adapter(file: Path | str) -> Adapter:
    """An adapter with its tensors. Raises CheckpointError listing everything wrong with the file."""
    stored = open_adapter(Path(file))
    return Adapter(stored.config, stored.read(), stored.about)


def is_adapter(file: Path) -> bool:
    """Whether a file is a safetensors file that says of itself that it is an adapter, of any version."""
    try:
        with door.open_tensors(file) as opened:
            return ABOUT in (opened.metadata() or {})
    except FileError:
        return False


def open_adapter(file: Path) -> StoredAdapter:
    """An adapter whose description and shapes are checked, its values unread. Raises as `read_adapter`."""
    try:
        with door.open_tensors(file) as opened:
            text = (opened.metadata() or {}).get(ABOUT)
    except FileError as error:
        raise CheckpointError([error.of("it")], printable(file)) from error
    if text is None:
        raise CheckpointError([f"it is no adapter: its header has no {ABOUT}"], printable(file))
    try:
        config, about = _described(text)
    except ConfigError as error:
        raise CheckpointError(error.problems, printable(file)) from error
    weights = open_safetensors(file)
    there = weights.tensors.keys() | weights.unreadable.keys()
    whole = file_entries(config)
    entries = {name: entry for name, entry in whole.items() if entry.key in there}
    problems = [*weights.problems, *tensor_problems(config, weights, kernel_entries(config) | entries)]
    if problems:
        raise CheckpointError(problems, printable(file))
    return StoredAdapter(file, config, about, weights, entries)


@dataclass(frozen=True)
class _Header:
    """The description as it is written."""

    version: str
    base: AdapterBase
    options: MTAOptions
    params: dict[str, Any]
    recipe: dict[str, Any]
    numbers: dict[str, Any]


def _described(text: str) -> tuple[ModelConfig, AdapterAbout]:
    """Raises ConfigError listing every fault."""
    header = from_text(_Header, text, "Its description", file_format=FORMAT)
    parsed = parse_params(header.params, vocab_size=None)
    problems = [*parsed.problems]
    if parsed.config is not None:
        problems += _layer_problems(parsed.config, header.options)
    if problems or parsed.config is None:
        raise ConfigError(problems)
    config = replace(parsed.config, mta=header.options)
    return config, AdapterAbout(header.base, header.options, header.recipe, header.numbers)


def _layer_problems(base: ModelConfig, options: MTAOptions) -> list[str]:
    if base.n_layers > MOST_LAYERS:
        return [f"its base has {base.n_layers:,} layers; at most {MOST_LAYERS:,} are read"]
    outside = [layer for layer in options.mta_layers or () if not 0 <= layer < base.n_layers]
    return [f"options.mta_layers names {outside[0]}; the base has {base.n_layers} layers"] if outside else []
