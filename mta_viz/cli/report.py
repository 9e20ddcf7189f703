"""`report PATH... [--prompt TEXT] [--task TASK] --out FILE`: all that is known of a model, in one file.

Of several checkpoints a file each in a folder; they are independent, so they can be made on Ray, where every
machine must see the checkpoints at the same paths.
"""

import shutil
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint import door
from mta_viz.cli import flags, values
from mta_viz.cli.kept import parts_of
from mta_viz.cli.output import ProgressLine, check_output, going_on_from, note
from mta_viz.errors import FileError, MtaVizError
from mta_viz.writing import refusals, write

if TYPE_CHECKING:
    import torch

HELP = "a model, its kernels and what they do, as one page or PDF with methods and provenance"
SUFFIX = ".html"  # of several


def add_flags(parser: ArgumentParser) -> None:
    about = f"{flags.PATH}; several give a report each"
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help=about)
    flags.add_base(parser)
    flags.add_running(parser)
    flags.add_on(parser)
    prompts = parser.add_mutually_exclusive_group()
    about = "the example (default: a sample of the task, or of the one that fits)"
    prompts.add_argument("--prompt", metavar="TEXT", help=about)
    prompts.add_argument("--tokens", type=Path, metavar="FILE", help="or a JSON list of token ids")
    flags.add_answer(parser)
    flags.add_task(parser, "blocks", about="also the accuracy at a task, beside the plain twin's")
    parser.add_argument("--samples", type=values.positive, metavar="N", help="of the task (default 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the samples (default 0)")
    about = "report.html or .pdf, of several a folder; after Ctrl-C the same command goes on"
    flags.add_file(parser, "--out", about, required=True)
    parser.set_defaults(out_is=None)  # a folder or a file: checked here


class _Parts(dict[str, str]):
    """What is done of a report, by name: each a file of the folder as well, complete or not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__({file.stem: door.read_text(file) for file in folder.glob("[!.]*.json")})

    def __setitem__(self, name: str, text: str) -> None:
        with suppress(OSError, FileError):  # what cannot be kept is made again after Ctrl-C, no more
            self.folder.mkdir(exist_ok=True)
            write(self.folder / f"{name}.json", text)
        super().__setitem__(name, text)


def run(arguments: Namespace) -> dict[str, Any]:
    """Make every report, here one after the other; of several, those that are there already stay."""
    from mta_viz.exporting.pictures import find_browser
    from mta_viz.exporting.report import checked_path

    one, out = len(arguments.paths) == 1, arguments.out
    files = {arguments.paths[0]: checked_path(out)} if one else _files(arguments)
    if any(file.suffix.lower() == ".pdf" for file in files.values()):
        find_browser("pdf")
    stays = not one and not arguments.force
    there = {path: file for path, file in files.items() if stays and file.exists()}
    if there:
        note(f"{len(there)} reports are in {out} already and stay; --force makes them again")
    missing = [(path, file) for path, file in files.items() if path not in there]
    for _, file in missing:
        check_output(file, force=arguments.force)
    made = _on_workers(arguments, missing) if arguments.on else _here(arguments, missing)
    reports = [{"path": str(path), **facts} for (path, _), facts in zip(missing, made, strict=True)]
    return reports[0] if one else {"out": str(out), "there_before": list(map(str, there)), "reports": reports}


def _files(arguments: Namespace) -> dict[Path, Path]:
    """A file of each checkpoint's name in the folder. Raises MtaVizError where two have one name."""
    names = Counter(path.absolute().name for path in arguments.paths)
    if doubled := [name for name, times in names.items() if times > 1]:
        raise MtaVizError(f"{', '.join(doubled)} is the name of several checkpoints; make them one by one")
    with refusals(arguments.out):
        arguments.out.mkdir(exist_ok=True)
    return {path: arguments.out / f"{path.absolute().name}{SUFFIX}" for path in arguments.paths}


def _here(arguments: Namespace, missing: Sequence[tuple[Path, Path]]) -> Iterator[dict[str, Any]]:
    """What is made of each; a report's parts lie beside it until it is there."""
    for path, file in missing:
        parts = parts_of(file)
        with going_on_from(parts), ProgressLine("") as line:
            content, facts = _made(arguments, path, file, _Parts(parts), line.begin, line)
            write(file, content)
        shutil.rmtree(parts, ignore_errors=True)
        yield facts


def _on_workers(arguments: Namespace, missing: Sequence[tuple[Path, Path]]) -> list[dict[str, Any]]:
    """The same, each written when a worker has made it."""
    from mta_viz.run.jobs import spread

    made = dict[int, dict[str, Any]]()
    with going_on_from(arguments.out), ProgressLine("reports") as progress:
        for at, (content, facts) in spread(_Making(arguments), missing, arguments.on):
            write(missing[at][1], content)
            made[at] = facts
            progress(len(made) / len(missing))
    return [made[at] for at in range(len(missing))]


@dataclass
class _Making:
    """What a worker does with a checkpoint's path and its report's: the file's content, and what is in it."""

    arguments: Namespace

    @property
    def device(self) -> "torch.device":
        from mta_viz.run.placing import first_device

        return first_device(self.arguments.device)

    def to(self, device: str, /) -> None:
        self.arguments = Namespace(**vars(self.arguments) | {"device": device})

    def __call__(self, item: tuple[Path, Path], /) -> tuple[bytes, dict[str, Any]]:
        return _made(self.arguments, *item, {})


def _made(
    arguments: Namespace,
    path: Path,
    file: Path,
    kept: MutableMapping[str, str],
    begin: Callable[[str], None] = lambda words: None,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[bytes, dict[str, Any]]:
    """The content of one report's file, and what the command says of it."""
    from mta_viz.exporting.report import report

    model, prompt = flags.open_model(arguments, path, kernels_do=True), None
    if arguments.prompt is not None or arguments.tokens:
        prompt = flags.encode(model, flags.prompt_of(arguments))
    settings: dict[str, Any] = {name: vars(arguments)[name] for name in ("task", "answer", "samples", "seed")}
    made = report(model, prompt, **settings, kept=kept, begin=begin, progress=progress)
    begin("Drawing")
    content = made.pdf(progress) if file.suffix.lower() == ".pdf" else made.html(progress)
    sections = [
        {"title": at.title, "figures": len(at.figures), "not_made": at.missing} for at in made.sections
    ]
    facts = {"out": str(file), "bytes": len(content), "figures": len(made.figures), "sections": sections}
    return content, facts
