"""Reads the word lists of this room: data files that ship with the package, read once. Owns no words."""

import functools
import tomllib
from importlib import resources


@functools.cache
def word_lists(name: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """The lists of the data file `name`, by table and key, in the file's order."""
    text = resources.files("mta_viz.tasks").joinpath("data", f"{name}.toml").read_text("utf-8")
    return {
        table: {key: tuple(entries) for key, entries in lists.items()}
        for table, lists in tomllib.loads(text).items()
    }
