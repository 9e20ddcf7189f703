"""Flags that several commands share, and what a flag's text may say. Imports nothing heavy."""

import argparse
from pathlib import Path

from mta_viz.config import DTYPES

Commands = argparse._SubParsersAction


def add_model(command: argparse.ArgumentParser, dtype: str | None = None) -> None:
    """PATH, and where and how to run it."""
    command.add_argument("path", type=Path, metavar="PATH", help="a checkpoint folder")
    add_running(command, dtype)


def add_running(command: argparse.ArgumentParser, dtype: str | None = None) -> None:
    """`--device`, `--dtype`, `--tokenizer`."""
    command.add_argument("--device", default="cpu", metavar="D", help="cpu (default), cuda, cuda:1 ...")
    own = dtype or "the file's own"
    command.add_argument("--dtype", choices=DTYPES, default=dtype, help=f"to compute in (default: {own})")
    command.add_argument("--tokenizer", type=Path, metavar="FILE", help="the tokenizer's file")


def add_prompt(command: argparse.ArgumentParser) -> None:
    """`--prompt TEXT` or `--tokens FILE`, one of them."""
    prompt = command.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="a text, encoded by the checkpoint's tokenizer")
    prompt.add_argument(
        "--tokens", type=Path, metavar="FILE", help="a JSON list of token ids, taken as it is"
    )


def add_output(command: argparse.ArgumentParser) -> None:
    """`--out FILE` and `--force`."""
    command.add_argument("--out", type=Path, metavar="FILE", help="write the answer to a file as well")
    command.add_argument("--force", action="store_true", help="overwrite an existing file")


def add_answer(command: argparse.ArgumentParser) -> None:
    """`--answer TEXT`, the answer whose probability is measured."""
    command.add_argument(
        "--answer", metavar="TEXT", help="default: the number asked for, or the likeliest token"
    )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def number_list(text: str) -> tuple[int, ...]:
    """`2,4` -> (2, 4)."""
    return tuple(positive(part.strip()) for part in text.split(","))


def depth_list(text: str) -> tuple[float | int, ...]:
    """`0,12.5` -> (0, 12.5)."""
    try:
        depths = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of depths such as 0,50,100") from None
    return tuple(int(depth) if depth.is_integer() else depth for depth in depths)


def span_list(text: str) -> tuple[tuple[int, ...], ...]:
    """`3:8,20:25` -> the positions 3 to 7, and 20 to 24."""
    found = []
    for part in text.split(","):
        start, _, stop = part.strip().partition(":")
        if not (start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
            raise argparse.ArgumentTypeError(f"{part!r} is no span; write 3:8 for the positions 3 to 7")
        found.append(tuple(range(int(start), int(stop))))
    return tuple(found)


def layer_list(text: str) -> tuple[int, ...]:
    """`0,3` -> (0, 3)."""
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of layers such as 0,3")
    return tuple(sorted({int(part) for part in text.split(",")}))


def layer_and_head(text: str) -> tuple[int, int]:
    """`5,7` -> (5, 7)."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a layer and a head such as 5,7")
    return int(parts[0]), int(parts[1])


def name_list(text: str) -> tuple[str, ...] | None:
    """`hook_z,hook_pattern` -> both names; `all` -> None."""
    names = tuple(part.strip() for part in text.split(","))
    return None if names == ("all",) else names
