"""The named figures of the labs: made from their sample alone, the numbers of the calls."""

import json
from typing import Any

import numpy as np
import pytest

from mta_viz.analysis.cause.choosing import AROUND
from mta_viz.analysis.cause.story import RULE, story_of
from mta_viz.analysis.labs.blocks import block_parts, block_sample
from mta_viz.analysis.labs.conjunction import at_identity, conjunction, heads_table
from mta_viz.analysis.labs.evaluation import answers_table, evaluate_questions
from mta_viz.analysis.labs.finder import find, sample_parts
from mta_viz.analysis.labs.four_prompts import block_prompts, example, words_of, written_prompts
from mta_viz.analysis.labs.sweep import Sweep, run_sweep
from mta_viz.analysis.labs.sweep_file import by_needles, by_setting, empty_results, results_of, sweep_text
from mta_viz.analysis.labs.text import score_passages, text_losses
from mta_viz.config import MTAOptions
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.figures import figure, spec
from mta_viz.figures.base import Source, drawn
from mta_viz.figures.labs.measured import ITSELF, OfSweep, SweepMap
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.intervals import accuracy_interval
from mta_viz.tasks.needles import NeedleTask, PairsTask
from mta_viz.tasks.questions import QuestionTask
from mta_viz.tokenizers.builtin import CharTokenizer
from tests.analysis.lab_models import byte_model
from tests.analysis.test_labs_cards import rows
from tests.figures.checked import assert_plotly_takes_it
from tests.tiny_models import FULL, config, random_weights

NEEDLES = {"needles": 2, "length": 220, "seed": 3}
SWEEP = {"needles": (1, 2), "lengths": (220,), "depths": (0, 100), "samples": 2, "seed": 5}
PAIRS = {"names": 2, "cities": 2, "length": 330, "seed": 3}
ROME = {
    **{"prompt": "Ann is in Rome. Ben is in Oslo. Ann is in", "answer": "Rome"},
    "spans": [{"kind": "asked", "start": 0, "stop": 15}, {"kind": "needle", "start": 16, "stop": 31}],
}
WRITTEN = {"lines": json.dumps(ROME) + "\n" + json.dumps({"prompt": "2 + 2 =", "answer": "4"})}
FIGURES: dict[str, dict[str, Any]] = {
    "needle-finder": NEEDLES | {"score": "gain.kq", "part": "B", "marked": (1, 2)},
    "pairs-finder": PAIRS | {"part": "D", "drawn_from": "held out"},
    "pairs-crop": PAIRS | {"layer": 3, "head": 1, "shown": "before"},
    "file-finder": WRITTEN | {"score": "mass.final"},
    "file-crop": WRITTEN | {"layer": 3, "head": 1},
    "question-finder": {"task": "qa2", "distraction": 0},
    "needle-crop": NEEDLES | {"layer": 3, "head": 1, "place": "post", "shown": "difference"},
    "sweep-lines": SWEEP,
    "sweep-map": SWEEP | {"of_needles": 2},
    "pairs-conjunction": {"names": 2, "cities": 1, "length": 200, "samples": 1, "measure": "odds"},
    "text-conjunction": {"twin": "identity", "of": "twin", "measure": "odds", "stage": "kq"},
    "question-answers": {"task": "qa5", "distraction": 0, "samples": 2},
    "last-words": {"passages": ("One two three.", "alone")},
    "text-losses": {"text": "A 🙂 <b>two</b> words"},
}
STORY = "A fox ran. The magic number of Oslo is 88. It rained all day. The magic number of Oslo is"
OF_A_RUN: dict[str, dict[str, Any]] = {"story": {"answer": " 88"}}
OF_A_FILE = ("kernel-arms",)
OF_LETTERS: dict[str, dict[str, Any]] = {
    "block-finder": {"blocks": 6, "number": 2, "score": "gain.kq"},
    "block-crop": {"blocks": 6, "layer": 1, "head": 2, "place": "post", "shown": "difference"},
    "block-conjunction": {"twin": "identity", "blocks": 6, "samples": 2},
}


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    """Bytes as tokens, every kind of kernel."""
    return byte_model()


