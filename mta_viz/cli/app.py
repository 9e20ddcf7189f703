"""`app [--port N] [--models DIR]`: starts the app, from anywhere; it ends with Ctrl-C."""

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.values import whole
from mta_viz.errors import MtaVizError
from mta_viz.version import APP

HELP = "start the app in this terminal; its address is printed"
DEFAULT_PORT = 8501  # Streamlit's


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    about = f"to listen on (default: {DEFAULT_PORT}, or the next one that is free)"
    add("--port", type=whole(1, 65535), metavar="N", help=about)
    about = "the network address to listen on (default: 127.0.0.1, this machine only)"
    add("--address", metavar="A", help=about)
    about = "a folder with checkpoints, or one itself; may be repeated"
    add("--models", action="append", default=[], metavar="DIR", help=about)


def run(arguments: Namespace) -> dict[str, Any]:
    """Becomes Streamlit's process. Raises MtaVizError where a folder, the port or the app is not there."""
    command = command_of(arguments)
    sys.stdout.flush()
    if os.name == "nt":  # Windows has no exec that keeps the terminal
        import subprocess

        return {"status": subprocess.run(command, check=False).returncode}
    os.execv(command[0], command)


def command_of(arguments: Namespace) -> list[str]:
    """What is run. Raises as `run`."""
    from mta_viz.checkpoint.hub import root_path

    if not APP.is_file():
        raise MtaVizError(f"the app is not at {APP}; install mta-viz again, or start in the project's folder")
    for folder in arguments.models:
        if not root_path(folder).exists():
            raise MtaVizError(f"--models {folder} is not there; name a folder with checkpoints")
    flags = [f"--server.{name}={value}" for name, value in _server(arguments).items()]
    models = [word for folder in arguments.models for word in ("--models", folder)]
    script = str(APP.with_name("serve.py"))  # no other site may frame it, wherever it listens
    return [sys.executable, "-m", "streamlit", "run", script, *flags, "--", *models]


def _server(arguments: Namespace) -> dict[str, Any]:
    given = {"port": arguments.port, "address": arguments.address}
    if arguments.port is not None:
        from mta_viz.exporting.doctor import port_problem

        if problem := port_problem(arguments.port, arguments.address or "127.0.0.1"):
            raise MtaVizError(f"{problem}; choose another with --port")
    return {name: value for name, value in given.items() if value is not None}
