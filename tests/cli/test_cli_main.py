"""What all commands share: quick help, one line for an error, interruption, a pipe nobody reads."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from argparse import Namespace
from importlib import import_module

import pytest
import torch
from cli_support import ROOT, assert_refused
from tokenizers import Tokenizer as Library
from tokenizers import models

import mta_viz
from mta_viz.checkpoint.native import write_native
from mta_viz.cli import COMMANDS, build_parser, info
from mta_viz.config import DTYPES
from mta_viz.errors import CheckpointError
from mta_viz.model.stages import Stage
from tests.tiny_models import FULL, config, random_weights

FLAG = re.compile(r"--[a-z][a-z-]*")


@pytest.mark.parametrize("words", [["--help"], ["trace", "--help"], ["train", "needle"]])
def test_help_and_usage_answer_without_the_slow_libraries(words):
    code = (
        "import sys; from mta_viz.cli import main\n"
        f"try: main({words})\n"
        "except SystemExit: print({'torch', 'numpy', 'pandas', 'streamlit', 'plotly'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.endswith("set()\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "COMMAND"),
        (("look", "x"), "look"),
        (("info",), "PATH"),
        (("info", "x", "--vocab-size", "0"), "from 1 to"),
        (("effects", "x", "--samples", "999999999999"), "from 1 to 10,000,000"),
        (("shapley", "x", "--samples", "9" * 6000), "from 1 to 10,000,000"),
        (("generate", "x", "--prompt", "a", "--max-new-tokens", "-3"), "from 1 to"),
        (("trace", "x", "--out", "y"), "--prompt"),
        (("trace", "x", "--out", "y", "--prompt", "a", "--tokens", "b"), "not allowed"),
        (("trace", "x", "--out", "y", "--prompt", "a", "--layers", "0,-1"), "0,3"),
        (("trace", "x", "--out", "y", "--prompt", "a", "--dtype", "int8"), "bfloat16"),
    ],
)
def test_a_wrong_command_line_is_one_line(run, words, said):
    answer = run(*words)
    assert_refused(answer, said)
    assert len(answer.err.splitlines()) == 1


def _command(monkeypatch: pytest.MonkeyPatch, run) -> None:
    monkeypatch.setattr(info, "run", run)


def test_every_problem_of_a_checkpoint_is_listed_below_the_error(run, monkeypatch):
    def refuse(arguments: Namespace) -> dict:
        raise CheckpointError(["wq is missing", "wk is misshapen"])

    _command(monkeypatch, refuse)
    answer = run("info", "x")
    assert_refused(answer, "2 problems", "  - wq is missing\n  - wk is misshapen")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_that_is_documented_exists(run, name):
    """The help's first paragraph, the usage, lists all flags there are."""
    module = import_module(f"mta_viz.cli.{name.replace('-', '_')}")
    parsers = [(name, "blocks"), (name, "needle")] if name == "train" else [(name,)]
    helps = [run(*words, "--help").out.partition("\n\n") for words in parsers]
    there = {flag for usage, _, _ in helps for flag in FLAG.findall(usage)}
    documented = [module.__doc__, module.HELP, *(text for _, _, text in helps)]
    assert "--help" not in module.__doc__ and module.HELP
    assert {flag for text in documented for flag in FLAG.findall(text)} - there - {"--help"} == set()


def test_a_file_that_cannot_be_read_is_named(run, monkeypatch, tmp_path):
    _command(monkeypatch, lambda arguments: (tmp_path / "absent").read_text())
    assert_refused(run("info", "x"), "absent", "No such file")


def test_a_fault_of_the_program_is_not_disguised(run, monkeypatch):
    _command(monkeypatch, lambda arguments: {}["absent"])
    with pytest.raises(KeyError):
        run("info", "x")


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("story", "x", "--prompt", "a", "--out", "story.png"), ".json"),
        (("lens", "x", "--prompt", "a", "--out", "lens.csv"), ".json"),
        (("needle", "x", "--out", "needle.html"), ".json"),
        (("trace", "x", "--prompt", "a", "--out", "trace.npz"), ".safetensors"),
        (("questions", "x", "--out", "answers.json"), ".csv"),
    ],
)
def test_no_file_is_written_under_the_name_of_another_kind(run, words, ending):
    answer = run(*words)
    assert answer.status == 2 and f"what is written here is a {ending} file" in answer.err


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_is_one_line(run, monkeypatch, error):
    def fail(arguments: Namespace) -> dict:
        raise error

    _command(monkeypatch, fail)
    assert_refused(run("info", "x"), "no memory is left; end other programs")


def test_interruption_ends_with_130_and_no_traceback(run, monkeypatch):
    def interrupt(arguments: Namespace) -> dict:
        raise KeyboardInterrupt

    _command(monkeypatch, interrupt)
    answer = run("info", "x")
    assert (answer.status, answer.out, answer.err) == (130, "", "\ninterrupted\n")


