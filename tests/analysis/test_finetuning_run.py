"""What is read of a finetuning's folder, from files written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from mta_viz.analysis.kernels.finetuning import CARD_FILE, PROGRESS_FILE, Change, HeldOut, read_finetuning
from mta_viz.errors import MtaVizError

PROGRESS: dict[str, Any] = {
    "step": 40, "steps": 200, "loss": 2.0, "seconds_left": 60.5, "state": "running",
    "loss_curve": [[20, 3.0], [40, 2.0]], "accuracy": [[0, 1, 20], [40, 5, 20]],
    "right_before": [12, 100], "perplexity_before": {"grammar": 4.0}, "from a later version": 1,
}  # fmt: skip
CARD: dict[str, Any] = {
    "steps": 200,
    "perplexity": {"before": {"grammar": 4.0}, "after": {"grammar": 4.2}},
    "held_out": {
        "before": {"right": 12, "n": 100, "accuracy": 0.12},
        "after": {"right": 62, "n": 100, "accuracy": 0.62},
        "difference": 0.5,
        "interval": [0.38, 0.6],
    },
}


def write(folder: Path, progress: dict[str, Any], card: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / PROGRESS_FILE).write_text(json.dumps(progress))
    if card is not None:
        (folder / CARD_FILE).write_text(json.dumps(card))
    return folder


def test_a_run_that_goes_on_knows_its_base_and_what_was_looked_at(tmp_path: Path) -> None:
    run = read_finetuning(write(tmp_path, PROGRESS))
    assert (run.step, run.steps, run.state, run.seconds_left) == (40, 200, "running", 60.5)
    assert run.loss == ((20, 3.0), (40, 2.0))
    assert run.looks == (HeldOut(0, 1, 20), HeldOut(40, 5, 20))
    assert (run.before, run.after, run.change) == (HeldOut(0, 12, 100), None, None)
    assert run.perplexity == {"grammar": (4.0, None)}


def test_what_is_not_known_yet_is_none(tmp_path: Path) -> None:
    first = {"step": 0, "steps": 200, "loss": None, "seconds_left": None, "state": "running"}
    run = read_finetuning(write(tmp_path, first))
    assert (run.seconds_left, run.loss, run.looks, run.before, run.perplexity) == (None, (), (), None, {})


def test_a_card_counts_once_the_run_is_done(tmp_path: Path) -> None:
    assert read_finetuning(write(tmp_path, PROGRESS, CARD)).after is None
    run = read_finetuning(write(tmp_path, PROGRESS | {"state": "done", "step": 200}, CARD))
    assert run.after == HeldOut(200, 62, 100)
    assert run.change == Change(0.5, 0.38, 0.6)
    assert run.perplexity == {"grammar": (4.0, 4.2)}


def test_the_table_has_a_row_a_number_with_its_interval(tmp_path: Path) -> None:
    run = read_finetuning(write(tmp_path, PROGRESS | {"state": "done", "step": 200}, CARD))
    rows = {row[0]: row for row in run.table().rows}
    assert rows["right, base"][1:3] == (0, 0.12)
    assert rows["right, base"][3:5] == pytest.approx((0.0636, 0.2002), abs=1e-4)  # Clopper-Pearson, 12 of 100
    assert rows["right, change"] == ("right, change", 200, 0.5, 0.38, 0.6, 100)
    assert rows["perplexity of grammar, result"][2] == 4.2
    assert [row[2] for row in run.table().rows if row[0] == "loss"] == [3.0, 2.0]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ([1], "holds no object"),
        ({"step": 1}, "'steps' is missing"),
        (PROGRESS | {"state": "gone"}, "state"),
        (PROGRESS | {"step": True}, "step"),
        (PROGRESS | {"right_before": [5, 4]}, "5 of 4 samples"),
    ],
)
def test_damaged_files_are_refused_in_words(tmp_path: Path, progress: Any, words: str) -> None:
    with pytest.raises(MtaVizError, match=words):
        read_finetuning(write(tmp_path, progress))


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MtaVizError, match=PROGRESS_FILE):
        read_finetuning(tmp_path)
