"""Words from outside: what leaves this program holds no control characters or formulas and is short."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest

from mta_viz.cli import main
from mta_viz.errors import CheckpointError, ConfigError, MtaVizError, PromptError
from mta_viz.exporting import pictures
from mta_viz.exporting.provenance import Provenance, RunOf, embed, read
from mta_viz.model.plans import plan_from_text
from mta_viz.plots.theme import escape
from mta_viz.printed import message, printable, safe
from mta_viz.tables import Table
from mta_viz.ui.shell.widgets import plain

ROOT = Path(__file__).parents[1]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1m\u202eabc\u2066\u2028\ufffe\uffff\ud800\r\x00"


@pytest.mark.parametrize(
    "shown",
    [
        printable(HOSTILE),
        message(HOSTILE),
        safe(HOSTILE),
        str(MtaVizError(HOSTILE)),
        str(PromptError(HOSTILE)),
        str(CheckpointError([HOSTILE], HOSTILE)),
        plain(HOSTILE).replace("\u2060", ""),
        escape(HOSTILE),
        Table(("a",), ((HOSTILE,),)).csv().replace("\n", ""),
    ],
)
def test_no_control_and_no_direction_is_left(shown: str) -> None:
    assert shown.isprintable()
    assert "abc" in shown


def test_messages_are_short_and_count_what_is_left_out() -> None:
    error = ConfigError([f"{number} is wrong" for number in range(200_000)])
    assert len(error.problems) == 200_000
    lines = str(error).splitlines()
    assert len(lines) == 40
    assert lines[-1] == "  - and 199,962 more problems"
    assert message("a\n" * 50).splitlines()[-1] == "and 11 more lines"
    assert len(str(MtaVizError("x" * 10**6))) < 2100
    with pytest.raises(ConfigError) as caught:
        plan_from_text(json.dumps([{"kind": "x" * 1000}] * 10_000))
    assert len(str(caught.value).splitlines()) < 40


def test_a_name_in_a_file_reaches_no_terminal_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (HOSTILE.replace("\ud800", ""), "x" * 10**6):
        params = {"model": {"dim": 8, "n_layers": 1, "n_heads": 2, "vocab_size": 9, "multiple_of": 8}}
        params["data"] = {"tokenizer": {"name": name, "path": name}}
        (tmp_path / "params.json").write_text(json.dumps(params))
        main(["info", str(tmp_path / "params.json")])
        main(["kernels", str(tmp_path)])
        both = "".join(capsys.readouterr())
        assert both.replace("\n", "").isprintable()
        assert len(both) < 6000


def test_a_librarys_warning_stands_before_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\ntrailer << /Root 1 0 R >>\nstartxref\n9\n%%EOF")
    words = "figure", "--from", tmp_path / "a.pdf", "--out", tmp_path / "b.svg"
    command = [sys.executable, "-m", "mta_viz", *map(str, words)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stderr.startswith("error: ")


def test_an_svg_is_xml_whatever_the_prompt_holds(tmp_path: Path) -> None:
    prompt = "".join(map(chr, (*range(1, 0x20), 0x7F, 0x85, 0x202E, 0xFFFE, 0xFFFF, 0x1FFFF))) + "<&\\"
    origin = Provenance("x", run=RunOf(prompt=prompt, tokens=(prompt,)), caption=prompt)
    file = tmp_path / "a.svg"
    file.write_bytes(embed(b"<svg></svg>", "svg", origin.text()))
    ElementTree.parse(file)
    assert read(file) == origin


def test_a_picture_has_no_text_that_xml_forbids() -> None:
    figure = go.Figure(go.Bar(x=["a\uffff"], y=[1], text=["\x1b"]), {"title": {"text": "\ufffe"}})
    shown = pictures.printable(figure)
    assert (shown.layout.title.text, list(shown.data[0].x), list(shown.data[0].text)) == (
        r"\ufffe",
        [r"a\uffff"],
        [r"\u001b"],
    )


def test_a_text_in_a_csv_is_no_formula() -> None:
    cells = ["=1+1", "+cmd", "-x", "@sum", "\tx", "-0.5", "+3", "plain", "-", "\n=1", "\uff1d1"]
    for exact in (False, True):
        table = Table(("token", "value"), tuple((cell, -0.5) for cell in cells), exact)
        rows = list(csv.reader(io.StringIO(table.csv())))[1:]
        assert [row[0] for row in rows] == [
            "'=1+1",
            "'+cmd",
            "'-x",
            "'@sum",
            "'\tx",
            "-0.5",
            "+3",
            "plain",
            "'-",
            "'\n=1",
            "'\uff1d1",
        ]
        assert {row[1] for row in rows} == {"-0.5"}
