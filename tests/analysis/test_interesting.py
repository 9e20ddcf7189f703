"""Where to look first: planted heads are found."""

import torch

from mta_viz.analysis.attention.heads import largest_key, most_changed_head
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture


def model(**mta: object) -> HookedMTA:
    torch.manual_seed(0)
    shapes = {"d_model": 8, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "d_head": 4, "d_mlp": 8}
    return HookedMTA(ModelConfig(**shapes, vocab_size=7, mta=MTAOptions(**mta)))


def test_the_head_with_the_only_changed_kernel_is_found() -> None:
    planted = model(pre_kernel=(2, 3))
    assert most_changed_head(capture(planted, [1, 2, 3, 4])) is None  # all identity
    with torch.no_grad():
        planted.blocks[1].attn.kernel_pre[0, 0, 0] = 2.0
    assert most_changed_head(capture(planted, [1, 2, 3, 4])) == (1, 0)
    with torch.no_grad():
        planted.blocks[1].attn.kernel_pre[1, 0, 0] = float("nan")  # no reason to open that head
    assert most_changed_head(capture(planted, [1, 2, 3, 4])) == (1, 0)


def test_without_kernels_no_head_is_named() -> None:
    assert most_changed_head(capture(model(), [1, 2, 3])) is None


def test_the_key_to_look_at_has_the_highest_score_or_the_weight_of_largest_size() -> None:
    run = capture(model(post_kernel=(2, 3)), [1, 2, 3, 4, 5, 6, 1, 2, 3])
    with torch.no_grad():
        run.model.blocks[1].attn.kernel_post.copy_(torch.randn(2, 2, 3))
    run = capture(run.model, [1, 2, 3, 4, 5, 6, 1, 2, 3])
    scores, weights = (run.map(1, stage, 1) for stage in (Stage.RAW, Stage.PATTERN))
    rows = range(len(scores))
    by_score = [int(scores[row, : row + 1].argmax()) for row in rows]
    by_size = [int(weights[row, : row + 1].abs().argmax()) for row in rows]
    assert [largest_key(run, 1, 1, Stage.RAW, row) for row in rows] == by_score
    assert [largest_key(run, 1, 1, Stage.PATTERN, row) for row in rows] == by_size
    assert by_score != [int(scores[row, : row + 1].abs().argmax()) for row in rows]
    assert by_size != [int(weights[row, : row + 1].argmax()) for row in rows]
