"""`doctor`: each thing that can be wrong with a machine is said, with what to type."""

import json
import socket
from pathlib import Path

import pytest

from mta_viz.cli import build_parser, main
from mta_viz.exporting import doctor, pictures
from mta_viz.exporting.doctor import Diagnosis, diagnose, port_problem
from mta_viz.version import ASSETS


def of(diagnosis: Diagnosis, name: str) -> list[doctor.Check]:
    return [check for check in diagnosis.checks if check.name == name]


def test_this_machine(tmp_path):
    diagnosis = diagnose([ASSETS, tmp_path / "absent"])
    assert {check.name for check in diagnosis.checks} >= {
        "python",
        "device",
        "versions",
        "app",
        "disk",
        "port",
    }
    shipped, absent = of(diagnosis, "models")
    assert shipped.state == "ok" and shipped.found.endswith(" models")
    assert absent.state == "note" and "is no folder; check the path" in absent.remedy
    assert all(check.remedy for check in diagnosis.checks if check.state != "ok")
    assert "what to do" in repr(diagnosis) and diagnosis.ok


def test_what_is_missing_is_named_with_what_to_type(tmp_path, monkeypatch):
    tested = tmp_path / "requirements.txt"
    tested.write_text("torch==2.6.0\nno-such-package==1.2\n")
    monkeypatch.setattr(doctor, "TESTED", tested)
    monkeypatch.setattr(doctor, "APP", tmp_path / "app.py")
    monkeypatch.setattr(doctor, "FONTS", (str(tmp_path),))
    monkeypatch.setattr(doctor, "ENOUGH_DISK", 1e20)
    monkeypatch.setattr(doctor, "ENOUGH_MEMORY", 1e20)
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def none(format: str) -> str:
        raise pictures.MtaVizError(pictures.NO_BROWSER.format(format=format))

    monkeypatch.setattr(doctor, "find_browser", none)
    diagnosis = diagnose([], port=None)
    missing, other = of(diagnosis, "versions")
    assert (missing.state, missing.remedy) == ("wrong", "pip install no-such-package==1.2")
    assert other.state == "note" and "(tested: 2.6.0)" in other.found
    assert of(diagnosis, "app")[0].state == "wrong" and not diagnosis.ok
    assert "apt-get install -y chromium" in of(diagnosis, "chromium")[0].remedy
    assert of(diagnosis, "fonts")[0].remedy.endswith("apt-get install -y fonts-dejavu-core")
    assert [of(diagnosis, name)[0].state for name in ("memory", "disk")] == ["note", "note"]
    tested.unlink()
    assert of(diagnose([], port=None), "versions")[0].remedy == "install mta-viz again"


def test_a_container_has_what_its_limit_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "CGROUP", tmp_path)
    (tmp_path / "memory.current").write_text("400000000\n")
    for most, words in (("1000000000", "600.0 MB free (of this container)"), ("max", "GB free")):
        (tmp_path / "memory.max").write_text(most)
        assert of(diagnose([], port=None), "memory")[0].found.endswith(words)


def test_a_broken_model_is_named_beside_the_others(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "params.json").write_text("{")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"nothing")
    (models,) = of(diagnose([tmp_path], port=None), "models")
    assert models.state == "note" and "1 of them broken, first broken: " in models.found
    assert "info PATH" in models.remedy


def test_a_port_that_is_taken(capsys, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "in use" in port_problem(port, "127.0.0.1")
        assert main(["doctor", "--port", str(port), "--models", str(tmp_path)]) == 0
        streams = capsys.readouterr()
        assert f"note: port: 127.0.0.1, port {port}" in streams.err and "mta-viz app --port" in streams.err
        assert main(["app", "--port", str(port)]) == 2
        assert "choose another with --port" in capsys.readouterr().err
    assert port_problem(port, "127.0.0.1") is None
    assert "no.such.host.invalid" in port_problem(port, "no.such.host.invalid")


@pytest.mark.parametrize("file", ["container-packages", "install-app"])
def test_the_steps_of_the_container_are_there(file):
    root = Path(__file__).parents[2]
    steps = (root / "Dockerfile").read_text().splitlines()
    copied = [word for line in steps if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert all((root / name).exists() for name in copied) and f".ci/{file}" in copied
    assert (root / ".ci" / file).stat().st_mode & 0o100
    allowed = {line.removeprefix("!") for line in (root / ".dockerignore").read_text().splitlines()}
    assert {name.partition("/")[0] for name in copied} <= allowed
    user, start = (next(line for line in steps if line.startswith(word)) for word in ("USER", "CMD"))
    command = json.loads(start.removeprefix("CMD "))
    assert user == "USER mta" and build_parser().parse_args(command).address == "0.0.0.0"
