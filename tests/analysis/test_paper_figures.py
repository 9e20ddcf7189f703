"""The numbers of the paper's figures against plain numpy on the file's tensors, and what is said of none."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from mta_viz.analysis.attention.kernel_map import (
    kernel_beside_map,
    needle_sample,
    question_span,
    strongest_head,
)
from mta_viz.analysis.attention.spans import Span, asked_span, needle_spans
from mta_viz.analysis.kernels.kernels import KernelId, kernel_places, layer_picture
from mta_viz.analysis.kernels.mixing import mixing_by_layer, mixing_over_layers
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import MTAOptions
from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture, load
from tests.tiny_models import FULL, config, random_weights, two_head_trace

ASSETS = Path(__file__).parents[2] / "assets"
PLAIN = config(MTAOptions(), 258)
KEYS_ONLY = config(MTAOptions(pre_kernel=(2, 3), mta_layers=(1,)), 258)


def file_mixing(weights, layer: int, where: str) -> np.ndarray:
    """[group, target, source] straight from a file: the grouped kernel lies there as [source, target]."""
    if where == "head_pre":
        return weights[f"layers.{layer}.attention.wpsm.weight"][None].astype(np.float64)
    return weights[f"layers.{layer}.attention.head_kernel"].astype(np.float64).swapaxes(1, 2)


def check_means(folder: Path, weights, n_layers: int, where: str) -> None:
    checkpoint = read_checkpoint(folder)
    found = mixing_by_layer(checkpoint.state_dict, checkpoint.config)
    means = next(one for one in found.places if one.where == where)
    for layer in range(n_layers):
        groups = file_mixing(weights, layer, where)
        own = np.concatenate([np.diag(group) for group in groups])
        others = np.concatenate([group[~np.eye(len(group), dtype=bool)] for group in groups])
        assert means.diagonal_size[layer] == pytest.approx(np.abs(own).mean(), rel=1e-12)
        assert means.diagonal[layer] == pytest.approx(own.mean(), rel=1e-12)
        assert means.off_diagonal_size[layer] == pytest.approx(np.abs(others).mean(), rel=1e-12)
        assert means.off_diagonal[layer] == pytest.approx(others.mean(), rel=1e-12)
        ratio = np.abs(others).mean() / np.abs(own).mean()
        assert means.ratio[layer] == pytest.approx(ratio, rel=1e-12)
        assert means.signed_ratio[layer] == pytest.approx(others.mean() / own.mean(), rel=1e-12)


@pytest.mark.parametrize("where", ["head_pre", "head_post"])
def test_the_shipped_models_means_are_those_of_its_file(where):
    folder = ASSETS / "needle-mta"
    check_means(folder, load_file(folder / "model.safetensors"), 6, where)
    checkpoint = read_checkpoint(folder)
    assert mixing_by_layer(checkpoint.state_dict, checkpoint.config).key_query == (True,) * 6


@pytest.mark.golden
@pytest.mark.parametrize("name", ["mta_headgroups2", "mta_full", "talking_heads"])
def test_means_and_matrices_of_reference_checkpoints(golden, name):
    raw = torch.load(golden / name / "consolidated.pth", weights_only=True)["model"]
    weights = {key: tensor.float().numpy() for key, tensor in raw.items()}
    checkpoint = read_checkpoint(golden / name)
    n_layers = checkpoint.config.n_layers
    check_means(golden / name, weights, n_layers, "head_post")
    stack = mixing_over_layers(checkpoint.state_dict, checkpoint.config, "head_post")
    wanted = np.stack([file_mixing(weights, layer, "head_post") for layer in range(n_layers)])
    assert stack.layers == tuple(range(n_layers)) and (stack.matrices == wanted).all()
    assert (stack.matrices != wanted.swapaxes(2, 3)).any()


@pytest.mark.parametrize(("name", "layer"), [("needle-mta", 5), ("blocks-n5-mta", 2)])
def test_a_layers_kernels_are_those_of_its_file(name, layer):
    raw = load_file(ASSETS / name / "model.safetensors")[f"layers.{layer}.attention.mta_kernel"]
    checkpoint = read_checkpoint(ASSETS / name)
    picture = layer_picture(checkpoint.state_dict, checkpoint.config, layer, "pre")
    assert (picture.taps == raw[:, 0].astype(np.float32)).all()
    half = raw.shape[3] // 2
    assert picture.offsets.query[-1] == 0 and picture.offsets.key == tuple(range(-half, half + 1))


def test_sizes_and_signed_values_of_two_heads_by_hand():
    shapes = config(MTAOptions(head_post_group=4), 258)
    weights = random_weights(shapes)
    mixing = weights["blocks.0.attn.head_post"]
    mixing.zero_()
    mixing[0, :2, :2] = torch.tensor([[1.0, -3.0], [2.0, -2.0]])
    means = mixing_by_layer(weights, shapes).places[0]
    assert (means.diagonal_size[0], means.diagonal[0]) == (3 / 4, -1 / 4)
    assert (means.off_diagonal_size[0], means.off_diagonal[0]) == (5 / 12, -1 / 12)
    assert means.ratio[0] == pytest.approx(5 / 9) and means.signed_ratio[0] == pytest.approx(1 / 3)


def test_layers_with_key_query_kernels_are_marked_and_layers_can_be_chosen():
    shapes = config(FULL, 258)
    weights = random_weights(shapes)
    assert mixing_by_layer(weights, shapes).key_query == (False, True, False, True)
    stack = mixing_over_layers(weights, shapes, "head_pre", (3, 1))
    assert stack.layers == (3, 1) and stack.matrices.shape == (2, 1, 4, 4)
    assert (stack.matrices[0] == weights["blocks.3.attn.head_pre"].numpy()).all()


def test_a_nan_makes_its_layer_nan_and_no_other():
    shapes = config(FULL, 258)
    weights = random_weights(shapes)
    weights["blocks.2.attn.head_pre"][0, 1, 1] = torch.nan
    weights["blocks.3.attn.head_pre"][0, 0, 1] = torch.inf
    means = mixing_by_layer(weights, shapes).places[0]
    assert means.n_bad == (0, 0, 1, 1)
    assert np.isnan(means.diagonal_size).tolist() == [False, False, True, False]
    assert np.isnan(means.ratio).tolist() == [False, False, True, True]


def test_a_diagonal_of_zeros_has_no_ratio():
    shapes = config(FULL, 258)
    weights = random_weights(shapes)
    weights["blocks.0.attn.head_pre"][0].fill_diagonal_(0)
    means = mixing_by_layer(weights, shapes).places[0]
    assert means.diagonal_size[0] == 0 and np.isnan(means.ratio[0]) and np.isfinite(means.ratio[1:]).all()


def test_groups_of_one_head_have_a_diagonal_and_no_ratio():
    shapes = config(MTAOptions(head_post_group=1), 258)
    weights = random_weights(shapes)
    assert np.isfinite(mixing_by_layer(weights, shapes).places[0].diagonal).all()
    with pytest.raises(MtaVizError, match="groups of one"):
        mixing_by_layer(weights, shapes, off_diagonal=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernel_places(PLAIN), "no kernels at all: no key-query kernels. This figure needs"),
        (lambda: mixing_by_layer({}, PLAIN), "no kernels at all: no head mixing. This figure needs"),
        (lambda: mixing_by_layer({}, KEYS_ONLY), "this checkpoint has no head mixing. This figure needs"),
        (lambda: layer_picture({}, KEYS_ONLY, 0, "pre"), "layer 0 has no key-query kernel before .* have: 1"),
        (lambda: layer_picture({}, KEYS_ONLY, 1, "post"), "no key-query kernel after the softmax"),
        (lambda: layer_picture({}, KEYS_ONLY, 9, "pre"), "no layer 9; the model has layers 0 to 3"),
        (lambda: mixing_over_layers({}, KEYS_ONLY, "head_pre"), "no head mixing before the softmax"),
    ],
)
def test_what_a_model_lacks_is_said(make, words):
    with pytest.raises(MtaVizError, match=words):
        make()


def convolved(scores: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """out[i, j] = sum over lags n and offsets d of k[n, d] S[i - n, j + d], keys padded on both sides."""
    c_q, c_k = kernel.shape
    n = len(scores)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            for a in range(c_q):
                for b in range(c_k):
                    query, key = i - (c_q - 1 - a), j + b - (c_k - 1) // 2
                    if query >= 0 and 0 <= key <= query:
                        out[i, j] += kernel[a, b] * scores[query, key]
    return out


def test_the_map_is_the_kernel_run_over_the_raw_scores():
    trace = two_head_trace()
    found = kernel_beside_map(trace, KernelId(0, 1, "pre"), Span("q", "?", 6, 9), Span("k", "A", 1, 4))
    raw = trace.map(0, Stage.RAW, 1).numpy().astype(np.float64)
    taps = trace.model.state_dict()["blocks.0.attn.kernel_pre"][1].numpy()
    assert (found.taps == taps).all()
    assert found.attention.values.numpy() == pytest.approx(convolved(raw, taps)[6:9, 1:4], abs=1e-5)
    assert (found.attention.query_start, found.attention.key_start) == (6, 1)


def test_the_strongest_head_has_the_largest_share_of_its_last_row():
    trace = two_head_trace()
    maps = np.abs(np.stack([trace.map(0, Stage.PATTERN, head).numpy() for head in range(2)]))
    found = []
    for stop in range(5, 10):
        rows, keys = Span("q", "?", 4, stop), Span("k", "A", 2, 4)
        last = maps[:, stop - 1, :stop]
        found.append(strongest_head(trace, rows, keys, "pre"))
        assert found[-1] == (0, int((last[:, 2:4].sum(1) / last.sum(1)).argmax()))
    assert len(set(found)) == 2  # so that another row would give another head
    with pytest.raises(MtaVizError, match="no key-query kernel after the softmax"):
        strongest_head(trace, rows, keys, "post")


@pytest.mark.parametrize(
    ("rows", "keys", "words"),
    [
        (Span("early", "?", 1, 3), Span("late", "A", 4, 6), "every key of 'late' comes after"),
        (Span("q", "?", 6, 99), Span("k", "A", 1, 2), "the prompt has 9 tokens"),
    ],
)
def test_a_map_without_cells_is_refused(rows, keys, words):
    with pytest.raises(PromptError, match=words):
        kernel_beside_map(two_head_trace(), KernelId(0, 0, "pre"), rows, keys)


def test_the_needle_prompt_of_the_shipped_model_and_its_most_attending_head():
    model = load(ASSETS / "needle-mta")
    sample = needle_sample(model)
    by_kind = {span.kind: span for span in sample.spans}
    named = needle_spans(sample.tokens)  # the same tokens as the text's own needles
    rows, keys = question_span(named, 512, 6), asked_span(named)
    assert (rows.start, rows.stop) == (by_kind["question"].start, 512)
    assert (keys.start, keys.stop) == (by_kind["asked"].start, by_kind["asked"].stop)
    assert model.tokenizer.decode(sample.tokens.ids[keys.start : keys.stop]).strip() == (
        f"The magic number of {sample.subject} is {sample.answer}."
    )
    found = kernel_beside_map(capture(model, sample.tokens), KernelId(5, 7, "pre"), rows, keys)
    assert found.attention.values.shape == (len(rows.positions), len(keys.positions))


def test_without_a_question_the_rows_are_the_last_tokens():
    assert question_span((), 20, 6).positions == range(14, 20)
    assert question_span((), 3, 6).positions == range(3)
    assert asked_span((Span("Oslo", "A", 1, 2),)) is None


def test_a_tokenizer_without_capitals_cannot_write_needles():
    with pytest.raises(TokenizerError):
        needle_sample(load(ASSETS / "blocks-n5-mta"))
