"""The conjunction lab without a browser: blocks beside a twin, own text, what cannot be tested."""

import pytest

from mta_viz.analysis.labs.conjunction import conjunction
from mta_viz.analysis.labs.four_prompts import block_prompts
from mta_viz.figures.labs.measured import ITSELF
from mta_viz.run.tracing import load
from mta_viz.tasks.blocks import BlockTask
from mta_viz.ui.labs.conjunction import ALONE
from mta_viz.ui.shell.measuring import Results
from mta_viz.ui.shell.models import twin_of
from tests.tiny_models import write_models
from tests.ui.driver import borrowed, charts, fine, part_of, run_through, said

SMALL = {"lab": "Conjunction", "conjunction blocks": "6", "conjunction samples": "3"}
LINES = "Alice, rabbit, Clara, weasel\nPeter, donkey, Julia, turtle"
WORDS = {"conjunction text lines": LINES}


@pytest.fixture(scope="module")
def models_folder(tmp_path_factory):
    """The tiny models, with `tiny-blocks` also under the names of a model and its twin."""
    root = write_models(tmp_path_factory.mktemp("conjunction"))
    for name in ("pair-mta", "pair-transformer"):
        (root / name).mkdir()
        for file in (root / "tiny-blocks").iterdir():
            (root / name / file.name).write_bytes(file.read_bytes())
    return root


@pytest.fixture
def open_lab(open_app):
    """`open_lab("tiny-mta", {settings})`: the conjunction lab."""

    def start(checkpoint, settings=None):
        return open_app(checkpoint, page="pages/labs.py", settings=SMALL | (settings or {}))

    return start


def run_test(app, words):
    """The page when the test says so."""
    app = run_through(app, "conjunction")
    assert not app.exception, app.exception[0].message
    assert words in said(app)
    return app


def test_blocks_run_beside_the_twin_at_identity_or_alone(open_lab, models_folder):
    app = open_lab("pair-mta")
    fine(app)
    assert "no block holds both" in said(app)
    assert borrowed(app.selectbox, "conjunction beside").value == "pair-transformer"
    asked = [text[-2:] for text in app.dataframe[0].value["of the first sample"]]
    assert asked == [a + b for a in (asked[0][0], asked[3][0]) for b in (asked[0][1], asked[3][1])]
    assert len(set(asked)) == 4
    words = said(run_test(app, "pair-transformer, 3 samples"))
    assert "pair-mta, 3 samples" in words and "there is no 95 % interval" in words and len(charts(app)) == 2
    assert "A adds" in words and "both together beyond that (I)" in words
    result = conjunction(load(models_folder / "pair-mta"), block_prompts(BlockTask(n_blocks=6), 3))
    (shown,) = (kept.result for kept in part_of(app, Results)["conjunction"].values())
    for name in ("pair-mta", "pair-transformer"):
        for measure, values in result.values.items():
            assert values.allclose(shown[name].values[measure], atol=1e-6, equal_nan=True)
    app = open_lab("tiny-blocks")  # which has no twin
    assert borrowed(app.selectbox, "conjunction beside").options == [ITSELF, ALONE]
    fine(run_test(app, f"{ITSELF}, 3 samples"))
    borrowed(app.selectbox, "conjunction beside").set_value(ALONE).run()
    fine(run_test(app, "tiny-blocks, 3 samples"))
    assert len(charts(app)) == 1
    borrowed(app.button_group, "conjunction measure").set_value("odds").run()
    fine(app)
    assert "log-odds: logsumexp" in said(app) and "(nats)" in said(app)
    borrowed(app.number_input, "conjunction blocks").set_value(500).run()
    assert not app.exception and "use at most 81 blocks" in said(app)


def test_a_text_of_ones_own_or_by_how_much_it_does_not_fit(open_lab):
    app = open_lab("tiny-plain", WORDS)
    fine(app)
    assert borrowed(app.selectbox, "conjunction beside").options == [ALONE]
    assert app.dataframe[0].value["of the first sample"][1].endswith("Where did Alice see the weasel?")
    fine(run_test(app, "tiny-plain, 2 samples"))
    borrowed(app.text_area, "conjunction text lines").set_value("Alice, rabbit, Clara, weasel").run()
    words = said(run_test(app, "one sample, no interval"))
    assert "One sample has no interval" in words
    borrowed(app.text_area, "conjunction text lines").set_value("Alice, rabbit, Bo, weasel").run()
    assert not app.exception and "with 'Bo' for 'Alice' the prompt has 3 fewer tokens" in said(app)
    borrowed(app.text_area, "conjunction text lines").set_value(" ").run()
    assert not app.exception and "there are no words" in said(app)
    borrowed(app.text_area, "conjunction text").set_value("No slots: <b>*x*</b>").run()
    assert not app.exception and "the text lacks {A?} and {B?}" in said(app)
    run_test(open_lab("tiny-nan", WORDS), "tiny-nan, 2 samples")


def test_twins_are_known_by_name():
    there = ["blocks-n5-mta", "blocks-n5-transformer", "transformer-run"]
    assert twin_of("blocks-n5-mta", there) == "blocks-n5-transformer"
    assert twin_of("blocks-n5-transformer", there) == "blocks-n5-mta"
    assert twin_of("mta-run", there) is None and twin_of("needle-mta", there) is None
