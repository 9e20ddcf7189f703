"""The run this session opened from a file, in the place of the same run computed here.

Kept in the session alone: what a file holds must not reach other visitors' pages, nor what is drawn of it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mta_viz.errors import TokenizerError
from mta_viz.model.transformer import HookedMTA
from mta_viz.traces.files import SavedRun, read_run
from mta_viz.traces.stored import StoredTrace
from mta_viz.ui import state
from mta_viz.ui.cache import ModelKey, RunKey
from mta_viz.ui.uploads import keep_upload

FILE, SHOWN = "opened file", "opened run"


@dataclass(frozen=True)
class OpenedRun:
    """A run that takes the place of a computed one. `key` is equal only for equal files and runs."""

    name: str
    run: RunKey
    trace: StoredTrace
    key: str


def read_upload(name: str, content: bytes) -> SavedRun:
    """The uploaded file, read once for a session. Raises MtaVizError saying why it cannot be opened."""
    path = keep_upload(name, content)
    kept: tuple[Path, SavedRun] | None = state.get(FILE)
    if kept is None or kept[0] != path:
        kept = (path, read_run(path))
        state.put(FILE, kept)
    return kept[1]


def prompt_of(run: SavedRun, model: HookedMTA) -> str | tuple[int, ...] | None:
    """What gives the run's tokens when it is typed into the page's box; None where nothing does."""
    tokens = run.tokens
    if model.tokenizer is None:
        return tokens.ids
    if tokens.text is None:
        return None
    try:
        return tokens.text if model.tokenizer.encode(tokens.text).ids == tokens.ids else None
    except TokenizerError:  # another tokenizer file was chosen for these weights
        return None


def show(
    name: str, run: SavedRun, trace: StoredTrace, model: ModelKey, prompt: str | tuple[int, ...]
) -> None:
    """From now on this is what the page shows when it is to show this prompt through this model."""
    key = RunKey(model, prompt)
    maps = hashlib.sha256(run.about.to_text().encode())
    maps.update(run.residuals.numpy().data)
    for one in run.maps.values():
        maps.update(one.numpy().data)
    state.put(SHOWN, OpenedRun(name, key, trace, f"{key.text}.{maps.hexdigest()[:16]}"))


def find(wanted: RunKey | ModelKey | None) -> OpenedRun | None:
    """The opened run, if it is the one that is wanted."""
    opened: OpenedRun | None = state.get(SHOWN)
    return opened if opened is not None and opened.run == wanted else None


def forget() -> None:
    """Compute runs here again."""
    state.put(SHOWN, None)
