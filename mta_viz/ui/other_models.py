"""Other models to run beside the page's: on the same device, in the same precision."""

import dataclasses
from pathlib import Path

from mta_viz.checkpoint.discovery import Found
from mta_viz.ui import cache, registry, state
from mta_viz.ui.cache import ModelKey


def beside(own: ModelKey, path: str, step: int | None = None) -> ModelKey:
    """The model at `path`, of a run folder its `step`, to be run as `own` is."""
    return dataclasses.replace(
        own,
        path=path,
        changed=cache.changed(Path(path), step),
        tokenizer=state.get(f"tokenizer.{path}"),
        step=step,
    )


def twin_of(own: ModelKey) -> tuple[str, ModelKey] | None:
    """The name and key of the model beside `own` in its folder that is named as its twin, if it can run."""
    folder = Path(own.path).parent
    found = cache.discovery(tuple(map(str, registry.roots()))).found
    there = {one.path.name: one for one in found if one.path.parent == folder and can_run(one)}
    name = registry.twin_of(Path(own.path).name, list(there))
    return None if name is None else (there[name].name, beside(own, str(there[name].path)))


def can_run(one: Found) -> bool:
    """Whether it has weights for a prompt; kernels alone, or a params.json alone, have not."""
    return one.problem is None and one.summary is not None and one.summary.format not in ("kernels", "params")
