"""`report`: each number is what the command that measures it alone prints, and Ctrl-C loses nothing."""

import html
import json

import pytest
from cli_support import assert_refused

from mta_viz.exporting import report_sections

PROMPT = "abcde.fghij#ca"


@pytest.fixture(autouse=True)
def quick_pictures(monkeypatch):
    monkeypatch.setattr("mta_viz.exporting.report.picture", lambda *_: b"<svg></svg>")


def test_numbers_are_those_of_the_single_commands(run, small, tmp_path):
    task = ("--task", "blocks", "--samples", 5, "--seed", 3)
    effects = run("effects", small, *task, "--edit", "own-tap").json
    answer = run("report", small, "--prompt", PROMPT, *task, "--out", tmp_path / "report.html").json
    page = html.unescape((tmp_path / "report.html").read_text())
    assert answer["figures"] == page.count("<figure ") and answer["bytes"] == len(
        (tmp_path / "report.html").read_bytes()
    )
    story = run("story", small, "--prompt", PROMPT).json
    assert story["sentence"] in page
    counts = run("kernels", small).json["counts"]
    assert f"Of {counts['kernels']} kernels {counts['templates']} bear the name of a shape" in page
    assert f"{round(5 * effects['accuracy'])} of 5 right" in page
    largest = effects["largest"][0]
    assert f"changes by {largest['log_probability_change']['value']:+.3g} on average" in page
    assert not list(tmp_path.glob("*.parts*"))


def test_without_measured_effects_the_gains_are_those_of_gain(run, folder, tmp_path):
    run("report", folder, "--prompt", PROMPT, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    story = run("story", folder, "--prompt", PROMPT).json
    span = f"{story['asked']['start']}:{story['asked']['stop']}"
    for gain in run("gain", folder, "--prompt", PROMPT, "--span", span).json["kernels"][:8]:
        assert (
            f"<td>L{gain['layer']} H{gain['head']} {gain['where']}</td><td>{gain['gain']:+.3g}</td>" in page
        )


def test_after_ctrl_c_the_same_command_goes_on(run, folder, tmp_path, monkeypatch):
    command = ("report", folder, "--prompt", PROMPT, "--out", tmp_path / "report.html")
    with monkeypatch.context() as once:
        once.setattr("mta_viz.exporting.report.picture", _interrupted)
        stopped = run(*command)
    assert stopped.status == 130 and "report.html.parts" in stopped.err
    assert list(tmp_path.glob("*.parts*"))
    monkeypatch.setattr(report_sections, "drawn", _interrupted)  # nothing is made again
    assert run(*command).status == 0 and not list(tmp_path.glob("*.parts*"))


def _interrupted(*arguments):
    raise KeyboardInterrupt


def test_several_models_have_a_report_each_in_a_folder(run, folder, small, tmp_path):
    out, other = tmp_path / "reports", small.rename(tmp_path / "other")
    answer = run("report", folder, other, "--prompt", PROMPT, "--out", out).json
    files = [out / f"{path.name}.html" for path in (folder, other)]
    assert [each["out"] for each in answer["reports"]] == list(map(str, files))
    alone = tmp_path / "report.html"
    one = run("report", other, "--prompt", PROMPT, "--out", alone).json
    assert one["sections"] == answer["reports"][1]["sections"]
    files[0].write_text("mine")
    again = run("report", folder, other, "--prompt", PROMPT, "--out", out)
    assert again.json["reports"] == [] and "2 reports are in" in again.err and files[0].read_text() == "mine"
    refused = run("report", other, other, "--prompt", PROMPT, "--out", out)
    assert_refused(refused, "is the name of several checkpoints")


def test_what_cannot_be_is_refused_before_anything_runs(run, folder, tmp_path):
    assert_refused(run("report", folder, "--out", tmp_path / "report.txt"), "none of .html, .pdf")
    (tmp_path / "there.html").write_text("mine")
    assert_refused(run("report", folder, "--out", tmp_path / "there.html"), "exists")
    refused = run("report", folder, "--task", "needle", "--out", tmp_path / "report.html")
    assert_refused(refused, "the task that fits it is blocks")
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([1, 99]))
    assert_refused(run("report", folder, "--tokens", ids, "--out", tmp_path / "report.html"), "99")