@pytest.fixture(scope="module")
def letters() -> HookedMTA:
    """The block task's characters, every kind of kernel."""
    model = HookedMTA(config(FULL, 32)).requires_grad_(False).eval()
    model.load_state_dict(random_weights(config(FULL, 32)))
    model.tokenizer = CharTokenizer()
    return model


@pytest.mark.parametrize("name", [*FIGURES, *OF_LETTERS])
def test_a_figure_is_made_from_the_model_alone_and_comes_again_as_json(name, model, letters):
    drawn_from = letters if name in OF_LETTERS else model
    shown = figure(name, drawn_from, **(FIGURES | OF_LETTERS)[name])
    if shown.figure is not None:
        assert_plotly_takes_it(shown.figure)
    assert shown.table.rows and (shown.figure is None or shown.caption)
    again = spec(name, json.loads(json.dumps(shown.spec.parameters())))
    assert again == shown.spec and again.file_parts()
    assert shown.figure is not None or name in ("question-answers", "last-words")


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_story_has_three_panels_under_its_sentence(name, model):
    run = capture(model, STORY)
    shown, opening = figure(name, run, numbering=1, **OF_A_RUN[name]), story_of(run, **OF_A_RUN[name])
    assert_plotly_takes_it(shown.figure)
    assert (
        shown.result.story == opening
        and spec(name, json.loads(json.dumps(shown.spec.parameters()))) == shown.spec
    )
    words = [note.text.replace("<br>", " ") for note in shown.figure.layout.annotations]
    assert opening.sentence(1) in words and shown.caption.startswith(opening.sentence(1))
    for part in ("own tap alone", "log(p / (1 - p))", "last token's row", RULE):
        assert part in shown.caption
    before, kernel, after = (part for part in shown.figure.data if part.type == "heatmap")
    stages = AROUND[opening.kernel.where]
    region = shown.result.crop.region
    for drawn_map, stage in ((before, stages[0]), (after, stages[1])):
        rows, columns = (slice(side.start, side.stop) for side in (region.queries, region.keys))
        cells = run.map(opening.kernel.layer, stage, opening.kernel.head, rows, columns).numpy()
        assert np.nan_to_num(np.array(drawn_map.z, float)) == pytest.approx(cells, abs=1e-5)
    assert np.array(kernel.z).shape == (6, 11) and before.zmax == after.zmax
    assert len(shown.table.rows) == 2 * len(region.queries) * len(region.keys)


def test_a_story_without_a_kernel_or_a_choice_draws_what_there_is(model):
    plain = HookedMTA(config(MTAOptions(), 258)).requires_grad_(False).eval()
    plain.load_state_dict(random_weights(config(MTAOptions(), 258)))
    plain.tokenizer = model.tokenizer
    shown = figure("story", capture(plain, STORY))
    assert_plotly_takes_it(shown.figure)
    assert sum(part.type == "heatmap" for part in shown.figure.data) == 1
    assert "own tap" not in shown.caption and shown.caption.endswith(RULE)
    alone = figure("story", capture(model, [65]), beside=plain)
    assert alone.figure is None and len(alone.table.rows) == 2 and "plain twin writes" in alone.caption


@pytest.mark.parametrize("name", OF_A_FILE)
def test_arms_are_a_line_each_with_their_seeds_and_the_base(name, model, tmp_path):
    file = tmp_path / "arms.json"
    file.write_text(json.dumps(rows()))
    shown = figure(name, model, file=str(file))
    assert_plotly_takes_it(shown.figure)
    together, seeds = shown.figure.data
    assert list(together.x) == [0.7, 0.1] and list(seeds.x) == [0.9, 0.5, 0.1]
    assert together.error_x.arrayminus[0] == pytest.approx(0.7 - accuracy_interval(14, 20)[0])
    assert [place - int(place) for place in seeds.y] == [0.25] * 3
    (base,) = shown.figure.layout.shapes
    assert base.x0 == base.x1 == 0.1 and len(shown.table.rows) == 4
    assert spec(name, json.loads(json.dumps(shown.spec.parameters()))) == shown.spec
    with pytest.raises(MtaVizError, match="no arms"):
        figure(name, model)


