"""Where the app looks for models, and the words in the picker."""

import os
from dataclasses import replace

from mta_viz.checkpoint.reading import Found
from mta_viz.checkpoint.types import Summary
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.ui.shell.cache import changed, discovery
from mta_viz.ui.shell.models import grey_line, label, nothing_found, roots, shape_lines
from mta_viz.ui.shell.page import ASSETS


def test_options_come_first_then_the_environment_then_assets(tmp_path, monkeypatch):
    a, b, c, d = (tmp_path / name for name in "abcd")
    monkeypatch.setattr("sys.argv", ["app.py", "--models", str(a), f"--models={b}"])
    monkeypatch.setenv("MTA_VIZ_MODELS", os.pathsep.join([str(c), str(d), str(a), ""]))
    found = roots()
    assert set(found[:2]) == {a, b} and found[2:] == (c, d, ASSETS)


def _found(tmp_path, **options):
    config = ModelConfig(256, 4, 2, 2, 128, 512, 32, mta=MTAOptions(**options))
    summary = Summary(
        config=config,
        format="native",
        dtype="float16",
        tokenizer_name="char",
        tokenizer_path=None,
        n_bytes=6_800_000,
        path=tmp_path,
        steps=(),
        notes=(),
    )
    return Found(path=tmp_path / "run" / "blocks", name="blocks", summary=summary, problem=None)


def test_the_label_says_name_and_variant(tmp_path):
    found = _found(tmp_path, pre_kernel=(2, 9))
    assert label(found) == "blocks · MTA"
    assert label(found, ["blocks", "blocks"]).startswith("blocks (run)")


def test_the_grey_line_says_kernels_dtypes_and_format(tmp_path):
    line = grey_line(_found(tmp_path, pre_kernel=(2, 9), mta_layers=(1, 3)), "float32")
    size = "4 layers x 2 heads, 6.8 MB"
    assert line == f"{size} · kernels 2x9 before softmax in L1, 3 · float16 file, float32 run · native format"
    found = _found(tmp_path)
    quantised = replace(found, summary=replace(found.summary, format="gguf", dtype="float32"))
    assert grey_line(quantised, "float32").endswith("6.8 MB · float32 run · gguf format")
    everywhere = grey_line(_found(tmp_path, post_kernel=(6, 11), head_pre=True), "bfloat16")
    assert "kernels 6x11 after softmax in all layers · head mixing · " in everywhere


def test_an_unreadable_model_says_so(tmp_path):
    assert label(Found(path=tmp_path, name="x", summary=None, problem="bad")) == "x · cannot be read"


def test_an_empty_root_says_what_it_looked_for(tmp_path):
    text = nothing_found([tmp_path], ["a problem"])
    assert str(tmp_path) in text and "params.json" in text and "--models" in text and "a problem" in text


def test_missing_and_empty_roots_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    skipped = discovery((str(tmp_path / "gone"), str(tmp_path / "empty"))).skipped
    assert [str(tmp_path / name) in line for name, line in zip(("gone", "empty"), skipped, strict=True)]
    assert "is no folder" in skipped[0] and "Looked in it" in skipped[1]


def test_a_change_inside_a_step_of_a_run_is_seen(tmp_path):
    for step in ("0000000010", "0000000020"):
        folder = tmp_path / "checkpoints" / step
        folder.mkdir(parents=True)
        for name in ("params.json", ".metadata"):
            (folder / name).write_text("{}")
    before = [changed(tmp_path, step) for step in (10, 20)]
    metadata = tmp_path / "checkpoints" / "0000000010" / ".metadata"
    os.utime(metadata, (1, 1))
    assert [changed(tmp_path, step) for step in (10, 20)] == before  # touched, no more
    metadata.write_text("[]")
    assert changed(tmp_path, 10) > before[0] and changed(tmp_path, 20) == before[1]
    assert changed(tmp_path / "gone") == 0


def test_shapes_are_told_without_weights():
    lines = shape_lines(
        ModelConfig(256, 2, 2, 2, 128, 512, 32, mta=MTAOptions(pre_kernel=(2, 9), mta_layers=(1,)))
    )
    assert lines[0].startswith("parameters: ") and "no kernels" in lines[1]
    assert lines[2] == "L1: kernels before softmax 2x2x9"
