"""Which scores a head gets on a prompt: name, unit, definition and stage of each. Owns no number."""

from dataclasses import dataclass

from mta_viz.model.stages import Stage

_W = "w = P / sum |P| is a row of final weights divided by the sum of its sizes"
_MADE = (Stage.KQ, Stage.MIX, Stage.SOFTMAX_KQ, Stage.PATTERN)  # by a convolution or head mixing
_SETS = {
    "previous": ("previous token", "the key right before the query, S = {i-1}"),
    "duplicate": ("duplicate token", "earlier keys with the query's own token, S = {j < i: x_j = x_i}"),
    "induction": (
        "induction",
        "the keys right after earlier keys with the query's own token, S = {j+1 < i: j < i, x_j = x_i}",
    ),
    "sink": ("sink share", "the first token, S = {0}, queries from 1 on"),
    "self": ("self", "the query's own key, S = {i}"),
}


@dataclass(frozen=True)
class Score:
    """One number a head gets. `definition` is a sentence or two; `stage` is where it is measured.

    `signed`: whether it may be below zero. `unit` "sd": standard deviations.
    """

    key: str
    name: str
    unit: str
    definition: str
    stage: Stage
    signed: bool = True


def _target_scores() -> list[Score]:
    chance = "the mean over the same queries of |S| times the row's mean w"
    varies = "sqrt(sum over queries of |S| (n - |S|) / (n - 1) times the variance of w in the row)"
    found = []
    for key, (name, which) in _SETS.items():
        score = (
            f"Mean over queries of the sum of w over {which}; {_W}. From -1 to 1; queries without such a key "
            "are left out."
        )
        by_chance = f"What keys in random order would give: {chance}."
        lift = f"The score {name} less what keys in random order would give, {chance}."
        z = (
            f"Sum over queries of the score less chance / {varies}, n keys in the row: exact when the keys "
            "of each row are in random order. Rows hang together, so z ranks heads and proves nothing."
        )
        part = f"The same as the score {name}, only its weights"
        for suffix, more, words, unit, signed in (
            ("", "", score, "share", True),
            ("chance", " by chance", by_chance, "share", True),
            ("lift", " lift", lift, "share", True),
            ("z", " z", z, "sd", True),
            ("positive", ", positive part", f"{part} above 0.", "share", False),
            ("negative", ", negative part", f"{part} below 0, by size.", "share", False),
        ):
            full = f"{key}.{suffix}" if suffix else key
            found.append(Score(full, f"{name}{more}", unit, words, Stage.PATTERN, signed))
    return found


def _row_scores() -> list[Score]:
    n_eff = "(sum |P|)^2 / sum P^2"
    one_row = f"{n_eff} in the row of the query: 1 when it attends to one key, n when evenly to n."
    every_row = f"Mean over queries of {n_eff} divided by i + 1, the number of keys the query sees."
    facts = (
        ("distance", "distance", "tokens", f"Mean over queries of sum_j |w_ij| (i - j); {_W}."),
        ("keys", "effective number of keys", "keys", one_row),
        ("even", "effective share of keys", "share", every_row),
        ("negative", "negative share", "share", "Sum of max(-P, 0) over sum of |P|, all cells."),
    )
    return [Score(*fact, Stage.PATTERN, signed=False) for fact in facts]


def _change_scores() -> list[Score]:
    centred = "; the mean of each row is taken out of both first, since the softmax does not see it"
    plain = "||after - before|| / ||before|| over all cells with key <= query"
    found = []
    for stage in _MADE:
        words = f"{plain}{centred if stage.value.unit == 'score' else ''}."
        name = f"change {stage.value.short}"
        found.append(Score(f"change.{stage.value.key}", name, "of norm", words, stage, signed=False))
    return found


def _span_scores() -> list[Score]:
    odds = (
        "Log-odds of the span: logsumexp of the query's scores over the span less logsumexp over the other "
        "keys it sees. The logit of the span's share if the softmax came here."
    )
    share = "Share of the span: sum of |P| over the span / sum of |P| over the query's row."
    mass = "Signed sum of P over the span in the query's row; below 0 the span is subtracted."
    found = []
    for stage in Stage:
        words, unit = (odds, "nats") if stage.value.unit == "score" else (share, "share")
        name = f"on span, {stage.value.short}"
        found.append(Score(f"span.{stage.value.key}", name, unit, words, stage, signed=words is odds))
    for stage in (Stage.SOFTMAX, Stage.SOFTMAX_KQ, Stage.PATTERN):
        name = f"mass on span, {stage.value.short}"
        found.append(Score(f"mass.{stage.value.key}", name, "weight", mass, stage))
    for stage in _MADE:
        what, unit = ("log-odds", "nats") if stage.value.unit == "score" else ("share", "share")
        words = f"The {what} of the span at this stage less the {what} one stage before."
        found.append(
            Score(f"gain.{stage.value.key}", f"gain on span, {stage.value.short}", unit, words, stage)
        )
    chosen = (
        "Share of this needle / sum of the shares of all needles the query sees, final weights: 1 when no "
        "other needle gets any, 1 / their number when all get the same."
    )
    return [*found, Score("selectivity", "selectivity", "share", chosen, Stage.PATTERN, signed=False)]


SCORES = (*_target_scores(), *_row_scores(), *_change_scores(), *_span_scores())