def test_finders_are_those_of_the_call(model, letters):
    sample = NeedleTask(2, 220, 50).sample(model.tokenizer, 3)
    finder = find(capture(model, sample.tokens), sample_parts(sample))
    shown = figure("needle-finder", model, **NEEDLES, score="gain.kq", part="B")
    part = next(part for part in finder.parts.all if part.letter == "B")
    assert shown.table.csv() == finder.scores[part].table().csv() and "“" + part.name in shown.caption
    sequence = block_sample(BlockTask(n_blocks=6), 2)
    blocks = find(capture(letters, sequence.tokens), block_parts(sequence))
    assert figure("block-finder", letters, blocks=6, number=2).table.csv() == blocks.asked.table().csv()


def test_pairs_and_written_prompts_are_found_in_as_needles_are(model):
    sample = PairsTask(2, 2, 330, 50).sample(model.tokenizer, 3)
    finder = find(capture(model, sample.tokens), sample_parts(sample))
    assert figure("pairs-finder", model, **PAIRS).table.csv() == finder.asked.table().csv()
    assert f"the needle “{sample.subject}”" in figure("pairs-finder", model, **PAIRS).caption
    assert "the needle “Ann is in Rome.”" in figure("file-finder", model, **WRITTEN).caption
    with pytest.raises(PromptError, match="no span of this sample is marked as asked"):
        figure("file-finder", model, **WRITTEN, seed=1)
    with pytest.raises(PromptError, match="has 2 samples, counted from 0; there is no 2"):
        figure("file-finder", model, **WRITTEN, seed=2)


def test_sweeps_of_pairs_say_what_chance_is_and_those_of_files_have_a_table_alone(model):
    sizes = {"needles": (4,), "lengths": (330,), "depths": (0,), "samples": 2, "kind": "pairs"}
    lines = figure("sweep-lines", model, **sizes)
    assert "4 sentences, 2 x 2: one word alone gives 0.50" in lines.caption and len(lines.table.rows) == 1
    written = OfSweep(samples=2, kind="file", **WRITTEN)
    results = written.result(Source(model, "bytes"))
    assert [score.n for score in by_setting(next(iter(results.values())).samples).values()] == [2]
    with pytest.raises(MtaVizError, match="no number of needles, length and depth"):
        figure("sweep-map", model, samples=2, kind="file", **WRITTEN)
    words = "parameters: The sweep cannot be used: 3 samples from number 0 on; the file has 2"
    with pytest.raises(MtaVizError, match=words):
        figure("sweep-map", model, samples=3, kind="file", **WRITTEN)


def test_a_crop_has_both_sides_on_one_scale(letters):
    sides = [
        figure("block-crop", letters, blocks=6, layer=1, head=2, shown=shown) for shown in ("before", "after")
    ]
    limits = {trace.zmax for side in sides for trace in side.figure.data if trace.type == "heatmap"}
    assert len(limits) == 1 and sides[0].table != sides[1].table
    with pytest.raises(PromptError, match="layer 0 has no convolution 'pre'; it has none"):
        figure("block-crop", letters, blocks=6, layer=0)
    with pytest.raises(PromptError, match="no layer 9"):
        figure("block-crop", letters, blocks=6, layer=9)


def test_what_a_figure_cannot_show_lists_what_there_is(model):
    with pytest.raises(PromptError, match="there is no part 'Z'; the parts are A, B"):
        figure("needle-finder", model, **NEEDLES, part="Z")
    with pytest.raises(PromptError, match="there is no score 'x' here"):
        figure("needle-finder", model, **NEEDLES, score="x")
    with pytest.raises(PromptError, match="the text has 1 parts of 1,500 tokens; there is no part 2"):
        figure("text-losses", model, text="two words", part=2)
    with pytest.raises(MtaVizError, match="no twin"):
        figure("text-conjunction", model, of="twin")


