"""Scores of all heads: every definition in a case small enough to redo by hand, and on random maps."""

import math
import statistics
from itertools import permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from model_cases import EXAMPLES
from planted import FULL, heads, planted
from torch import Tensor

from mta_viz.analysis.attention.heads import SCORES, Ranked, head_scores, ranking
from mta_viz.analysis.attention.patterns import TARGETS
from mta_viz.analysis.attention.spans import Span
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import Cancelled, PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture

# tokens a b a b; signed rows that do not sum to 1
HAND = [[2.0], [1.0, -1.0], [0.5, 0.25, 0.25], [-0.4, 0.2, 0.6, -0.8]]
IDS = (1, 2, 1, 2)


def of_pattern(rows: list[list[float]], ids: tuple[int, ...], **options: object):
    return head_scores(planted([{Stage.PATTERN: heads(rows, rows)}], ids), **options)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("previous", (0.5 + 0.25 + 0.3) / 3),  # w(1,0), w(2,1), w(3,2)
        ("self", (1 - 0.5 + 0.25 - 0.4) / 4),
        ("sink", (0.5 + 0.5 - 0.2) / 3),  # queries 1, 2, 3
        ("duplicate", (0.5 + 0.1) / 2),  # (2,0), (3,1)
        ("induction", (0.25 + 0.3) / 2),  # (2,1) follows the first a; (3,2) the first b
        # |S| x mean w: rows 1, 2, 3 have mean 0, 1/3, -0.05
        ("previous.chance", (0 + 1 / 3 - 0.05) / 3),
        ("duplicate.chance", (1 / 3 - 0.05) / 2),
        ("self.chance", (1 + 0 + 1 / 3 - 0.05) / 4),
        ("duplicate.lift", 0.3 - (1 / 3 - 0.05) / 2),
        ("distance", (0 + 0.5 + (0.5 * 2 + 0.25) + (0.2 * 3 + 0.1 * 2 + 0.3)) / 4),
        ("keys", 4 / (0.16 + 0.04 + 0.36 + 0.64)),
        ("even", (1 + 2 / 2 + 1 / 0.375 / 3 + 4 / 1.2 / 4) / 4),
        ("negative", (1 + 1.2) / (2 + 2 + 1 + 2)),
    ],
)
def test_pattern_scores_by_hand(key: str, value: float) -> None:
    assert of_pattern(HAND, IDS).values[key][0].tolist() == pytest.approx([value] * 2, abs=1e-6)


@pytest.mark.parametrize("ids", [(1, 2, 3), (1, 1, 1)])
@pytest.mark.parametrize("target", ["previous", "self", "sink", "duplicate"])
def test_z_is_that_of_all_orders_of_the_keys(ids: tuple[int, ...], target: str) -> None:
    rows = [[2.0], [1.0, -0.5], [0.5, -0.25, 0.25]]
    places = {
        "previous": [{}, {0}, {1}],
        "self": [{0}, {1}, {2}],
        "sink": [{}, {0}, {0}],
        "duplicate": [{}, {0}, {0, 1}] if len(set(ids)) == 1 else [{}, {}, {}],
    }[target]

    def total(order: tuple[tuple[float, ...], ...]) -> float:
        return sum(
            sum(row[key] for key in keys) / sum(map(abs, row))
            for row, keys in zip(order, places, strict=True)
        )

    orders = [total(order) for order in product(*(list(permutations(row)) for row in rows))]
    spread = statistics.pstdev(orders)
    z = (total(tuple(map(tuple, rows))) - statistics.mean(orders)) / spread if spread else math.nan
    found = of_pattern(rows, ids).values[f"{target}.z"][0]
    assert found.tolist() == pytest.approx([z] * 2, rel=1e-5, nan_ok=True)


def test_the_parts_of_a_score_add_up_to_it() -> None:
    values = of_pattern(HAND, IDS).values  # sink, sizes summing to 2, 1, 2: 1/2, 0.5/1, -0.4/2
    assert values["sink.positive"][0, 0] == pytest.approx((0.5 + 0.5) / 3)
    assert values["sink.negative"][0, 0] == pytest.approx(0.2 / 3)
    for name in TARGETS:
        both = values[f"{name}.positive"] - values[f"{name}.negative"]
        assert torch.allclose(both, values[name], equal_nan=True), name


