"""`report PATH [--prompt TEXT] [--task TASK] --out FILE`: all that is known of a model, in one file."""

import shutil
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.cli import flags
from mta_viz.cli.output import ProgressLine, going_on_from
from mta_viz.errors import FileError
from mta_viz.writing import write

HELP = "a model, its kernels and what they do, as one page or PDF with methods and provenance"


def add_flags(parser: ArgumentParser) -> None:
    """A model, a prompt, a task, and the file."""
    flags.add_model(parser)
    prompts = parser.add_mutually_exclusive_group()
    about = "the example (default: a sample of the task, or of the one that fits)"
    prompts.add_argument("--prompt", metavar="TEXT", help=about)
    prompts.add_argument("--tokens", type=Path, metavar="FILE", help="or a JSON list of token ids")
    flags.add_answer(parser)
    flags.add_task(parser, "blocks", about="also the accuracy at a task, beside the plain twin's")
    parser.add_argument("--samples", type=flags.positive, metavar="N", help="of the task (default 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the samples (default 0)")
    about = "report.html or report.pdf; after Ctrl-C the same command goes on"
    flags.add_file(parser, "--out", about, required=True)


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
    """Make every section, then write the file; what is done is kept beside it until then."""
    from mta_viz.exporting.pictures import find_browser
    from mta_viz.exporting.report import checked_path, report

    out = checked_path(arguments.out)
    if out.suffix.lower() == ".pdf":
        find_browser("pdf")
    model, prompt = flags.open_model(arguments, kernels_do=True), None
    if arguments.prompt is not None or arguments.tokens:
        prompt = flags.encode(model, flags.prompt_of(arguments))
    settings: dict[str, Any] = {name: vars(arguments)[name] for name in ("task", "answer", "samples", "seed")}
    parts = out.with_name(f"{out.name}.parts")
    with (
        going_on_from(parts),
        ProgressLine("") as line,
    ):
        made = report(model, prompt, **settings, kept=_Parts(parts), begin=line.begin, progress=line)
        line.begin("Drawing")
        made.save(out, force=True, progress=line)
    shutil.rmtree(parts, ignore_errors=True)
    sections = [
        {"title": at.title, "figures": len(at.figures), "not_made": at.missing} for at in made.sections
    ]
    return {"out": str(out), "bytes": out.stat().st_size, "figures": len(made.figures), "sections": sections}
