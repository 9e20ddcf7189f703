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


def test_the_largest_key_is_that_of_the_largest_size() -> None:
    run = capture(model(), [1, 2, 3, 4])
    row = run.map(1, Stage.RAW, 1)[2, :3]
    assert largest_key(run, 1, 1, Stage.RAW, 2) == int(row.abs().argmax())