def test_an_even_row_has_no_z() -> None:
    assert of_pattern([[1.0], [0.5, 0.5], [0.1, 0.1, 0.1]], (1, 2, 3)).values["previous.z"].isnan().all()


def test_selectivity_by_hand() -> None:
    rows = [[9.0], [9.0, 9.0], [9.0] * 3, [0.4, -0.3, 0.1, 0.2]]
    needles = (Span("a", "A", 0, 1), Span("b", "B", 1, 3), Span("late", "C", 4, 5))
    found = of_pattern(rows, IDS, span=needles[1], needles=needles)
    assert found.values["selectivity"][0].tolist() == pytest.approx([0.4 / 0.8] * 2)  # 0.3 + 0.1 of 0.4 more
    for span, others in ((needles[0], needles[:1]), (needles[0], needles[1:]), (None, needles)):
        assert "selectivity" not in of_pattern(rows, IDS, span=span, needles=others).values


def test_queries_without_targets_are_left_out_and_counted() -> None:
    scores = of_pattern(HAND, IDS)
    assert scores.rows_counted == {"previous": 3, "duplicate": 2, "induction": 2, "sink": 3, "self": 4}
    alone = of_pattern(HAND, (1, 2, 3, 4))
    assert alone.values["duplicate"].isnan().all() and alone.rows_counted["duplicate"] == 0


def test_a_token_right_before_itself_is_a_duplicate_but_no_induction() -> None:
    scores = of_pattern([[1.0], [0.25, 0.75]], (5, 5))
    assert scores.values["duplicate"][0, 0] == pytest.approx(0.25)
    assert scores.rows_counted["induction"] == 0  # j + 1 = i would be the query's own key


def test_rows_of_dust_are_left_out_and_counted() -> None:
    scores = of_pattern([[1e-9], [0.5, 0.5], [0, 0, 0], [0, 0, 1.0, 0]], IDS)
    assert scores.rows_left_out.tolist() == [[2, 2]]
    assert scores.values["previous"][0, 0] == pytest.approx((0.5 + 1) / 2)
    assert scores.values["distance"][0, 0] == pytest.approx((0.5 + 1) / 2)
    assert scores.values["even"][0, 0] == pytest.approx((2 / 2 + 1 / 4) / 2)


def test_a_head_with_nan_has_no_score_and_ranks_last() -> None:
    bad, good = [[1.0], [math.nan, 1.0], [0, 1.0, 0]], [[1.0], [0.25, 0.75], [0.0, 0.5, 0.5]]
    scores = head_scores(planted([{Stage.PATTERN: heads(bad, good)}]))
    for key in ("previous", "previous.lift", "distance", "even", "negative"):  # not those of the other rows
        assert scores.values[key][0].isnan().tolist() == [True, False], key
    rows = ranking(scores, "previous")
    assert rows[0] == Ranked(0, 1, 0.375) and rows[1].head == 0 and math.isnan(rows[1].value)


def test_the_change_of_scores_does_not_see_a_constant_of_a_row() -> None:
    raw = heads([[3.0], [1.0, 5.0]], [[3.0], [1.0, 5.0]])
    kq = heads([[7.0], [11.0, 15.0]], [[3.0], [1.0, 9.0]])  # head 0: constants; head 1: 4 more at one cell
    values = head_scores(planted([{Stage.RAW: raw, Stage.KQ: kq, Stage.MIX: kq}])).values
    # rows less their mean: before -2, 2; head 1's difference 0, 4 -> -2, 2
    assert values["change.kq"][0].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert values["change.mix"][0].tolist() == [0, 0]


