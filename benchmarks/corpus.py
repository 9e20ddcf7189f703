"""A corpus like the one that the shipped adapter was trained on, of what Python has on any machine.

`python -m benchmarks.corpus TEXTS` writes grammar.txt, code.py (Python's standard library) and manuals.md
(descriptions of the installed packages, Python's own help). Alike, not the same: that one had 13 books as
well, which are put beside these as .txt files, and manuals of the machine that trained it.
"""

import pydoc_data.topics
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from mta_viz.training.needle_data import grammar_paragraphs, training_paragraphs
from mta_viz.writing import write

SENTENCES, MOST = 18_000, 3_000_000  # of the grammar; characters of the code, and of the manuals


def cut(texts: Iterable[str]) -> bytes:
    """The texts one after the other, the first `MOST` characters of them, without zero bytes."""
    return "\n\n".join(texts)[:MOST].replace("\0", "").encode(errors="replace")


def write_corpus(folder: Path) -> None:
    """The three files; what is in them depends on Python's version and the installed packages alone."""
    folder.mkdir(parents=True, exist_ok=True)
    sentences = training_paragraphs(grammar_paragraphs(SENTENCES))
    write(folder / "grammar.txt", cut(map(" ".join, sentences)))
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    write(folder / "code.py", cut(module.read_text("utf-8", errors="replace") for module in modules))
    packages = sorted(distributions(), key=lambda package: package.name)
    described = [str(package.metadata.get_payload()) for package in packages]
    write(folder / "manuals.md", cut([*pydoc_data.topics.topics.values(), *described]))


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
