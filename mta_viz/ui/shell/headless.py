"""A page drawn without a browser, so that a figure can be made again from what its file says of itself.

The page itself is the definition of its figures: this opens it by its address, as a link does, and takes what
it shows. Needs the app's files (`pages/`), which lie beside the package in the project's folder.
"""

import os
from pathlib import Path
from typing import Any

from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.checkpoint.reading import find_checkpoints
from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import Provenance
from mta_viz.exporting.saved import Saved, table
from mta_viz.ui.shell import models
from mta_viz.ui.shell.shown import Range, Shown, Table
from mta_viz.ui.shell.site import ASSETS, PAGES

SECONDS = 600  # the longest a page may take
APP = ASSETS.parent / "app.py"


def make_again(said: Provenance, checkpoint: Path | None = None) -> Saved:
    """The figure a provenance speaks of, from the same weights: `checkpoint`, or a model the app finds.

    Raises MtaVizError when no model with these weights is there, or the page no longer shows the figure.
    """
    folder = _weights(said, checkpoint)
    shown = open_page(said, folder).get(said.figure)
    if shown is None:
        raise MtaVizError(f"the page {said.page} shows no figure {said.figure!r} for this view")
    if isinstance(shown, Table):
        return table(shown.name, shown.csv(), said)
    if (said.queries or said.keys) and shown.cropped is not None:
        shown = shown.cropped(_range(said.queries), _range(said.keys))
    return Saved(shown.name, shown.figure, shown.caption, shown.csv(), said)


def _range(side: list[int] | None) -> Range | None:
    return None if side is None else (side[0], side[1])


def _weights(said: Provenance, checkpoint: Path | None) -> Path:
    """The folder whose weights have the sha256 the figure was made from."""
    if checkpoint is not None:
        found = _digest(said, checkpoint)
        if found != said.sha256:
            raise MtaVizError(
                f"{checkpoint} has other weights than the figure: sha256 {found[:12]}..., not "
                f"{said.sha256[:12]}... Name the checkpoint the figure was made from"
            )
        return checkpoint.absolute()
    for one in find_checkpoints(list(models.roots())).found:
        if one.name == said.checkpoint and one.problem is None and _digest(said, one.path) == said.sha256:
            return one.path
    raise MtaVizError(
        f"no model named {said.checkpoint} with the sha256 {said.sha256[:12]}... is known here; give its "
        "folder, or name the folder it lies in with MTA_VIZ_MODELS"
    )


def _digest(said: Provenance, checkpoint: Path) -> str:
    """Of the weights, for a run folder those of the view's training step."""
    step = said.view.get("step", "")
    return sha256(locate(checkpoint, int(step[:18]) if step.isdecimal() else None).folder)


def open_page(said: Provenance, folder: Path) -> dict[str, Shown | Table]:
    """Everything the page shows when the view's address is opened. Raises MtaVizError for its errors."""
    from streamlit.testing.v1 import AppTest

    script = next((path for path, (title, _) in PAGES.items() if title == said.page), None)
    if script is None or not APP.exists():
        raise MtaVizError(f"this version has no page {said.page!r}, or lacks the app's files beside it")
    os.environ["MTA_VIZ_MODELS"] = str(folder.parent)  # this process draws nothing else
    app = AppTest.from_file(str(APP), default_timeout=SECONDS)
    app.switch_page(script)
    for name, value in (said.view | {"ck": _name(folder)}).items():
        app.query_params[name] = value
    for name, value in {}.items():
        app.session_state[f"kept.{name}"] = value
    app.session_state["kept.waits for all"] = True  # nobody presses a button
    app.run()
    _raise_errors(app)
    there = [name for name in ("shown", "shown tables") if name in app.session_state]
    return {key: one for name in there for key, one in app.session_state[name].items()}


def _name(folder: Path) -> str:
    """How the picker names it: by its path where several models have its name."""
    names = [one.name for one in find_checkpoints(list(models.roots())).found]
    return folder.name if names.count(folder.name) == 1 else str(folder)


def _raise_errors(app: Any) -> None:
    said = [one.value for one in app.error] + [one.message for one in app.exception]
    if said:
        raise MtaVizError(f"the page could not be drawn: {said[0]}")
    name = "kept.refused settings"
    refused = list(app.session_state[name]) if name in app.session_state else []
    if refused:  # the figure would be another
        raise MtaVizError(f"the page does not take the figure's settings: {'; '.join(refused)}")
