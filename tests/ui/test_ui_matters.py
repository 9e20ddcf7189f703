"""The card's "Matters": the measured sentence, its map, the command where there is none, this prompt."""

import json
import math
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.cause.effects import FILE, Absent, Effect, Effects, Estimate, write_effects
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.locate import sha256
from mta_viz.model.interventions import KernelToIdentity, MixingToIdentity
from mta_viz.ui.kernels.matters import matters_sentence
from tests.tiny_models import write_models

PRE, ROW, OTHER = KernelId(1, 2, "pre"), KernelId(0, 3, "head_post"), KernelId(3, 0, "post")
NEVER = Estimate(math.nan, math.nan, math.nan)


def table(digest: str) -> Effects:
    fall, nothing = Estimate(-0.879, -0.93, -0.8), Estimate(0.001, -0.03, 0.03)
    effects = (
        Effect((KernelToIdentity(1, 2, "pre"),), 0.12, fall, Estimate(-3.2, -4.0, -3.0)),
        Effect((MixingToIdentity(0, "head_post", 3),), 1.0, nothing, Estimate(0.0, -0.1, 0.1)),
        Effect((MixingToIdentity(0, "head_post"), KernelToIdentity(1, 2, "pre")), 0.0, NEVER, NEVER),
    )
    return Effects(digest, "needle", 120, 0, "4 needles in 512 tokens", "0", 0.999, -0.01, effects)


def script(folder: str, prompt: str | None, layer: int, head: int, where: str):
    from mta_viz.analysis.kernels.kernels import KernelId
    from mta_viz.run.tracing import capture, load
    from mta_viz.ui.kernels.matters import draw_matters
    from mta_viz.ui.shell.page import Page

    model = load(folder)
    trace = None if prompt is None else capture(model, prompt)
    page = Page(model, trace, f"{folder}{prompt}", "", stale=False, numbering=1, first_token=False)
    draw_matters(page, KernelId(layer, head, where))


@pytest.fixture
def draw(tmp_path):
    """`draw(kernel, prompt)`: the section over a tiny model; its folder is `draw.folder`."""
    folder = write_models(tmp_path) / "tiny-mta"

    def draw(kernel: KernelId, prompt: str | None = None) -> AppTest:
        arguments = (str(folder), prompt, kernel.layer, kernel.head, kernel.where)
        app = AppTest.from_function(script, args=arguments, default_timeout=60).run()
        assert not app.exception, app.exception[0].message
        return app

    draw.folder = folder
    return draw


def said(app: AppTest) -> str:
    kinds = ("info", "caption", "text", "markdown")
    return "\n".join(element.value for kind in kinds for element in app.get(kind)).replace("\\", "")


def measured(folder: Path) -> None:
    write_effects(folder / FILE, table(sha256(folder)))


def test_the_sentence_says_what_falls_how_sure_and_the_rank():
    assert matters_sentence(table("x"), PRE) == (
        "Matters: set to identity, accuracy on the needle task falls from 0.999 to 0.120 (−0.879, 95 % "
        "interval −0.930 to −0.800, 120 samples); log-probability of the answer −3.20 nats: "
        "rank 1 of 2 kernels by that."
    )


def test_a_change_within_chance_is_called_so():
    assert matters_sentence(table("x"), ROW) == (
        "Matters: with its row at identity, accuracy on the needle task stays as it is within chance: 0.999, "
        "then 1.000 (+0.001, 95 % interval −0.030 to +0.030, 120 samples); log-probability of the answer "
        "+0.000 nats: rank 2 of 2 kernels by that."
    )


def test_without_a_measurement_the_verdict_is_not_tested():
    assert matters_sentence(Absent("none"), PRE) == "Matters: not tested yet."
    assert matters_sentence(table("x"), OTHER) == "Matters: not tested yet."


def test_the_section_shows_setting_and_map_with_the_kernel_framed(draw):
    measured(draw.folder)
    app = draw(PRE)
    assert "4 needles in 512 tokens" in said(app)
    assert "With everything at identity at once accuracy is 0.000" in said(app)
    figure = json.loads(app.get("plotly_chart")[0].proto.spec)
    heat = next(trace for trace in figure["data"] if trace["type"] == "heatmap")
    assert (heat["zmin"], heat["zmax"]) == (-5.0, 5.0)
    assert any(shape.get("x0") == 1.5 and shape.get("y0") == 0.5 for shape in figure["layout"]["shapes"])
    assert "Press Run to measure it on a prompt." in said(app)


@pytest.mark.parametrize("kernel", [PRE, OTHER])
def test_absent_effects_are_said_with_the_command(draw, kernel):
    if kernel is OTHER:
        measured(draw.folder)  # of the others, not of this one
    app = draw(kernel)
    assert ("not among them" if kernel is OTHER else "has not been measured") in said(app)
    assert f"python -m mta_viz effects {draw.folder} --task needle" in said(app)
    assert not app.get("plotly_chart")


def test_effects_of_older_weights_are_absent(draw):
    write_effects(draw.folder / FILE, table("0" * 64))
    app = draw(PRE)
    assert "other weights" in said(app) and not app.get("plotly_chart")


def test_a_prompt_is_measured_at_once_when_it_is_short(draw):
    app = draw(PRE, "Hello, hello")
    words = said(app)
    assert "raw scores q·k/√d against after key-query conv, each row less its mean" in words
    assert "L2 H3's final attention lies on other keys (mean over 13 queries)" in words
    assert "The next token “" in words and "nats)" in words
    assert "Press Run" not in words and not app.button


def test_a_long_measurement_waits_for_its_button(draw, monkeypatch):
    monkeypatch.setattr("mta_viz.ui.kernels.matters.estimate_seconds", lambda model, n_tokens: 3.0)
    app = draw(PRE, "Hello, hello")
    assert app.button[0].label == "Measure it on this prompt, about 8 s"
    assert "The next token" not in said(app)
    app.button[0].click().run()
    assert "The next token" in said(app) and not app.button


def test_the_needle_that_is_asked_for_gets_its_gain(draw):
    prompt = "The magic number of Rome is 12. The magic number of Oslo is 77. The magic number of Rome is"
    assert "“Rome (asked)” gets" in said(draw(ROW, prompt))
