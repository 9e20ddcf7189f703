"""Write the reference half of docs/commands.md from the real parsers, or check that it is current.

    python docs/make_commands.py            rewrite what stands below the marker in docs/commands.md
    python docs/make_commands.py --check    exit with status 1 where the file differs from the parsers

What stands above the marker is written by hand and stays as it is. Owns no command and no flag.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mta_viz.cli import build_parser  # noqa: E402  (the project need not be installed)

PAGE = ROOT / "docs" / "commands.md"
MARKER = "<!-- Below: made by `python docs/make_commands.py`. Do not edit. -->"
WIDTH = 110  # columns, whatever the terminal's width


def reference(parser: argparse.ArgumentParser) -> str:
    """The section of all commands: the list of them, then the help of each, recipes of `train` included."""
    parts = ["## Reference", _block(parser)]
    for command in _commands(parser):
        title = command.prog.removeprefix(parser.prog).strip()
        parts += [f"### {title}", _block(command)]
    return "\n\n".join(parts) + "\n"


def page(text: str, parser: argparse.ArgumentParser) -> str:
    """`text` with everything below the marker made anew. Raises ValueError for a text without the marker."""
    by_hand, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError(f"{PAGE.name} has no line {MARKER}")
    return f"{by_hand}{MARKER}\n\n{reference(parser)}"


def main(argv: list[str] | None = None) -> int:
    """Rewrite the page, or with `--check` compare it; returns the exit status."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--check", action="store_true", help="write nothing; say whether it is current")
    check = arguments.parse_args(argv).check
    before = PAGE.read_text("utf-8")
    after = page(before, build_parser())
    if check and after.split() != before.split():  # Python's versions break the lines of a usage differently
        print("docs/commands.md is not current; run: python docs/make_commands.py", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(after, "utf-8")
    return 0


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command below a parser, each followed by its own; only `_actions` has argparse's actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):  # one that has an older word stands once
                yield command
                yield from _commands(command)


def _block(parser: argparse.ArgumentParser) -> str:
    """A parser's help as a block of text, in lines of one width."""
    parser.formatter_class = _FixedWidth
    return f"```text\n{parser.format_help().rstrip()}\n```"


class _FixedWidth(argparse.HelpFormatter):
    """The usual help, not as wide as the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=WIDTH)


if __name__ == "__main__":
    sys.exit(main())
