"""A figure made again from what its file says of itself: its name, its parameters, and the run it is of."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.checkpoint.reading import find_checkpoints
from mta_viz.checkpoint.relatives import model_roots
from mta_viz.config import DTYPES
from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import Provenance, RunOf
from mta_viz.figures import ROOMS, spec
from mta_viz.figures.base import Drawn, NamedFigure, Source, drawn
from mta_viz.model.plans import plan_from_data
from mta_viz.run.tracing import capture, load, operated, tokenize


def make_again(provenance: Provenance, checkpoint: Path | None = None, base: Path | None = None) -> Drawn:
    """The figure a provenance speaks of, from the same weights: `checkpoint`, or a model that is found.

    `base`: of an adapter, where that is not found by itself.
    Raises MtaVizError when no model with these weights is there, or this version has no such figure.
    """
    source = _source(provenance.run, checkpoint, provenance.numbering, base)
    if provenance.beside is not None:
        source = replace(source, beside=_source(provenance.beside, None, provenance.numbering))
    if not provenance.page:
        return drawn(spec(provenance.figure, provenance.parameters), source)
    whole = drawn(*_older_figure(provenance, source))
    if not (provenance.queries or provenance.keys):
        return whole
    return whole.cropped(provenance.queries, provenance.keys)


def _older_figure(provenance: Provenance, source: Source) -> tuple[NamedFigure[Any], Source]:
    """What a file saved before figures had names speaks of: a page's address and a figure's key on it.

    Each room's file of figures has a table `OLDER` from key to the figure the address spoke of, with its
    source where it is another: of two runs.
    """
    makers: dict[str, Any] = {}
    for room in ROOMS:
        makers |= import_module(f"mta_viz.figures.{room}").OLDER
    if provenance.figure not in makers:
        raise MtaVizError(
            f"the page {provenance.page} of an older version showed {provenance.figure!r}, which this "
            "version cannot make again; open its checkpoint in the app"
        )
    try:
        made = makers[provenance.figure](provenance.view, source)
    except MtaVizError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        raise MtaVizError(
            f"the file's view of the page {provenance.page} cannot be read ({error!r}); open its checkpoint "
            "in the app"
        ) from error
    return made if isinstance(made, tuple) else (made, source)


def _source(run: RunOf, checkpoint: Path | None, numbering: int, base: Path | None = None) -> Source:
    """The model, edited as it was, and its run."""
    if run.dtype not in DTYPES:
        raise MtaVizError(f"the figure was computed in {run.dtype!r}; known are {', '.join(DTYPES)}")
    model = load(_weights(run, checkpoint), base=base, dtype=getattr(torch, run.dtype))
    plan = plan_from_data(list(run.interventions))
    if run.prompt is None:
        return Source(operated(model, plan, 0) if plan else model, numbering=numbering)
    tokens = tokenize(model, run.prompt)
    trace = capture(operated(model, plan, len(tokens)) if plan else model, tokens)
    return Source(trace.model, trace, numbering=numbering)


def _weights(run: RunOf, checkpoint: Path | None) -> Path:
    """The folder whose weights have the sha256 the figure was made from."""
    if checkpoint is not None:
        folder = locate(checkpoint, run.step).folder
        digest = sha256(folder)
        if digest != run.sha256:
            raise MtaVizError(
                f"{checkpoint} has other weights than the figure: sha256 {digest[:12]}..., not "
                f"{run.sha256[:12]}... Name the checkpoint the figure was made from"
            )
        return folder
    for model in find_checkpoints(list(model_roots())).found:
        if model.name == run.checkpoint and model.problem is None:
            folder = locate(model.path, run.step).folder
            if sha256(folder) == run.sha256:
                return folder
    raise MtaVizError(
        f"no model named {run.checkpoint} with the sha256 {run.sha256[:12]}... is known here; give its "
        "folder, or name the folder it lies in with MTA_VIZ_MODELS"
    )
