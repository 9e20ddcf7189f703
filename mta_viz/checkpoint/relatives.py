"""Checkpoints that belong to another one: an adapter's base, and other trainings of a model's shape.

Owns where they are looked for (beside it or among the models, kernels in `cards/`, its twin), what makes
one comparable, and an adapter on its base as one checkpoint; how kernels compare is analysis. Owns no
format: a base may have any that holds a whole model.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from torch import Tensor

from mta_viz.checkpoint import digests, door
from mta_viz.checkpoint.adapter import ADAPTER, AdapterBase, StoredAdapter, open_adapter
from mta_viz.checkpoint.files import run_folder
from mta_viz.checkpoint.history import read_kernels, read_step_kernels
from mta_viz.checkpoint.hub import PACKAGE, installed_base, root_path
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.locate import (
    adapter_file,
    find_checkpoint,
    is_loose_adapter,
    locate,
    sha256,
    sha256_as_read,
)
from mta_viz.checkpoint.reading import Found, find_checkpoints, read_checkpoint, read_summary
from mta_viz.checkpoint.types import Checkpoint, Conversion, Format, Source, parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import CheckpointError, FileError, MtaVizError
from mta_viz.printed import printable
from mta_viz.version import ASSETS

CARDS, ENDING, CARD = "cards", ".kernels.safetensors", "card.json"


@dataclass(frozen=True)
class Relative:
    """A training whose kernels have the sizes and places of a model's; `seed` as its card says, if it does.

    `path`: its folder, or a file of kernels alone.
    """

    name: str
    path: Path
    seed: int | None


def made_models() -> Path | None:
    """Where models that are made lie if no folder is named: among the user's data; None without a home."""
    with suppress(RuntimeError):
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        return Path(data) / "mta_viz-models"
    return None


def usual_roots() -> list[Path]:
    """Of the folder with the shipped models and that of `made_models` those that are there."""
    return [place for place in (ASSETS, made_models()) if place is not None and place.is_dir()]


def named_roots() -> list[Path]:
    """The folders of MTA_VIZ_MODELS, a list like PATH."""
    listed = os.environ.get("MTA_VIZ_MODELS", "").split(os.pathsep)
    return [root_path(part) for part in listed if part]


def model_roots() -> tuple[Path, ...]:
    """Where models are looked for, each folder once."""
    return tuple(dict.fromkeys([*usual_roots(), *named_roots()]))


def own_seed(folder: Path) -> int | None:
    """The seed a checkpoint was trained from, as its card says."""
    return _seed(run_folder(folder) / CARD)


def relatives(folder: Path, config: ModelConfig) -> tuple[Relative, ...]:
    """All other trainings of this shape, by name; of those with one name the nearest.

    Looked for beside the checkpoint's own folder, then in and under `model_roots`; of a folder `cards` in one
    of them the files NAME.kernels.safetensors. What cannot be read is passed over.
    """
    own, shapes = run_folder(folder), _shapes(config)
    by_name: dict[str, Relative] = {}
    for model in find_checkpoints([*_checkpoints_in(own.parent), *model_roots()]).found:
        if model.summary is None or model.problem is not None or model.path.resolve() == own.resolve():
            continue
        if _shapes(model.summary.config) == shapes:
            by_name.setdefault(model.name, Relative(model.name, model.path, _seed(model.path / CARD)))
    for root in dict.fromkeys([own.parent, *model_roots()]):
        for relative in _files(root / CARDS, config):
            by_name.setdefault(relative.name, relative)
    return tuple(by_name[name] for name in sorted(by_name))


def relative_kernels(relative: Relative, config: ModelConfig) -> Mapping[str, Tensor]:
    """Its kernels by the names of a state dict, float32. Raises CheckpointError listing what is wrong."""
    if relative.path.name.endswith(ENDING):
        return read_kernels(relative.path, config)
    kernels, problems = read_step_kernels(locate(relative.path), config)
    if problems:
        raise CheckpointError(problems, relative.name)
    return kernels


