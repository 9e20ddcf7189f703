"""What is measured stays in `OUT.parts` when a command ends before its end, and the same command goes on."""

import shutil

import pytest

from mta_viz.analysis.labs import conjunction, evaluation, text
from mta_viz.checkpoint.native import write_native
from tests.tiny_models import FULL, config, random_weights

CROSSED = ("--text", "{A} saw {B}. Did {A?} see {B?}?", "--span", "{A} saw {B}")
WORDS = ("--words", "Al, Bo, Cy, Di", "--words", "Tom, Joe, Ann, Sue", "--words", "Flo, Max, Ida, Ned")
COMMANDS = {
    "questions": (evaluation, "_Asking", ("--task", "qa4,qa1", "--length", 0, "--samples", 2)),
    "perplexity": (text, "_Scoring", ("--last-word", "--file")),
    "conjunction": (conjunction, "_Measuring", (*CROSSED, *WORDS)),
}


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A model that reads bytes."""
    folder, shapes = tmp_path_factory.mktemp("writer") / "bytes", config(FULL, 258)
    weights = random_weights(shapes)
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_command_goes_on_and_ends_with_the_same_file(run, writer, tmp_path, monkeypatch, command):
    room, name, options = COMMANDS[command]
    if command == "perplexity":
        monkeypatch.setattr(text, "CHUNK", 1)
        (tmp_path / "passages.txt").write_text("one two three\n\nfour five\n\nsix seven eight\n")
        options = (*options, tmp_path / "passages.txt")
    flag = "--csv" if command == "perplexity" else "--out"
    whole, out, parts = (tmp_path / name for name in ("whole", "out", "out.parts"))
    answer = run(command, writer, *options, flag, whole)
    assert answer.status == 0, answer.err
    work, began = getattr(room, name).__call__, []

    def killed_at_the_third(self, item, *progress):
        began.append(item)
        if len(began) == 3:
            raise KeyboardInterrupt
        return work(self, item, *progress)

    with monkeypatch.context() as once:
        once.setattr(getattr(room, name), "__call__", killed_at_the_third)
        stopped = run(command, writer, *options, flag, out)
        assert stopped.status == 130 and "out.parts" in stopped.err and not out.exists()
        shutil.copy(parts, tmp_path / "copy")
        began[:] = [None] * 3  # none of the first two again
        again = run(command, writer, *options, flag, out)
    assert again.status == 0 and "2 results are in" in again.err and not parts.exists()
    assert out.read_bytes() == whole.read_bytes() and again.json == answer.json
    _not_of_another_measurement(run, (command, writer, *options), flag, tmp_path)


def _not_of_another_measurement(run, command, flag, folder):
    """Parts of other samples, and damaged ones, are not used; the answer is that of a fresh run."""
    kept = (folder / "copy").read_text()
    for at, parts in enumerate(("", "[]", f"0{kept}", kept[:-1], kept.replace("0", "1"))):
        out = folder / f"out{at}"
        (folder / f"out{at}.parts").write_text(parts)
        answer = run(*command, flag, out)
        assert answer.status == 0 and "already" not in answer.err
        assert out.read_bytes() == (folder / "whole").read_bytes()
