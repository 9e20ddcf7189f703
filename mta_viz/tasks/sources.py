"""What the generators draw from: random streams named by words and numbers, and words in data files."""

import functools
import hashlib
import tomllib
from importlib import resources


def stream_seed(stream: str, *numbers: int) -> int:
    """A 63-bit seed of (`stream`, *numbers): equal on every machine, unrelated between streams."""
    text = "/".join([stream, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@functools.cache
def word_lists(name: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """The lists of the data file `name`, by table and key, in the file's order."""
    text = resources.files("mta_viz.tasks").joinpath("data", f"{name}.toml").read_text("utf-8")
    return {
        table: {key: tuple(entries) for key, entries in lists.items()}
        for table, lists in tomllib.loads(text).items()
    }
