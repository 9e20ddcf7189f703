"""The progress line: moves on a terminal, seldom speaks in a log, never touches stdout."""

import pytest

from mta_viz.cli import output


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, to be set by hand."""
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_five_seconds(clock, capsys):
    with output.ProgressLine("reading") as line:
        for clock[0] in range(11):
            line(clock[0] / 20)
    assert capsys.readouterr() == ("", "reading:  25%, 15 s left\nreading:  50%, 10 s left\n")


def test_quick_work_says_nothing(clock, capsys):
    with output.ProgressLine("reading") as line:
        line(1.0)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_one_line_rewritten(clock, capsys, monkeypatch):
    monkeypatch.setattr(output.sys.stderr, "isatty", lambda: True)
    with output.ProgressLine("reading") as line:
        for clock[0] in (0.05, 1.0, 2.0):
            line(clock[0] / 4)
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.endswith("\n")
    assert [part.strip() for part in err.split("\r")] == [
        "",
        "reading:  25%, 3 s left",
        "reading:  50%, 2 s left",
    ]
