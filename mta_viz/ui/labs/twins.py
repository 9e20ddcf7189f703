"""Other models for a lab to run beside the page's: on the same device, in the same precision."""

import dataclasses
from pathlib import Path

from mta_viz.checkpoint.discovery import Found
from mta_viz.ui import cache, registry, state
from mta_viz.ui.cache import ModelKey

_ENDS = {"-mta": "-transformer", "-transformer": "-mta"}  # a shipped model and its plain twin


def twin_name(name: str) -> str | None:
    """`blocks-n5-transformer` of `blocks-n5-mta`, and the other way round; None for other names."""
    return next((name.removesuffix(end) + other for end, other in _ENDS.items() if name.endswith(end)), None)


def beside(own: ModelKey, path: str) -> ModelKey:
    """The model at `path`, to be run as `own` is."""
    return dataclasses.replace(
        own,
        path=path,
        changed=cache.changed(Path(path)),
        tokenizer=state.get(f"tokenizer.{path}"),
        step=None,
    )


def twin_of(own: ModelKey) -> tuple[str, ModelKey] | None:
    """The name and key of the model beside `own` in its folder that is named as its twin, if it can run."""
    name, folder = twin_name(Path(own.path).name), Path(own.path).parent
    for one in cache.discovery(tuple(map(str, registry.roots()))).found:
        if one.path.name == name and one.path.parent == folder and can_run(one):
            return one.name, beside(own, str(one.path))
    return None


def can_run(one: Found) -> bool:
    """Whether it has weights for a prompt; kernels alone, or a params.json alone, have not."""
    return one.problem is None and one.summary is not None and one.summary.format not in ("kernels", "params")
