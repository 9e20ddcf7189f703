"""The labs' crops: which cells they hold, and that their sums are those of the hooks' values."""

import pytest
from lab_models import byte_model

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.blocks import block_region, block_sample
from mta_viz.analysis.labs.finder import needle_region, region, step_crops
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture, run_hooks
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.needles import NeedleTask


@pytest.fixture(scope="module")
def model():
    return byte_model()


def test_a_region_has_neighbours_inside_the_prompt():
    found = region(Span("q", "?", 8, 10), Span("k", "A", 1, 3), 10, above=2, beside=3)
    assert (found.queries, found.keys) == (range(6, 10), range(6))
    with pytest.raises(PromptError, match="'k' ends at token 12"):
        region(Span("q", "?", 8, 10), Span("k", "A", 1, 12), 10, above=0, beside=0)


def test_the_block_region_is_query_letters_x_target_block():
    """Blocks of 3 and a separator after BOS: block b begins at 1 + 4b; "#" is the last separator."""
    sample = block_sample(BlockTask(3, 2, 6), 0)
    found = block_region(sample)
    start = 1 + 4 * sample.target
    assert (found.asked.start, found.asked.stop) == (start, start + 3)
    assert (found.asking.start, found.asking.stop) == (25, 27) and found.queries == range(23, 27)
    assert found.keys == range(max(start - 4, 0), start + 7)
    assert "".join(sample.tokens.pieces[25:27]) == sample.query


@pytest.mark.parametrize("layer", [1, 3])
def test_sums_are_those_of_the_hooks(model, layer):
    sample = NeedleTask(2, 300, 50).sample(model.tokenizer, 0)
    shown = needle_region(sample)
    tokens = sample.tokens
    names = [stage.hook_name(layer) for stage in Stage if not stage.is_second]
    values = run_hooks(model, tokens, names)
    crops = step_crops(capture(model, tokens), shown, layer, head=2)
    assert [(crop.before.stage, crop.after.stage) for crop in crops] == [
        (Stage.RAW, Stage.KQ),
        (Stage.SOFTMAX, Stage.SOFTMAX_KQ),
    ]
    rows, columns = slice(*_ends(shown.asking)), slice(*_ends(shown.asked))
    for crop in crops:
        for side, one in enumerate((crop.before, crop.after)):
            whole = values[one.stage.hook_name(layer)][2].double()
            assert crop.sums[side] == pytest.approx(float(whole[rows, columns].sum()), abs=1e-5)
            assert crop.last[side] == pytest.approx(float(whole[-1, columns].sum()), abs=1e-5)
        change = crop.after.values - crop.before.values
        assert crop.difference.values.equal(change) and change.abs().max() > 0
        assert (crop.after.query_start, crop.after.key_start) == (shown.queries.start, shown.keys.start)


def _ends(span):
    return span.start, span.stop


def test_a_layer_without_convolution_has_no_crop(model):
    shown = region(Span("q", "?", 4, 6), Span("k", "A", 1, 2), 6, above=0, beside=0)
    assert step_crops(capture(model, "abcde"), shown, 0, 0) == ()


def test_future_keys_do_not_count(model):
    """Two queries x the same two keys: three cells are in the past or present."""
    shown = region(Span("q", "?", 2, 4), Span("k", "A", 2, 4), 6, above=0, beside=0)
    (first, _) = step_crops(capture(model, "abcde"), shown, 1, 0)
    values = run_hooks(model, "abcde", [Stage.RAW.hook_name(1)])[Stage.RAW.hook_name(1)][0]
    wanted = values[2, 2] + values[3, 2] + values[3, 3]
    assert first.sums[0] == pytest.approx(float(wanted), abs=1e-5)