def test_the_change_of_weights_sees_a_constant() -> None:
    softmax = heads([[1.0], [0.6, 0.8]], [[1.0], [0.6, 0.8]])
    after = heads([[2.0], [1.6, 1.8]], [[1.0], [0.6, 0.8]])
    maps = {Stage.SOFTMAX: softmax, Stage.SOFTMAX_KQ: after, Stage.PATTERN: after * 2}
    values = head_scores(planted([maps])).values
    assert values["change.kq2"][0].tolist() == pytest.approx([math.sqrt(3 / 2), 0])
    assert values["change.final"][0].tolist() == pytest.approx([1, 1])


def test_the_future_counts_in_no_change() -> None:
    garbage = torch.full((2, 2, 2), 99.0)
    raw, kq = garbage.clone(), garbage.clone()
    raw[:, 1], kq[:, 1] = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 3.0])
    raw[:, 0, 0] = kq[:, 0, 0] = 7.0
    values = head_scores(planted([{Stage.RAW: raw, Stage.KQ: kq}])).values
    assert values["change.kq"][0, 0] == pytest.approx(2)


def test_span_scores_by_hand() -> None:
    row = {
        Stage.RAW: [0.0, math.log(3.0), 0.0],  # 3 against 2
        Stage.KQ: [0.0, math.log(8.0), 0.0],  # 8 against 2
        Stage.MIX: [0.0, 0.0, 0.0],  # 1 against 2
        Stage.SOFTMAX: [0.5, 0.25, 0.25],
        Stage.SOFTMAX_KQ: [0.5, -0.5, 1.0],
        Stage.PATTERN: [0.0, -2.0, 2.0],
    }
    maps = {stage: heads(*[[[9.0], [9.0, 9.0], values]] * 2) for stage, values in row.items()}
    values = head_scores(planted([maps]), Span("needle", "A", 1, 2)).values
    want = {
        "span.raw": math.log(1.5), "span.kq": math.log(4), "span.mix": math.log(0.5),
        "gain.kq": math.log(4 / 1.5), "gain.mix": math.log(0.5 / 4),
        "span.sm": 0.25, "span.kq2": 0.25, "span.final": 0.5,
        "mass.sm": 0.25, "mass.kq2": -0.5, "mass.final": -2.0,
        "gain.kq2": 0.0, "gain.final": 0.25,
    }  # fmt: skip
    for key, value in want.items():
        assert values[key][0].tolist() == pytest.approx([value] * 2, abs=1e-6), key
    assert set(want) == {k for k in values if k.startswith(("span.", "gain.", "mass."))}


def test_the_query_is_the_last_one_or_the_one_asked_for() -> None:
    trace = planted([{Stage.PATTERN: heads(HAND, HAND)}], IDS)
    assert head_scores(trace).query == 3
    at = head_scores(trace, Span("x", "A", 1, 4), query=1)  # only key 1 of the span is seen
    assert at.values["span.final"][0, 0] == 0.5 and at.values["mass.final"][0, 0] == -1
    assert at.values["keys"][0, 0] == 2


def test_keys_after_the_query_are_no_keys_of_its_row() -> None:
    rows = [[9.0], [9.0, 9.0], [0.0, math.log(3.0), 0.0], [9.0] * 4]  # rows 2 and 3 come in one slab
    scores = head_scores(planted([{Stage.RAW: heads(rows, rows)}]), Span("x", "A", 1, 2), query=2)
    assert scores.values["span.raw"][0, 0] == pytest.approx(math.log(3 / 2))


@pytest.mark.parametrize(
    ("span", "query", "says"),
    [
        (Span("x", "A", 2, 3), 1, "after query 1"),
        (Span("x", "A", 0, 2), 1, "every key"),
        (None, 4, "query 4 does not exist; expected 0 to 3"),
        (None, -1, "query -1 does not exist"),
    ],
)
def test_what_cannot_be_scored_is_said(span: Span | None, query: int, says: str) -> None:
    with pytest.raises(PromptError, match=says):
        of_pattern(HAND, IDS, span=span, query=query)


