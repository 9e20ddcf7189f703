"""What a command has measured so far, in `OUT.parts` beside the file it will write: it goes on from there.

Of jobs cut into items (`run.jobs.gathered`), each with a name, such as a task's; results by the item's place,
as JSON. The file's first line is a digest of the measurement and the rest: what is of another one, or
damaged, is measured again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from mta_viz.checkpoint import door
from mta_viz.cli.output import going_on_from, note, seldom
from mta_viz.errors import FileError
from mta_viz.version import VERSION
from mta_viz.writing import write

if TYPE_CHECKING:
    from mta_viz.model.transformer import HookedMTA

R = TypeVar("R")
LARGEST = 2**28  # bytes of the file


class Form(NamedTuple, Generic[R]):
    """How a result is written as JSON, and read again, to the last digit."""

    to_data: Callable[[R], Any]
    from_data: Callable[[Any], R]


def form_of(kind: type[R]) -> Form[R]:
    """Of a dataclass, by its annotations."""
    from mta_viz.checkpoint.validate import from_data

    as_data: Callable[[Any], Any] = asdict
    return Form(as_data, lambda data: from_data(kind, data, "A result"))


class Kept(Generic[R]):
    """The results of the jobs of one measurement; without a file for this run alone."""

    def __init__(self, file: Path | None, asked: str, form: Form[R]) -> None:
        self.file, self.asked, self.form = file, asked, form
        self._jobs = {name: _Results(self, rows) for name, rows in self._read().items()}
        self._write_seldom = seldom(lambda job: self.write())

    def of(self, job: str) -> "_Results[R]":
        """By the item's place; what is put there is written before long."""
        return self._jobs.setdefault(job, _Results(self, {}))

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def changed(self) -> None:
        """There is a new result."""
        self._write_seldom(self)

    def write(self) -> None:
        """The file anew, with all there is."""
        if self.file is None or not len(self):
            return
        to_data = self.form.to_data
        jobs = {
            name: [[at, to_data(result)] for at, result in job.items()] for name, job in self._jobs.items()
        }
        text = json.dumps(jobs)
        write(self.file, f"{_digest(self.asked, text)}\n{text}")

    def _read(self) -> dict[str, dict[int, R]]:
        try:
            digest, _, text = door.read_text(self.file, LARGEST).partition("\n") if self.file else ("",) * 3
        except FileError:
            return {}
        jobs = json.loads(text) if digest == _digest(self.asked, text) else {}
        from_data = self.form.from_data
        return {name: {at: from_data(row) for at, row in rows} for name, rows in jobs.items()}


class _Results(dict[int, R]):
    def __init__(self, all: Kept[R], there: dict[int, R]) -> None:
        self._all = all
        super().__init__(there)

    def __setitem__(self, at: int, result: R) -> None:
        super().__setitem__(at, result)
        self._all.changed()


@contextmanager
def kept_beside(
    out: Path | None, form: Form[R], models: "list[HookedMTA]", *asked: object
) -> Iterator[Kept[R]]:
    """The results there are of `asked` of these models; what is measured is kept whatever ends it."""
    from mta_viz.checkpoint.locate import sha256

    if out is None:
        yield Kept(None, "", form)
        return
    weights = [(model.path and sha256(model.path), model.dtype, model.device.type) for model in models]
    kept = Kept(parts_of(out), repr((VERSION, weights, asked)), form)
    if len(kept):
        note(f"{len(kept)} results are in {kept.file} already and stay")
    try:
        with going_on_from(parts_of(out)):
            yield kept
    finally:
        kept.write()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def parts_of(out: Path) -> Path:
    """Where it lies."""
    return out.with_name(f"{out.name}.parts")


def forget_parts(out: Path) -> None:
    """Once `out` is there."""
    with suppress(OSError):
        parts_of(out).unlink()
