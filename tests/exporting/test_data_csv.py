"""CSV files give every number back, and file names fit every file system."""

import csv
import io
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.analysis.attention.cells import Prediction, Predictions
from mta_viz.analysis.attention.changes import DifferenceMap
from mta_viz.analysis.attention.decomposition import Decomposition, Mixed, Scored, Softmaxed, Term
from mta_viz.analysis.attention.maps import AttentionMap, stages_table
from mta_viz.analysis.attention.pooling import Pooler
from mta_viz.analysis.kernels.kernels import LayerKernelSet, Offsets
from mta_viz.exporting.saved import file_name
from mta_viz.model.stages import Stage
from mta_viz.tables import Table
from mta_viz.tokenizers.base import Tokens

TOKENS = Tokens((0, 1, 2), ('a"b,c', "<s>", "⏎"), ((0, 0),) * 3, None)
MAP = AttentionMap(2, 1, Stage.KQ, torch.tensor([[0.1, 0, 0], [2, float("nan"), 0], [-3, 1e-9, 5]]), 0, 0)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@given(st.floats(width=32, allow_nan=False))
def test_a_number_comes_back_bit_for_bit(value: float) -> None:
    assert torch.tensor(float(read(Table(("value",), ((value,),)).csv())[0]["value"])) == torch.tensor(value)


def test_a_map_is_one_line_a_cell_with_tokens_and_masked_cells_empty() -> None:
    rows = read(MAP.table(TOKENS).csv())
    assert len(rows) == 9
    assert rows[3] == {
        "layer": "2", "head": "1", "stage": "hook_scores_kq", "query": "1", "query_token": "<s>",
        "key": "0", "key_token": 'a"b,c', "value": "2", "masked": "0",
    }  # fmt: skip
    assert (rows[1]["value"], rows[1]["masked"]) == ("", "1") and rows[4]["value"] == "nan"
    for row in rows:
        if row["value"] not in ("", "nan"):
            value = torch.tensor(float(row["value"]))
            assert value == MAP.values[int(row["query"]), int(row["key"])]


def test_a_pooled_map_gives_its_blocks() -> None:
    pooler = Pooler(2, 3)
    pooler.add(MAP.values)
    pooled = pooler.result()
    rows = read(replace(MAP, values=pooled.values, pooled=pooled, block=2).table(TOKENS).csv())
    assert len(rows) == 4
    last = rows[2]
    assert (last["first_query"], last["last_query"], last["first_key"], last["last_key"]) == (
        "2",
        "2",
        "0",
        "1",
    )
    assert (last["largest"], last["at_query"], last["at_key"]) == ("-3", "2", "0")
    assert float(last["mean"]) == pytest.approx(-1.5) and rows[1]["masked"] == "1"


def test_stages_follow_each_other_in_one_table() -> None:
    maps = {Stage.KQ: MAP, Stage.RAW: replace(MAP, stage=Stage.RAW)}
    rows = read(stages_table(maps, TOKENS).csv())
    assert [row["stage"] for row in rows] == ["hook_attn_scores"] * 9 + ["hook_scores_kq"] * 9


def test_kernels_give_taps_by_offset_and_mixing_by_head() -> None:
    taps = torch.arange(6.0).reshape(1, 2, 3)
    mixing = torch.tensor([[[1.0]], [[2.0]]])
    kernels = LayerKernelSet(taps, None, None, mixing, Offsets((-1, 0), (-1, 0, 1)), None)
    rows = read(kernels.table().csv())
    assert len(rows) == 8
    first = rows[2]
    assert (first["kind"], first["query_offset"], first["key_offset"], first["value"]) == (
        "pre",
        "-1",
        "1",
        "2",
    )
    assert (rows[7]["target_head"], rows[7]["source_head"], rows[7]["value"]) == ("1", "1", "2")


def test_predictions_are_ranked() -> None:
    rows = read(Predictions([Prediction(9, "a,b", 0.75)]).table().csv())
    assert rows == [{"rank": "1", "id": "9", "token": "a,b", "probability": "0.75"}]


def test_a_name_by_hand() -> None:
    assert file_name("blocks", "L2 H1", "kq'", suffix="png") == "blocks-L2-H1-kq.png"


@given(st.lists(st.text(max_size=200), max_size=3))
def test_any_name_fits_any_file_system(parts: list[str]) -> None:
    name = file_name(*parts, suffix="csv")
    stem = name.removesuffix(".csv")
    assert stem and len(stem) <= 108 and not stem.startswith((".", "-"))
    assert all(char.isascii() and (char.isalnum() or char in "._-") for char in stem)


@pytest.mark.parametrize("name", ["con", "NUL", "com1", "nul.tar", "", "...", "//"])
def test_reserved_and_empty_names_are_replaced(name: str) -> None:
    assert file_name(name, suffix="csv").startswith("mta-viz")


def decomposed(kind: type, terms: tuple[Term, ...] = (), **facts: object) -> Decomposition:
    where = {"layer": 2, "head": 1, "query": 1, "key": 0, "stage_before": Stage.RAW, "residual": 1e-7}
    return kind(stage=Stage.KQ, value=0.5, terms=terms, **where, **facts)


def test_a_decomposition_is_one_line_a_term() -> None:
    terms = (Term(1, 1, 0, "inside", 2.0, 0.25, 0.5), Term(1, -1, 3, "outside", 0.1, 0.0, 0.0))
    rows = read(decomposed(Mixed, terms).table(TOKENS).csv())
    assert rows[0] == {
        "layer": "2", "head": "1", "stage": "hook_scores_kq", "query": "1", "query_token": "<s>", "key": "0",
        "key_token": 'a"b,c', "value": "0.5", "residual": "1e-07", "source_stage": "hook_attn_scores",
        "source_head": "1", "source_query": "1", "source_query_token": "<s>", "source_key": "0",
        "source_key_token": 'a"b,c', "state": "inside", "weight": "2", "source": "0.25", "product": "0.5",
    }  # fmt: skip
    outside = rows[1]
    assert (outside["state"], outside["source_query"], outside["source_query_token"]) == ("outside", "-1", "")


def test_values_that_are_no_sum_give_what_they_were_computed_from() -> None:
    softmax = decomposed(Softmaxed, score=1.5, log_normaliser=2.0, rival=None, margin=None)
    (row,) = read(softmax.table(TOKENS).csv())
    assert (row["score"], row["log_normaliser"], row["runner_up_key"], row["margin_nats"]) == (
        "1.5",
        "2",
        "",
        "",
    )
    scored = decomposed(Scored, query_norm=3.0, key_norm=2.0, cosine=-0.5, d_head=16)
    (row,) = read(scored.table(TOKENS).csv())
    assert (row["query_norm"], row["key_norm"], row["cosine"], row["d_head"]) == ("3", "2", "-0.5", "16")


def test_a_difference_says_what_was_subtracted() -> None:
    values = torch.tensor([[0.5]])
    rows = read(DifferenceMap(0, 0, Stage.KQ, values, 0, 0, before=Stage.RAW).table(TOKENS).csv())
    assert rows[0]["stage"] == "hook_scores_kq - hook_attn_scores"
