"""A paper figure as `paper-figures` writes it: with what makes it again, as the page's own figures have it.

Owns the view of the Kernels page that shows it; drawing is `exporting.paper`'s, writing `paper_figures.py`'s.
"""

from argparse import Namespace
from dataclasses import dataclass, replace

from mta_viz.analysis.attention.kernel_map import KernelBesideMap, Preset
from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.config import DTYPES
from mta_viz.exporting.paper import Result, paper_figure, span_words
from mta_viz.exporting.pictures import limits
from mta_viz.exporting.provenance import Provenance
from mta_viz.exporting.saved import Saved
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.kernels.figures import Width
from mta_viz.ui.shell import link


@dataclass(frozen=True)
class Origin:
    """What all figures of one command share. `name` is the model's, in captions and names of files.

    `checkpoint` is the name of what was opened, the folder of all steps for a step of a run.
    """

    name: str
    checkpoint: str
    sha256: str
    width: Width
    view: dict[str, str]


def origin(model: HookedMTA, arguments: Namespace) -> Origin:
    """Of the model that was opened."""
    location = locate(arguments.path)
    opened = arguments.path if arguments.path.is_dir() else location.folder
    view = {"ck": opened.absolute().name}
    if location.steps:
        view["step"] = str(location.step)
    if arguments.dtype not in (None, DTYPES[0]):
        view["dtype"] = arguments.dtype
    name = (model.source.path if model.source else opened).absolute().name
    return Origin(name, view["ck"], sha256(location.folder), arguments.width, view)


def saved(preset: Preset, result: Result, of: Origin, layers: tuple[int, ...] | None) -> Saved:
    """The figure with all that goes with it; `layers` are those of `--layer`."""
    made = paper_figure(preset, result, of.name, width=of.width)
    view = of.view | made.view(of.width)
    if preset == "head-kernels" and layers is not None:
        view["figure_layers"] = ",".join(map(str, layers))
    said = Provenance(
        "Kernels", "paper", view, of.checkpoint, of.sha256, limits=limits(made.figure), caption=made.caption
    )
    return Saved((of.name, *made.name), made.figure, made.caption, made.csv, _with_prompt(said, result))


def _with_prompt(said: Provenance, result: Result) -> Provenance:
    """A map is also of a prompt, a head, and named tokens of it."""
    if not isinstance(result, KernelBesideMap):
        return said
    tokens, spans = result.tokens, dict.fromkeys((result.keys, result.rows))
    view = {
        "h": str(result.kernel.head),
        "figure_rows": span_words(result.rows),
        "figure_keys": span_words(result.keys),
        **link.place_parameters(None, list(spans)),
    }
    prompt = list(tokens.ids) if tokens.text is None else tokens.text
    return replace(said, view=said.view | view, prompt=prompt, tokens=list(tokens.pieces))
