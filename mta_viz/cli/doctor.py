"""`doctor [--port N] [--models DIR]`: what this machine has for mta_viz, what is wrong, and what to type."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from mta_viz.cli.output import note
from mta_viz.cli.values import whole

HELP = (
    "torch and its devices, versions, browser, fonts, models, memory, disk, port: what is wrong, what to type"
)


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--port", type=whole(1, 65535), default=8501, metavar="N", help="of the app (default: 8501)")
    about = "a folder with checkpoints (default: the shipped ones and MTA_VIZ_MODELS); may be repeated"
    add("--models", action="append", type=Path, metavar="DIR", help=about)


def run(arguments: Namespace) -> dict[str, Any]:
    """All checks; what is not well goes to stderr too, with what to type."""
    from mta_viz.exporting.doctor import diagnose

    diagnosis = diagnose(arguments.models, arguments.port)
    for check in diagnosis.checks:
        if check.state != "ok":
            note(f"{check.name}: {check.found}. {check.remedy}")
    return {"ok": diagnosis.ok, "checks": diagnosis.table().records()}
