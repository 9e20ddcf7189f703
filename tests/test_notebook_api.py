"""What a notebook calls: few names, each with an example that runs, and results that print in a few lines."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import mta_viz
from mta_viz.model.editing import edited
from mta_viz.model.interventions import KernelToIdentity
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace
from mta_viz.tables import html_table, text_lines
from mta_viz.tokenizers.base import Tokens

ROOT = Path(__file__).parents[1]
PROMPT = "hjnvt.qdgzf.aoxsb#gd"
FUNCTIONS = [name for name in mta_viz.__all__ if name not in ("__version__", "Stage")]
MOST_NAMES = 30  # an older word among them


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


@pytest.fixture(scope="module")
def results(trace):
    """Each kind of result, and the most lines it may print."""
    head = (trace, 3, Stage.KQ, 1)
    other = edited(trace.model, [KernelToIdentity(2, 0, "pre")])
    return {
        "trace": (
            trace,
            f"Trace of 21 tokens through blocks-n5-mta (4 layers x 2 heads, computed in float32): '{PROMPT}'",
        ),
        "edited": (
            mta_viz.capture(other, PROMPT),
            "(4 layers x 2 heads, computed in float32, 1 interventions)",
        ),
        "tokens": (mta_viz.top_tokens(trace, -1, 3), "The 3 most probable next tokens"),
        "scores": (mta_viz.head_scores(trace), "scores of 4 layers x 2 heads"),
        "ranking": (mta_viz.ranking(mta_viz.head_scores(trace), "sink"), "8 heads by sink share (share)"),
        "convolved": (mta_viz.decompose(*head, 20, 8), "sum of 18 products"),
        "softmaxed": (mta_viz.decompose(trace, 3, Stage.SOFTMAX, 1, 20, 8), "= exp("),
        "scored": (mta_viz.decompose(trace, 3, Stage.RAW, 1, 20, 8), "x cosine"),
        "passed": (mta_viz.decompose(trace, 3, Stage.PATTERN, 1, 20, 8), "L3 H1 final weights"),
        "ablation": (
            mta_viz.ablate(trace.model, PROMPT, [KernelToIdentity(2, 0, "pre")]),
            "L2 H0 pre -> identity: log p('qdgzf')",
        ),
        "story": (mta_viz.story(trace.model, PROMPT), "L2 H0's kernel before the softmax (no named shape): "),
        "attribution": (
            mta_viz.attribute(trace.model, PROMPT, method="ablation", groups=[[8, 9], [11]]),
            "log p('qdgzf') = ",
        ),
    }


KINDS = (
    *("trace", "edited", "tokens", "scores", "ranking", "ablation", "attribution", "story"),
    *("convolved", "softmaxed", "scored", "passed"),
)


@pytest.mark.parametrize("name", KINDS)
def test_results_print_in_a_few_lines(results, name):
    result, words = results[name]
    lines = repr(result).splitlines()
    assert words in lines[0]
    assert len(lines) <= 13 and max(map(len, lines)) <= 160
    html = result._repr_html_()
    assert html.startswith("<div>") and html.count("<tr>") <= 11
    assert re.sub(r"<.*?>", "", html) != ""


def test_what_is_printed_is_escaped_and_on_one_line(trace):
    tokens = Tokens((0,), ("<b>",), ((0, 200),), "<script>\n" + "x" * 200)
    odd = Trace(tokens, trace.residuals[:, :1], trace.model)
    assert "\n" not in repr(odd) and "... " in repr(odd)
    assert "<script>" not in odd._repr_html_() and "&lt;script&gt;" in odd._repr_html_()
    assert "<td>&lt;b&gt;</td>" in html_table(("token",), [("<b>",)])


def test_a_table_is_aligned_and_cut():
    lines = text_lines(("name", "value"), [("a", "+1.5"), ("long", "-10")] * 6)
    assert lines[:3] == ["  name  value", "  a      +1.5", "  long    -10"]
    assert lines[-1] == "  ... and 2 more" and len(lines) == 12
    assert text_lines(("name",), []) == []


def test_circuitsvis_draws_our_maps(trace):
    attention = pytest.importorskip("circuitsvis.attention")
    maps, pieces = trace.maps(3, Stage.PATTERN), list(trace.tokens.pieces)
    for draw in (attention.attention_heads, attention.attention_patterns):
        assert "hjnvt"[0] in str(draw(attention=maps, tokens=pieces))


def test_bertviz_draws_our_maps(trace):
    bertviz = pytest.importorskip("bertviz")
    maps = [trace.maps(layer, Stage.PATTERN)[None] for layer in range(trace.model.config.n_layers)]
    for draw in (bertviz.head_view, bertviz.model_view):
        assert '"left_text"' in draw(maps, list(trace.tokens.pieces), html_action="return").data
