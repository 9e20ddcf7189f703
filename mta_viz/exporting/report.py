"""`report`: what is known of a model, section by section, and the one page or PDF it is written as.

The page's template is `report.html`: all text goes through its one filter, which escapes markup and control
characters. Pictures are SVG inside `<img>`, each with its provenance as Save writes it; the file holds those
of all for `figure --from`. Owns too what is asked for where nothing is said: the prompt and the plain twin.
"""

import hashlib
import platform
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from mta_viz.analysis.cause.answers import twin_of_model
from mta_viz.analysis.cause.effects import FILES, Absent, find_effects
from mta_viz.analysis.cause.shapley_file import find_shapley
from mta_viz.analysis.compare.maps import same_vocabulary
from mta_viz.analysis.labs.task_samples import GoldBatch, one_prompt, task_batches
from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.exporting import report_sections as sections
from mta_viz.exporting.pictures import find_browser
from mta_viz.exporting.provenance import embed, many_text
from mta_viz.exporting.report_sections import Order, Section, Shown, keeping, tell
from mta_viz.exporting.saved import Choices, file_name, picture
from mta_viz.figures.base import Source
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import printable
from mta_viz.run.files import weights_digest
from mta_viz.run.named_tasks import task_name
from mta_viz.run.tracing import Progress, Prompt, capture, check_runs, ignore, load, tokenize
from mta_viz.tokenizers.builtin import CharTokenizer
from mta_viz.version import VERSION
from mta_viz.writing import check_new, write

SAMPLES = 60  # of a task, for model and twin each
SUFFIXES, IN_PAGE = (".html", ".pdf"), "data:image/svg+xml;base64,"
PRINT_SECONDS, MOST = 180, 10**7  # the latter: characters of one text
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
SECTIONS = ("task", "story", "matters", "together", "kernels", "model")


@dataclass(frozen=True)
class Report:
    """What is known of a model. `made`: with which versions, in what, and when."""

    name: str
    made: str
    sections: tuple[Section, ...] = field(repr=False)

    @property
    def figures(self) -> tuple[Shown, ...]:
        """Of all sections, in their order."""
        return tuple(shown for section in self.sections for shown in section.figures)

    @property
    def methods(self) -> tuple[str, ...]:
        """How all numbers were made, a paragraph each."""
        first = tell("methods", "made", made=self.made)
        return (first, *(words for section in self.sections for words in section.methods))

    def html(self, progress: Progress = ignore) -> bytes:
        """The page. Where no browser draws pictures, it says so in their places."""
        from jinja2 import Environment, StrictUndefined

        pictures = []
        for at, shown in enumerate(self.figures, start=1):
            pictures.append(_picture(shown))
            progress(at / len(self.figures))
        rules: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True}
        made = Environment(finalize=lambda value: printable(value, MOST), **rules)
        template = made.from_string((files(__package__) / "report.html").read_text(encoding="utf-8"))
        page = template.render(report=self, pictures=pictures, file=self._file("html"))
        return embed(page.encode(), "html", self._origin("html"))

    def pdf(self, progress: Progress = ignore, *, page: bytes | None = None) -> bytes:
        """The same on A4, of the `page` that is there. Raises MtaVizError where no browser prints it."""
        program = find_browser("pdf")
        content = _printed(program, self.html(progress) if page is None else page)
        return embed(content, "pdf", self._origin("pdf"))

    def _file(self, suffix: str) -> str:
        return file_name(self.name, "report", suffix=suffix)

    def _origin(self, suffix: str) -> str:
        return many_text([shown.provenance for shown in self.figures], self._file(suffix))

    def save(self, path: Path | str, *, force: bool = False, progress: Progress = ignore) -> Path:
        """Write .html or .pdf. Raises MtaVizError for another suffix, and for a file that is there."""
        path = checked_path(Path(path))
        check_new(path, force)
        content = self.pdf(progress) if path.suffix.lower() == ".pdf" else self.html(progress)
        write(path, content)
        return path


def _picture(shown: Shown) -> str:
    """The address that holds the figure; where it cannot be drawn, why."""
    try:
        return f"{IN_PAGE}{b64encode(picture(shown.saved, 'svg', Choices())).decode()}"
    except MtaVizError as error:
        return str(error)


def checked_path(path: Path) -> Path:
    """The path. Raises MtaVizError for one that ends with neither .html nor .pdf."""
    if path.suffix.lower() not in SUFFIXES:
        raise MtaVizError(f"{path} ends with none of {', '.join(SUFFIXES)}: which is the report to be?")
    return path


