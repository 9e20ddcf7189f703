"""What a notebook calls: few names, each with an example that runs, and results that print in a few lines."""

import doctest
import inspect
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import mta_viz
from mta_viz.interventions.kinds import KernelToIdentity
from mta_viz.model.editing import edited
from mta_viz.model.stages import Stage
from mta_viz.printed import html_table, text_lines
from mta_viz.tokenizers.base import Tokens
from mta_viz.tracing import Trace

ROOT = Path(__file__).parents[1]
PROMPT = "hjnvt.qdgzf.aoxsb#gd"
FUNCTIONS = [name for name in mta_viz.__all__ if name not in ("__version__", "Stage")]
MOST_NAMES = 20


@pytest.fixture(scope="module")
def trace() -> Trace:
    return mta_viz.capture(mta_viz.load(ROOT / "assets" / "blocks-n5-mta"), PROMPT)


def test_the_names_are_few_and_lead_somewhere():
    assert len(mta_viz.__all__) <= MOST_NAMES and sorted(mta_viz.__all__) == list(mta_viz.__all__)
    assert set(mta_viz.__all__) == {*mta_viz._HOME, "__version__"}
    assert all(getattr(mta_viz, name) is not None for name in mta_viz.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_every_function_runs(name, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    function = getattr(mta_viz, name)
    text = inspect.getdoc(function)
    assert "Raises" in text or name == "kernels"
    names = {"mta_viz": mta_viz, "model": trace.model, "trace": trace, "folder": tmp_path}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert test.examples, f"mta_viz.{name} shows no example"
    runner = doctest.DocTestRunner()
    said: list[str] = []
    assert runner.run(test, out=said.append).failed == 0, "".join(said)
