"""The report's button: made beside the page, with a download; nothing is made unasked."""

import pytest

from tests.ui.driver import fine, run_through

PAGE = "pages/kernels.py"


@pytest.fixture(autouse=True)
def quick_pictures(monkeypatch):
    monkeypatch.setattr("mta_viz.exporting.report.picture", lambda *_: b"<svg></svg>")


def test_a_report_is_made_on_a_click_and_downloaded(open_app):
    app = open_app("tiny-blocks", "abcde.fghij#ca", PAGE)
    fine(app)
    assert not [button for button in app.get("download_button") if "HTML" in button.proto.label]
    assert any("the task “blocks”" in box.label for box in app.checkbox)
    app.button(key="start.report").click()
    run_through(app.run(), "report")
    fine(app)
    labels = [button.proto.label for button in app.get("download_button")]
    assert any(label == "Download HTML" for label in labels)
