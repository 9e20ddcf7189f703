"""The data files: shipped with the package, and meaning the same texts for ever."""

import hashlib
import itertools
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from mta_viz.tasks.grammar import sentences
from mta_viz.tasks.needles import NAMES
from mta_viz.tasks.stories import TASKS, make_story
from mta_viz.tasks.words import CITIES, made_up_cities

ROOT = Path(__file__).parents[2]


def story_lines() -> Iterable[str]:
    for story in (make_story(task, seed) for task in TASKS for seed in range(50)):
        yield from (*(fact.text for fact in story.facts), story.query.text, story.answer)


@pytest.mark.parametrize(
    ("lines", "digest"),
    [
        (itertools.islice(sentences(0), 5000), "98997e4727f485ec"),
        (CITIES + made_up_cities(20_000), "833d7cbd8ef2fc5f"),
        (story_lines(), "1a3728704791f0be"),
        (NAMES, "a0b4b0ec4b2e4ecd"),
    ],
    ids=["grammar", "cities", "stories", "names"],
)
def test_a_seed_means_the_texts_that_the_shipped_models_were_measured_on(lines, digest):
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == digest


def test_the_package_ships_every_data_file():
    folder = ROOT / "mta_viz" / "tasks"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shipped = project["tool"]["setuptools"]["package-data"]["mta_viz.tasks"]
    files = {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert files and files == {file for pattern in shipped for file in folder.glob(pattern)}