@pytest.mark.usefixtures("interruptible")
def test_a_real_interrupt_in_a_real_process():
    code = (
        "import sys, time; from mta_viz import __main__; from mta_viz.cli import info\n"
        "def wait(arguments): print('ready', file=sys.stderr, flush=True); time.sleep(30)\n"
        "info.run = wait\n"
        "sys.argv = ['mta_viz', 'info', 'x']\n"
        "sys.exit(__main__.main())"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130 and said == "\ninterrupted\n"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("failure", ["", "raise ImportError('half a module')"])
@pytest.mark.parametrize("module", ["mta_viz.cli.flags", "torch", "transformer_lens"])
def test_an_interrupt_while_modules_are_imported(module: str, failure: str):
    """Also where the interrupt surfaces as another error."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            try: os.kill(os.getpid(), signal.SIGINT)\n"
        f"            finally: {failure or 'pass'}\n"
        "sys.meta_path.insert(0, Interrupting)\n"
        "sys.argv = ['mta_viz', 'trace', 'x', '--prompt', 'a', '--out', 'y']\n"
        "runpy.run_module('mta_viz', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


def test_an_interrupt_stays_ignored_where_it_was():
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from mta_viz import __main__; from mta_viz.cli import info\n"
        "info.run = lambda arguments: {'ignored': signal.getsignal(signal.SIGINT) is signal.SIG_IGN}\n"
        "sys.argv = ['mta_viz', 'info', 'x']\n"
        "sys.exit(__main__.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == {"ignored": True}


def test_a_closed_pipe_is_no_traceback():
    code = (
        "import sys; from mta_viz.cli import info, main\n"
        "info.run = lambda arguments: ['x']\n"
        "sys.exit(main(['info', 'x']))"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    os.close(reader)
    _, said = process.communicate(timeout=10)
    assert said == b"" and process.returncode == 141


def test_a_python_without_the_packages_is_told_which_to_use():
    code = "import sys; sys.modules['torch'] = None; from mta_viz.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "this Python has no package torch" in done.stderr and ".venv/bin/python -m mta_viz" in done.stderr


def test_stdout_is_plain_json_in_any_locale(run, monkeypatch):
    _command(monkeypatch, lambda arguments: {"text": "é\ud800"})
    answer = run("info", "x")
    assert answer.out.isascii() and json.loads(answer.out) == {"text": "é\ud800"}


def test_every_command_computes_in_what_the_notebook_does_and_says_so(run, tmp_path):
    (commands,) = build_parser()._subparsers._group_actions
    defaults = {name: command.get_default("dtype") for name, command in commands.choices.items()}
    there = {name for name, dtype in defaults.items() if dtype is not None}
    assert {"cells", "ablate", "attribute", "needle", "effects", "lens", "paths"} <= there
    usual = inspect.signature(mta_viz.load).parameters["dtype"].default
    assert {defaults[name] for name in there} == {str(usual).removeprefix("torch.")} == {DTYPES[0]}
    shapes = config(FULL, 32)  # a file of 16 bits, which is not what is computed in
    half = {"tokenizer_name": "char", "tokenizer_path": None, "dtype": torch.float16}
    write_native(tmp_path / "half", shapes, random_weights(shapes), **half)
    words = ("cells", tmp_path / "half", "--prompt", "abc.def", "--layer", 1, "--head", 2, "--stage", "kq")
    answer, rough = run(*words), run(*words, "--dtype", "float16")
    trace = mta_viz.capture(mta_viz.load(tmp_path / "half"), "abc.def")
    (first, *_), cells = mta_viz.top_cells(trace, 1, 2, Stage.KQ), answer.json["cells"]
    assert cells[0]["value"] == first.value != rough.json["cells"][0]["value"]
    assert (answer.json["computed_in"], rough.json["computed_in"]) == ("float32", "float16")
    assert "computed in float32" in repr(trace)


def test_lists_of_numbers_stay_on_one_line_and_texts_as_they_are(run, monkeypatch):
    answer = {"ids": [1, 2], "stages": ["a"], "text": "[\n1, 2\n]", "nested": [{"pre": [3, 4], "post": []}]}
    _command(monkeypatch, lambda arguments: answer)
    said = run("info", "x")
    assert said.json == answer
    assert '"ids": [1, 2]' in said.out and '"pre": [3, 4]' in said.out


def test_a_tokenizer_given_once_is_taken_again_and_said(run, small, tmp_path):
    params = json.loads((small / "params.json").read_text())
    params["data"]["tokenizer"] = {"name": "tokenizers", "path": "D:\\runs\\x\\words.json"}
    (small / "params.json").write_text(json.dumps(params))
    Library(models.WordLevel({"the": 0}, "the")).save(str(tmp_path / "mine.json"))
    words = "generate", small, "--prompt", "the", "--max-new-tokens", "1"
    assert_refused(run(*words), "needs the tokenizer", "words.json is missing")
    assert run(*words, "--tokenizer", tmp_path / "mine.json").status == 0
    answer = run(*words)
    assert answer.status == 0
    assert "mine.json, which was given for this model before" in answer.err