def _printed(program: str, page: bytes) -> bytes:
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "report.html", Path(folder) / "report.pdf"
        source.write_bytes(page)
        place = (f"--user-data-dir={folder}/profile", "--no-pdf-header-footer", f"--print-to-pdf={target}")
        try:
            command = [program, *QUIET, *place, source.as_uri()]
            subprocess.run(command, capture_output=True, timeout=PRINT_SECONDS, check=True)
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise MtaVizError(f"the browser could not print the report: {error}; save it as .html") from error


def report(
    model: HookedMTA | Path | str,
    prompt: Prompt | None = None,
    task: str | None = None,
    *,
    answer: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    numbering: int = 0,
    kept: MutableMapping[Any, Any] | None = None,
    begin: Callable[[str], None] = ignore,
    progress: Progress = ignore,
) -> Report:
    """All that is known of a model, or of the checkpoint at a path; `.save` writes it, .html or .pdf.

    `prompt`: None for a sample of the task, or of the one that fits. `task`: needle, pairs, blocks or a
    file of prompts (*.jsonl); `samples` (60) of it from `seed` on are answered by the model and by the
    plain twin beside it. `kept` gets what is done by and by; what it holds of the same model and settings is
    not made again. `begin(what comes)`, then `progress(share of it)`; raise in either to stop. What cannot be
    made its section says. Raises MtaVizError for a checkpoint, prompt or task that cannot be used.

    >>> report(model, "hjnvt.qdgzf.aoxsb#gd").sections[-1].title
    'The model'
    """
    model = model if isinstance(model, HookedMTA) else load(model)
    begin("Reading")
    setting, batches, kept = "", list[GoldBatch](), {} if kept is None else kept
    if task is not None:
        check_runs(model)
        setting, batches = task_batches(model, task, samples, seed, usual=SAMPLES)
    tokens, words, own, problem = _prompt(model, prompt, task, seed)
    twin, weights = _twin(model), (VERSION, _digest(model), model.plan, model.dtype, numbering)
    measured = [find_effects(model.path, edit) for edit in FILES], find_shapley(model.path)
    asked = tokens and tokens.ids, answer or own, task, setting, [batch.answers for batch in batches], seed
    key = _hash(weights, asked, measured, twin if isinstance(twin, Absent) else _digest(twin))
    run = None if tokens is None else capture(model, tokens, progress=progress)
    source = keeping(Source(model, run, numbering=numbering, progress=progress), kept, _hash(weights))
    order = Order(source, twin, key, words, problem, answer or own, setting, seed, batches, kept)
    return Report(source.name, _made(model), tuple(_sections(order, begin)))


def _sections(order: Order, begin: Callable[[str], None]) -> Iterator[Section]:
    for at, name in enumerate(SECTIONS, start=1):
        begin(f"{tell('titles', name)} ({at} of {len(SECTIONS)})")
        try:
            yield order.section(name, getattr(sections, f"{name}_section"))
        except Cancelled:
            raise
        except MtaVizError as error:
            yield Section(name, missing=(str(error),))


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def usual_task(model: HookedMTA) -> str:
    """The task whose words the model reads."""
    return "blocks" if isinstance(model.tokenizer, CharTokenizer) else "needle"


def _prompt(model: HookedMTA, prompt: Prompt | None, task: str | None, seed: int) -> Any:
    """The prompt's tokens, where it is from, its answer where the task knows it; or why there is none."""
    if prompt is not None:
        return tokenize(model, prompt), tell("prompts", "given"), None, ""
    task = task or usual_task(model)
    try:
        drawn = one_prompt(model, task, seed)
    except MtaVizError as error:
        return None, "", None, str(error)
    kind, about = ("task", task_name(task)) if drawn.setting else (task, task)
    words = tell("prompts", kind, task=about, setting=drawn.setting, number=drawn.number, seed=seed)
    return drawn.tokens, words, drawn.answer, ""


def _twin(model: HookedMTA) -> HookedMTA | Absent:
    """The plain twin, where it reads the same tokens."""
    twin = twin_of_model(model)
    if isinstance(twin, Absent) or same_vocabulary(twin, model):
        return twin
    return Absent("The plain twin has another vocabulary.")


def _digest(model: HookedMTA) -> str:
    return "" if model.source is None else weights_digest(model)


def _made(model: HookedMTA) -> str:
    """Versions, where and in what it was computed, and when."""
    computed = f"computed in {str(model.dtype).removeprefix('torch.')} on {model.device.type}"
    versions = f"mta_viz {VERSION}, torch {torch.__version__}, Python {platform.python_version()}"
    return f"{versions}; {computed}; {datetime.now(UTC):%Y-%m-%d}"
