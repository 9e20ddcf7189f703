"""The machine's state in the app, and its log as JSON."""

import json
import logging

from driver import fine, said

from mta_viz.ui.shell import page as logs


def test_the_window_says_what_the_command_says(open_app, models_folder, caplog):
    with caplog.at_level(logging.INFO, "mta_viz"):
        app = open_app("tiny-plain", page="pages/kernels.py")
        app.run()
    assert [one.getMessage() for one in caplog.records if "opens" in one.msg] == ["opens the page Kernels"]
    next(button for button in app.button if button.key == "doctor").click().run()
    fine(app)
    assert "versions: all" in said(app) and f"models: {models_folder}: 6 models, 1 of them broken" in said(
        app
    )


def test_the_log_is_lines_of_json_where_asked_for(monkeypatch, capsys):
    log = logging.getLogger("mta_viz")
    kept = log.handlers[:], log.level, log.propagate
    monkeypatch.setenv(logs.LOG, "json")
    try:
        logs.set_up_log.__wrapped__()
        try:
            raise ValueError("odd\nvalue")
        except ValueError:
            log.exception("unexpected\n%s", "é")
        (line,) = capsys.readouterr().err.splitlines()
    finally:
        log.handlers[:], log.level, log.propagate = kept
    entry = json.loads(line)
    assert (entry["level"], entry["message"], entry["session"]) == ("error", "unexpected\né", None)
    assert entry["time"].endswith("+00:00") and "ValueError: odd" in entry["error"]


def test_without_the_word_nothing_is_set_up(monkeypatch):
    monkeypatch.delenv(logs.LOG, raising=False)
    before = logging.getLogger("mta_viz").handlers[:]
    logs.set_up_log.__wrapped__()
    assert logging.getLogger("mta_viz").handlers == before
