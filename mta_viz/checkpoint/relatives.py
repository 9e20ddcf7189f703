"""Other trainings of a model's shape: beside it or among the models, kernels in `cards/`; its twin.

Owns where they are looked for and what makes one comparable; how kernels compare is analysis.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import STEPS
from mta_viz.checkpoint.history import read_kernels, read_step_kernels
from mta_viz.checkpoint.installed import root_path
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.locate import find_checkpoint, is_loose_adapter, locate
from mta_viz.checkpoint.reading import find_checkpoints
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError, MtaVizError
from mta_viz.places import ASSETS

CARDS, ENDING, CARD = "cards", ".kernels.safetensors", "card.json"


@dataclass(frozen=True)
class Relative:
    """A training whose kernels have the sizes and places of a model's; `seed` as its card says, if it does.

    `path`: its folder, or a file of kernels alone.
    """

    name: str
    path: Path
    seed: int | None


def model_roots() -> tuple[Path, ...]:
    """Where models are looked for, each folder once: those shipped, those of MTA_VIZ_MODELS."""
    listed = os.environ.get("MTA_VIZ_MODELS", "").split(os.pathsep)
    shipped = [ASSETS] if ASSETS.is_dir() else []
    named = [root_path(part) for part in listed if part]
    return tuple(dict.fromkeys([*shipped, *named]))


def run_folder(folder: Path) -> Path:
    """The folder that has a checkpoint's name: of RUN/checkpoints/0000001000 it is RUN."""
    folder = folder.absolute()
    if not folder.name.isdecimal():
        return folder
    return folder.parents[1] if folder.parent.name == STEPS else folder.parent


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
