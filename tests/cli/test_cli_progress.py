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
        "reading:  25%, 1 s so far",
        "reading:  50%, 2 s left",
    ]


@pytest.mark.parametrize("before", [0.03, 0.9], ids=["a slow first run", "most was done before"])
def test_what_came_before_the_first_share_says_nothing_of_the_rest(clock, capsys, before):
    with output.ProgressLine("measuring") as line:
        clock[0] = 9.0
        line(before)
        clock[0] = 14.0
        line((1 + before) / 2)
    late = "measuring:  52%, 5 s left" if before < 0.5 else "measuring:  95%, 5 s left"
    first = f"measuring: {before:4.0%}, 9 s so far"  # by its share 291 s, or 1 s, were left
    assert capsys.readouterr().err.splitlines() == [first, late]