def test_what_a_layer_lacks_is_nan() -> None:
    mta = MTAOptions(pre_kernel=(2, 3), mta_layers=(1,))
    maps = [{Stage.PATTERN: heads(HAND, HAND)}] * 2
    scores = head_scores(planted(maps, IDS, mta), Span("x", "A", 1, 2))
    for key in ("change.kq", "span.kq", "gain.kq"):
        assert scores.values[key].isnan().any(1).tolist()[0] is True
    assert scores.values["span.kq"][1].isfinite().all()
    for key in ("change.mix", "change.kq2", "change.final", "gain.final", "gain.kq2", "mass.kq2"):
        assert scores.values[key].isnan().all(), key
    assert scores.values["span.final"].isfinite().all()


def naive(pattern: Tensor, ids: list[int], key: str) -> list[float]:
    """The definition, cell by cell."""
    found = []
    for head in pattern.double().tolist():
        rows = []
        for i in range(len(ids)):
            total = sum(abs(p) for p in head[i][: i + 1])
            chosen = {
                "previous": [i - 1] if i else [],
                "duplicate": [j for j in range(i) if ids[j] == ids[i]],
                "induction": [j + 1 for j in range(i) if ids[j] == ids[i] and j + 1 < i],
                "sink": [0] if i else [],
                "self": [i],
            }[key]
            if chosen and total >= 1e-8:
                rows.append(sum(head[i][j] for j in chosen) / total)
        found.append(sum(rows) / len(rows) if rows else math.nan)
    return found


@given(some.lists(some.integers(0, 2), min_size=1, max_size=7), some.integers(0, 999))
@EXAMPLES
def test_random_maps_agree_with_the_definition(ids: list[int], seed: int) -> None:
    pattern = torch.randn(2, len(ids), len(ids), generator=torch.Generator().manual_seed(seed)).tril()
    scores = head_scores(planted([{Stage.PATTERN: pattern}], ids))
    for key in TARGETS:
        want = naive(pattern, ids, key)
        assert scores.values[key][0].tolist() == pytest.approx(want, abs=1e-5, nan_ok=True), key


def test_on_a_model_gains_add_up_and_log_odds_are_those_of_the_softmax() -> None:
    torch.manual_seed(0)
    model = HookedMTA(
        ModelConfig(d_model=8, n_layers=2, n_heads=2, n_kv_heads=2, d_head=4, d_mlp=8, vocab_size=7, mta=FULL)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    values = head_scores(capture(model, [1, 2, 3, 4, 5, 1, 2]), Span("x", "A", 2, 4)).values
    gained = values["span.raw"] + values["gain.kq"] + values["gain.mix"]
    torch.testing.assert_close(values["span.mix"], gained)
    torch.testing.assert_close(values["span.mix"], values["span.sm"].logit(), atol=1e-4, rtol=1e-4)


def test_every_score_is_defined_once_and_measured() -> None:
    keys = [score.key for score in SCORES]
    assert len(set(keys)) == len(keys)
    assert all(score.definition.endswith(".") and score.unit and score.name for score in SCORES)
    span = Span("x", "A", 1, 2)
    with_span = of_pattern(HAND, IDS, span=span, needles=(span, Span("y", "B", 2, 3)))
    assert list(with_span.values) == keys and with_span.scores == SCORES
    about_spans = ("span", "gain", "mass", "selectivity")
    assert not any(key.startswith(about_spans) for key in of_pattern(HAND, IDS).values)


def test_ranking_is_by_value_then_place() -> None:
    rows = heads([[1.0], [0.25, 0.75]], [[1.0], [0.75, 0.25]])
    found = ranking(head_scores(planted([{Stage.PATTERN: rows}] * 2)), "previous")
    assert [(row.layer, row.head) for row in found] == [(0, 1), (1, 1), (0, 0), (1, 0)]
    with pytest.raises(PromptError, match=r"no score 'span\.raw'"):
        ranking(head_scores(planted([{Stage.PATTERN: rows}])), "span.raw")


def test_progress_is_told_and_may_stop() -> None:
    seen: list[float] = []
    head_scores(planted([{Stage.PATTERN: heads(HAND, HAND)}] * 2), progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1 and len(seen) == 4

    def stop(share: float) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        head_scores(planted([{Stage.PATTERN: heads(HAND, HAND)}]), progress=stop)