def test_a_sweep_is_measured_on_all_models_or_read_from_its_file(model, tmp_path):
    twin, sweep = byte_model(seed=1), Sweep(**SWEEP)
    shown = figure("sweep-map", model, beside=twin, **SWEEP, model=1)
    scores = by_setting(run_sweep(twin, sweep))
    assert {row[0] for row in shown.table.rows} == {"model (2)"}
    assert [row[1:6] for row in shown.table.rows] == [
        (*setting, score.right, score.n) for setting, score in scores.items()
    ]
    results, file = empty_results(sweep), tmp_path / "sweep.json"
    for name, measured in figure("sweep-lines", model, beside=twin, **SWEEP).result.items():
        results = results.with_model(type(measured)(name, name, "v", measured.samples))
    file.write_text(sweep_text(results))
    opened = figure("sweep-map", model, file=str(file), models=(1,))
    assert [row[1:] for row in opened.table.rows] == [row[1:] for row in shown.table.rows]
    with pytest.raises(MtaVizError, match="the results of 2 models"):
        figure("sweep-lines", model, file=str(file), models=(2,))


def test_a_panel_is_of_one_context_length_and_pooling_over_them_is_said(model):
    sweep = SWEEP | {"lengths": (220, 300)}
    pooled, panel = (
        figure("sweep-lines", model, **sweep),
        figure("sweep-lines", model, **sweep, of_length=300),
    )
    assert "depths and context lengths (the paper has a panel for each length)" in pooled.caption
    assert "Averaged over depths: all samples" in panel.caption
    (samples,) = (results.samples for results in panel.result.values())
    assert list(panel.figure.data[1].y) == [one.accuracy for one in by_needles(samples, 300).values()]
    assert "300 tokens" in panel.figure.to_json() and "Pooled over context" in pooled.figure.to_json()
    assert "n=4" in panel.figure.data[1].text[0] and "n=8" in pooled.figure.data[1].text[0]
    with pytest.raises(MtaVizError, match="no sample has 512 tokens; there are 220, 300"):
        figure("sweep-lines", model, **sweep, of_length=512)


def test_a_result_so_far_is_drawn_with_what_is_missing_hatched(model):
    sweep = Sweep(**SWEEP)
    known = results_of(model, "tiny", empty_results(sweep))
    part = type(known)("tiny", *known.digests, run_sweep(model, Sweep(**SWEEP | {"depths": (0,)})))
    shown = drawn(SweepMap(**SWEEP), Source(model), {"tiny": part})
    assert len(shown.figure.data) == 2 and shown.figure.data[1].fillpattern.shape == "/"
    assert [row[3] for row in shown.table.rows] == [0, 0]


def test_a_conjunction_is_that_of_the_call_beside_the_model_at_identity(model, letters):
    shown = figure("block-conjunction", letters, twin="identity", blocks=6, samples=2)
    samples = block_prompts(BlockTask(n_blocks=6), 2)
    plain = conjunction(at_identity(letters), samples)
    own = conjunction(letters, samples)
    assert shown.table.csv() == heads_table({"model": own, ITSELF: plain}).csv()
    text, span, lines = example(model)
    alone = figure("text-conjunction", model)
    samples = written_prompts(model.tokenizer, text, span, words_of(lines))
    assert alone.table.csv() == heads_table({"model": conjunction(model, samples)}).csv()


def test_answers_words_and_losses_are_those_of_the_calls(model):
    answers = evaluate_questions(model, QuestionTask("qa5", 0), n=2)
    assert figure("question-answers", model, **FIGURES["question-answers"]).table == answers_table([answers])
    passages = FIGURES["last-words"]["passages"]
    assert figure("last-words", model, passages=passages).table == score_passages(model, passages).table()
    text = FIGURES["text-losses"]["text"]
    losses = text_losses(model, text).table()
    assert figure("text-losses", model, text=text).table.csv() == losses.csv()
