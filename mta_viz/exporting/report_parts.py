"""What a report is made of: sections as values, what is asked for, and what is done already.

Its words stand in `report.toml`; which numbers they are told with is `report_sections`'.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.io import from_json
from pydantic import TypeAdapter, ValidationError

from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.cause.measuring_effects import Outcome, outcome
from mta_viz.analysis.kernels.table import kernel_table
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import write_results
from mta_viz.exporting.provenance import Provenance, from_text
from mta_viz.exporting.saved import Saved, saved
from mta_viz.figures.base import NamedFigure, Source, drawn
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import embedded
from mta_viz.tables import Table

ENDING = ".part"
Progress = Callable[[float], None]


@cache
def texts() -> dict[str, Any]:
    """All words, by part and name."""
    return tomllib.loads((files(__package__) / "report.toml").read_text(encoding="utf-8"))


def tell(part: str, name: str, /, **values: Any) -> str:
    """A sentence with these values in it."""
    return str(texts()[part][name].format(**values))


@dataclass(frozen=True)
class Titled:
    """A table, and what stands over it."""

    title: str
    table: Table


@dataclass(frozen=True)
class Shown:
    """A figure of the registry as plain text: what stands over it, its plotly JSON, its provenance."""

    title: str
    name: tuple[str, ...]
    picture: str
    caption: str
    csv: str
    origin: str

    @property
    def provenance(self) -> Provenance:
        """As Save writes it."""
        return from_text(self.origin)

    @property
    def saved(self) -> Saved:
        """As Save takes it."""
        figure = go.Figure(from_json(self.picture))
        return Saved(self.name, figure, self.caption, self.csv, self.provenance)


@dataclass(frozen=True)
class Section:
    """A part of a report. `missing`: what could not be made, a line each that says why.

    `short`: its sentence for the summary. `methods`: how its numbers were made, for a paper's appendix.
    """

    name: str
    words: tuple[str, ...] = ()
    figures: tuple[Shown, ...] = ()
    tables: tuple[Titled, ...] = ()
    methods: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    short: str = ""

    @property
    def title(self) -> str:
        """What stands over it."""
        return str(texts()["titles"][self.name])


@dataclass(frozen=True)
class Order:
    """What a report is asked to be of.

    `source`: the model and its run; `no_run` says why there is none. `prompt` says where the prompt is from,
    `answer` is what is to follow it. `batches`: the task's samples, none without a task; `setting`: what a
    sample is. `key` is equal for equal orders; `kept`: what is done, by name. `report` gets the share of the
    section at hand, and may raise Cancelled.
    """

    source: Source
    twin: HookedMTA | Absent
    key: str
    prompt: str
    no_run: str
    answer: str | None
    setting: str
    seed: int
    batches: Sequence[GoldBatch]
    kept: MutableMapping[str, str]
    report: Progress

    def shown(self, title: str, spec: NamedFigure[Any]) -> Shown:
        """A figure of the model or its run."""
        figure = saved(drawn(spec, self.source))
        name, picture = tuple(map(str, figure.name)), str(figure.figure.to_json())
        return Shown(title, name, picture, figure.caption, figure.csv, figure.provenance.text())

    def outcomes(self, model: HookedMTA, name: str, start: float, share: float) -> Outcome:
        """Verdicts on all samples, batch by batch, the `share` of the section from `start` on.

        What is kept under `name` is not run again.
        """
        right, logs = json.loads(self.kept.get(name, "[[], []]"))
        for at, batch in enumerate(self.batches):
            if sum(len(before.answers) for before in self.batches[: at + 1]) > len(right):
                result = outcome(model, [embedded(model, batch.ids)], 0, [batch])
                right, logs = [*right, *result.right], [*logs, *result.log_probability]
                self.kept[name] = json.dumps([right, logs])
            self.report(start + share * (at + 1) / len(self.batches))
        return Outcome(tuple(right), tuple(logs))

    def section(self, name: str, make: Callable[["Order"], Section]) -> Section:
        """As it is kept; else, or where that is damaged, made and kept."""
        at = f"{name}-{self.key}"
        with suppress(KeyError, ValidationError):
            return TypeAdapter(Section).validate_json(self.kept[at])
        section = make(self)
        self.kept[at] = TypeAdapter(Section).dump_json(section).decode()
        return section


def digest_of(*parts: object) -> str:
    """Equal only for equal parts; names what is kept."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def keeping(source: Source, kept: MutableMapping[str, str], key: str) -> Source:
    """The source with each result made once; the kernel table also from one report to the next."""
    results: dict[Any, Any] = {}

    def remember(make: Callable[[], Any], *of: Any) -> Any:
        if of not in results:
            results[of] = rows() if of == ("kernel table",) else make()
        return results[of]

    def rows() -> tuple[Any, ...]:
        if f"table-{key}" not in kept:
            table = kernel_table(source.model.state_dict(), source.model.config)
            kept[f"table-{key}"] = json.dumps(table)
        return tuple(json.loads(kept[f"table-{key}"]))

    return replace(source, remember=remember, remember_with_run=remember, remember_weights=remember)


class KeptParts(dict[str, str]):
    """What is done of a report, by name, each in a file of its own in `folder`, from where it is read again."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        for file in folder.glob(f"*{ENDING}"):
            with suppress(UnicodeDecodeError):
                super().__setitem__(file.stem, door.read_bytes(file, door.RESULTS).decode())

    def __setitem__(self, name: str, text: str) -> None:
        super().__setitem__(name, text)
        self.folder.mkdir(exist_ok=True)
        write_results(self.folder / f"{name}{ENDING}", text)

    def remove(self) -> None:
        """The report is there: nothing is needed any more."""
        for name in self:
            (self.folder / f"{name}{ENDING}").unlink(missing_ok=True)
        with suppress(OSError):  # never made, or it holds what is not ours
            self.folder.rmdir()