def twin_of(name: str, others: Sequence[str]) -> str | None:
    """The plain twin of `x-mta`, which is `x-transformer`, or the other way round; None if it is gone."""
    ends = {"-mta": "-transformer", "-transformer": "-mta"}
    twins = [name.removesuffix(end) + other for end, other in ends.items() if name.endswith(end)]
    return next((twin for twin in twins if twin in others), None)


def plain_twin(folder: Path) -> Path | None:
    """The plain twin that lies beside a model's folder, by its name; None where there is none."""
    own = run_folder(folder)
    twin = twin_of(own.name, [own.name.removesuffix("-mta") + "-transformer"])
    return own.with_name(twin) if twin and _is_checkpoint(own.with_name(twin)) else None


def _checkpoints_in(folder: Path) -> list[Path]:
    """Those right in the folder: how much lies deeper in it nobody knows."""
    try:
        return [entry for entry in sorted(folder.iterdir()) if _is_checkpoint(entry)]
    except OSError:
        return []


def _is_checkpoint(folder: Path) -> bool:
    try:
        return (folder.is_dir() and find_checkpoint(folder) is not None) or is_loose_adapter(folder)
    except (OSError, CheckpointError):
        return False


def _files(folder: Path, config: ModelConfig) -> Iterator[Relative]:
    for file in sorted(folder.glob(f"*{ENDING}")):
        try:
            read_kernels(file, config)
        except MtaVizError:
            continue
        name = file.name.removesuffix(ENDING)
        yield Relative(name, file, _seed(folder / f"{name}.json"))


def _shapes(config: ModelConfig) -> dict[str, Sequence[int]]:
    return {name: entry.shape for name, entry in kernel_entries(config).items()}


def _seed(card: Path) -> int | None:
    try:
        data = door.read_json(card)
    except FileError:
        return None
    seed = data.get("seed") if isinstance(data, dict) else None
    return seed if type(seed) is int else None


NO_BASE: tuple[Format, ...] = ("adapter", "kernels", "params")
LOOKED_IN = (
    "where it lay then, in the adapter's folder and the folders there, among the models, and in the package "
    f"{PACKAGE}"
)
Progress = Callable[[float], None]


def read_model(
    path: Path | str,
    *,
    base: Path | None = None,
    tokenizer: Path | None = None,
    step: int | None = None,
    progress: Progress | None = None,
    conversion: Conversion | None = None,
) -> Checkpoint:
    """The checkpoint at `path`, an adapter together with its base.

    `base` is where that is; None: it is looked for, and where it is not found the checkpoint holds the
    adapter's own tensors, and its source says which base is missing. The rest is as in `read_checkpoint`.
    Raises CheckpointError also for a `base` that is another model, or is given for what is no adapter.
    """
    location = locate(Path(path), step)
    if location.format != "adapter":
        if base is not None:
            raise CheckpointError(["it is no adapter, so it has no base: leave that out"], printable(path))
        return read_checkpoint(path, tokenizer=tokenizer, step=step, progress=progress, conversion=conversion)
    adapter = open_adapter(adapter_file(location))
    place = find_base(adapter) if base is None else checked_base(adapter, base)
    if place is not None:
        whole = read_checkpoint(place, tokenizer=tokenizer, progress=progress, conversion=conversion)
        return _joined(adapter, location.folder, whole)
    alone = read_checkpoint(location.folder, progress=progress)
    return replace(alone, source=replace(alone.source, missing_base=missing_base(adapter)))


def missing_base(adapter: StoredAdapter) -> str:
    """Which base is missing, and where it was looked for."""
    base = adapter.about.base.text
    return f"it is an adapter of {base}, without which no prompt can be run. Looked for {LOOKED_IN}"


def base_of(source: Source) -> AdapterBase:
    """What an adapter of the model from `source` says of it. Raises CheckpointError as `sha256_as_read`."""
    place = source.path.absolute()
    return AdapterBase(run_folder(place).name, sha256_as_read(source), str(place))


