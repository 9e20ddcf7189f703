"""The table of all kernels: its rows, columns and counts, from state dicts of known kernels."""

import math

import pytest
import torch
from shape_cases import drawing, row

import mta_viz
from mta_viz.analysis.kernels.kernels import kernel_offsets
from mta_viz.analysis.kernels.table import COLUMNS, kernel_frame, kernel_table, shape_counts
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.transformer import HookedMTA


def config(**mta) -> ModelConfig:
    options = {
        "pre_kernel": (6, 11),
        "post_kernel": (2, 9),
        "mta_layers": (1,),
        "head_pre": True,
        "head_post_group": 2,
    }
    return ModelConfig(
        d_model=8, n_layers=2, n_heads=4, n_kv_heads=4, d_head=2, d_mlp=8, vocab_size=32,
        mta=MTAOptions(**{**options, **mta}),
    )  # fmt: skip


def weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Every kernel at identity."""
    found = {}
    for name, shape in parameter_shapes(config).items():
        found[name] = torch.zeros(shape)
        if ".kernel_" in name:
            own = kernel_offsets(config, *shape[-2:]).own
            found[name][(slice(None), *own)] = 1
        elif ".head_" in name:
            found[name] += torch.eye(shape[-1])
    return found


def test_one_row_per_kernel_with_every_column():
    rows = kernel_table(weights(config()), config())
    assert [(line["layer"], line["where"]) for line in rows] == [
        *[(0, "head_pre")] * 4, *[(0, "head_post")] * 4,
        *[(1, "pre")] * 4, *[(1, "post")] * 4, *[(1, "head_pre")] * 4, *[(1, "head_post")] * 4,
    ]  # fmt: skip
    assert [line["head"] for line in rows] == [0, 1, 2, 3] * 6
    assert [line["group"] for line in rows[4:8]] == [0, 0, 1, 1]
    assert {tuple(line) for line in rows} == {COLUMNS}
    assert {line["shape"] for line in rows} == {"near identity"}
    assert (rows[8]["c_q"], rows[8]["c_k"], rows[8]["first_key"]) == (6, 11, -5)
    assert rows[12]["diagonal"] is None and rows[12]["c_q"] == 2  # two rows cannot show one
    assert rows[0]["scaled_identity"] == pytest.approx(1) and rows[0]["diagonal"] is None


@pytest.mark.parametrize("pad", ["both", "left", "right"])
def test_scores_follow_the_side_of_the_padding(pad):
    wide = config(pad_key=pad, post_kernel=None)
    at = kernel_offsets(wide, 6, 11)
    state = weights(wide)
    taps = drawing("priming", at) + row(at, own=1)
    state["blocks.1.attn.kernel_pre"][2] = torch.from_numpy(taps)
    named = [line for line in kernel_table(state, wide) if line["shape"] != "near identity"]
    assert [(line["layer"], line["head"], line["where"], line["shape"]) for line in named] == [
        (1, 2, "pre", "priming")
    ]
    assert named[0]["priming"] == pytest.approx(1) and named[0]["energy_off_identity"] == pytest.approx(5 / 6)


def test_heads_of_a_group_are_counted_over_the_layer():
    state = weights(config(head_post_group=4))
    state["blocks.0.attn.head_post"][0, 3, 2] = -0.62
    state = {**state, "blocks.1.attn.head_post": torch.eye(4)[None]}
    line = kernel_table(state, config(head_post_group=4))[7]
    assert (line["head"], line["source"]) == (3, 2)
    pairs = weights(config())
    pairs["blocks.0.attn.head_post"][1, 1, 0] = -1  # heads 3 and 2
    line = kernel_table(pairs, config())[7]
    assert (line["head"], line["source"], line["shape"]) == (3, 2, "contrast")
    assert line["verdict"] == "contrast: itself minus 1.00 x head 2, angle -45 degrees"


def test_no_number_of_a_broken_kernel_leaves_the_table():
    state = weights(config())
    state["blocks.1.attn.kernel_pre"][0, 0, 0] = math.nan
    state["blocks.1.attn.kernel_post"][1] = 0
    rows = kernel_table(state, config())
    assert (rows[8]["shape"], rows[13]["shape"]) == ("not finite", "all zero")
    values = [value for line in rows for value in line.values()]
    assert all(math.isfinite(value) for value in values if isinstance(value, float))
    assert rows[8]["own_tap"] is None and rows[13]["own_tap"] is None


def test_counts_say_what_chance_would_give():
    at = kernel_offsets(config(), 6, 11)
    state = weights(config())
    state["blocks.1.attn.kernel_pre"] = torch.stack(
        [
            torch.from_numpy(taps).float()
            for taps in (
                drawing("diagonal", at) + row(at, own=1),
                row(at, own=1, before=-1),
                row(at, own=-1, before=0.5),
                row(at, own=1, before=0.5),
            )
        ]
    )
    rows = kernel_table(state, config())
    counts = shape_counts(rows)
    assert counts.kernels == 8 and counts.templates == 1 and counts.survive == 1
    assert counts.shapes == {
        "near identity": 4,
        "diagonal": 1,
        "edge-first": 2,
        "KV shift": 1,
    }
    assert counts.edges == 2 and [line["names"] for line in rows[8:12]] == [
        "diagonal +1.00",
        "edge-first +0.91; key shift +1.00",
        "edge-first +0.32; key shift +1.00",
        "KV shift +1.00",
    ]
    assert counts.expected_templates == pytest.approx(0.04)
    assert rows[8]["envelope_p"] <= 0.05 / 8 and rows[9]["envelope_p"] == 1
    assert counts.envelope_templates.mean == pytest.approx(sum(line["template_rate"] for line in rows[8:16]))
    assert [line["survives"] for line in rows[8:10]] == [True, None]


def test_the_frame_holds_the_rows():
    rows = kernel_table(weights(config()), config())
    frame = kernel_frame(rows)
    assert list(frame.columns) == list(COLUMNS) and len(frame) == len(rows)
    assert frame.query("where == 'pre' and layer >= 1")["own_tap"].tolist() == [1.0] * 4


def test_the_notebook_call_reads_a_model():
    model = HookedMTA(config())
    model.load_state_dict(weights(config()), strict=False)
    frame = mta_viz.kernels(model)
    assert list(frame.columns) == list(COLUMNS) and len(frame) == 24
    assert set(frame["shape"]) == {"near identity"}


def test_a_model_without_kernels_has_no_rows():
    plain = config(pre_kernel=None, post_kernel=None, head_pre=False, head_post_group=None)
    assert kernel_table(weights(plain), plain) == ()
    assert len(kernel_frame(())) == 0 and shape_counts(()).kernels == 0