def checked_base(adapter: StoredAdapter, base: Path) -> Path:
    """The folder or file of the base at `base`. Raises CheckpointError for another model, and for none."""
    summary = read_summary(base)
    if summary.format in NO_BASE:
        problem = f"it holds no whole model ({summary.format}); the base is {adapter.about.base.text}"
        raise CheckpointError([problem], printable(base))
    digest = sha256(summary.path)
    if digest != adapter.about.base.sha256:
        problem = f"its weights have sha256 {digest[:12]}...; the base is {adapter.about.base.text}"
        raise CheckpointError([problem], printable(base))
    if problems := _other_settings(summary.config, adapter.config):
        raise CheckpointError(problems, printable(base))
    return summary.path


def find_base(adapter: StoredAdapter, roots: Sequence[Path] | None = None) -> Path | None:
    """Where the adapter's base is, None where no model in the places looked at has its sha256.

    `roots` are folders with models (None: those of `model_roots`). Weights are read for their sha256 only
    where the model's settings are the base's.
    """
    name, places = adapter.about.base.name, set[Path]()
    if noted := adapter.about.base.path:
        for place in (Path(noted), adapter.file.parent / noted):
            with suppress(CheckpointError, OSError, ValueError):
                return checked_base(adapter, place)
    near = [model for folder in _folders_near(adapter.file) for model in _models_in(folder)]
    installed = filter(None, [installed_base()])
    far = find_checkpoints([*(model_roots() if roots is None else roots), *installed]).found
    for model in sorted((*near, *far), key=lambda model: model.path.name != name):
        if model.path not in places and _may_be_base(model, adapter.config):
            places.add(model.path)
            with suppress(CheckpointError):
                return checked_base(adapter, model.path)
    return None


def _folders_near(file: Path) -> tuple[Path, ...]:
    """The adapter's own folder; where it has that alone, the one that this lies in as well."""
    folder = file.absolute().parent
    return (folder, folder.parent) if file.name == ADAPTER else (folder,)


def _models_in(folder: Path) -> tuple[Found, ...]:
    """The folder itself, what is right in it, and what is in its folders."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.name[0] != ".")
    except OSError:
        return ()
    return find_checkpoints([folder, *entries], depth=1).found


def _may_be_base(model: Found, config: ModelConfig) -> bool:
    if model.summary is None or model.problem is not None or model.summary.format in NO_BASE:
        return False
    return not _other_settings(model.summary.config, config)


def _other_settings(own: ModelConfig, wanted: ModelConfig) -> list[str]:
    """Where a model computes with its weights something else than an adapter's base."""
    named = ((field.name, getattr(own, field.name), getattr(wanted, field.name)) for field in fields(own))
    return [
        f"its settings say {name} is {there!r}; the adapter was made for {made_for!r}"
        for name, there, made_for in named
        if there != made_for and name not in ("mta", "n_ctx")
    ]


def _joined(adapter: StoredAdapter, path: Path, base: Checkpoint) -> Checkpoint:
    """The base, a checked one, with the adapter's tensors. CheckpointError where they do not fit together."""
    config = replace(base.config, mta=adapter.about.options)
    shapes, files = parameter_shapes(config), digests.noted([adapter.file])
    problems = [*_lost_options(base.config.mta, config.mta)]
    state = {**base.state_dict, **adapter.read()}
    problems += [f"neither the adapter nor its base has {name}" for name in shapes.keys() - state.keys()]
    problems += [
        f"with the adapter's options the model has no {name}" for name in state.keys() - shapes.keys()
    ]
    if problems:
        raise CheckpointError(sorted(problems), printable(adapter.file))
    source = replace(
        base.source,
        path=path,
        format="adapter",
        n_bytes=base.source.n_bytes + adapter.weights.n_bytes,
        step=None,
        base=base.source.path,
        files=files,
    )
    return replace(base, config=config, state_dict={name: state[name] for name in shapes}, source=source)


def _lost_options(base: MTAOptions, options: MTAOptions) -> Iterator[str]:
    """What an adapter may not change of its base, since the base's own layers were trained with it."""
    for name in ("group_norm", "depth_scale", "gate", "scale_block_norms"):
        own, new = getattr(base, name), getattr(options, name)
        if own != new and (own or name not in ("group_norm", "gate")):
            yield f"its options say {name} is {new!r}; the base has {own!r}"
