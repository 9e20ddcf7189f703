"""A file's tokenizer stops nobody: libraries that panic, run on or take all memory end their worker alone."""

import copy
import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_whole_texts import bpe
from tokenizers import Regex, decoders, normalizers, pre_tokenizers, processors

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers import worker as fence
from mta_viz.tokenizers.loading import load_tokenizer
from mta_viz.tokenizers.worker import fenced

ROOT = Path(__file__).parents[2]


def content(**steps: Any) -> bytes:
    library = bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel())
    for name, step in steps.items():
        setattr(library, name, step)
    return library.to_str().encode()


def panicking() -> bytes:
    """Its post-processor puts a token before a text that is not among its special tokens."""
    begin = processors.TemplateProcessing(single="<BOS> $A", special_tokens=[("<BOS>", 0)])
    settings = json.loads(content(post_processor=begin))
    settings["post_processor"]["special_tokens"] = {}
    return json.dumps(settings).encode()


def running_away() -> bytes:
    return content(pre_tokenizer=pre_tokenizers.Split(Regex("(a+)+$"), "isolated"))


def workers() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def test_a_panic_is_one_line_and_neighbours_go_on() -> None:
    with pytest.raises(TokenizerError, match=r"the library fails on it \(PanicException: [^\n]*\)\.$"):
        fenced("tokenizers", panicking()).encode("a")
    assert fenced("tokenizers", content()).encode("the").text == "the"


def test_a_file_that_makes_none_is_refused_each_time_it_is_asked_for() -> None:
    """Its worker takes a moment to end: it is not asked again meanwhile."""
    for _ in range(5):
        with pytest.raises(TokenizerError, match="the tokenizers library cannot read it"):
            fenced("tokenizers", b'{"model": 1, "added_tokens": []}')


def test_a_regex_that_runs_on_is_stopped_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "SECONDS", 1.0)
    slow, good = fenced("tokenizers", running_away()), fenced("tokenizers", content())
    counted: list[int] = []

    def count() -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            counted.append(len(good.encode("the thing")))
            time.sleep(0.01)

    beside = threading.Thread(target=count)
    beside.start()
    with pytest.raises(TokenizerError, match=r"the library takes more than 1 s for it|fails on it"):
        slow.encode("a" * 40 + "!")
    beside.join()
    assert len(counted) > 10
    assert slow.encode("the").text == "the"


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EMFILE, "raise the limit: ulimit -n 256"), (errno.ENOMEM, "could be started")],
)
def test_a_worker_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(TokenizerError, match=words):
        fenced("tokenizers", content(normalizer=normalizers.NFD())).encode("the")


def test_memory_is_limited() -> None:
    grows = fenced("tokenizers", content(normalizer=normalizers.Replace("a", "b" * 10**6)))
    with pytest.raises(TokenizerError, match=r"crashes on it, or takes too much memory"):
        grows.encode("a" * 3000)
    assert grows.encode("the").text == "the"


def test_a_worker_that_is_gone_is_replaced() -> None:
    before = workers()
    tokenizer = fenced("tokenizers", content(normalizer=normalizers.NFC()))
    (own,) = workers() - before
    ids = tokenizer.encode("the thing").ids
    os.kill(own, 9)
    assert tokenizer.encode("the thing").ids == ids


def test_it_is_copied_pickled_and_used_by_threads() -> None:
    tokenizer = fenced("tokenizers", content())
    copied = pickle.loads(pickle.dumps(copy.deepcopy(tokenizer)))
    assert (copied, hash(copied)) == (tokenizer, hash(tokenizer))
    texts = [f"the thing {number}" for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        assert [tokens.text for tokens in threads.map(copied.encode, texts)] == texts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
def test_a_fork_has_workers_of_its_own_and_they_end_with_their_processes(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content())
    program = """
import os, signal, sys, threading
from pathlib import Path
import psutil
from mta_viz.tokenizers.worker import fenced
tokenizer = fenced("tokenizers", Path(sys.argv[1]).read_bytes())
ids = tokenizer.encode("the thing").ids
busy = threading.Thread(target=lambda: [tokenizer.encode("the thing") for _ in range(1000)])
busy.start()
child = os.fork()  # while a call is under way
if not child:
    signal.alarm(20)
    assert tokenizer.encode("the thing").ids == ids
    assert len(psutil.Process().children()) == 1
else:
    busy.join()
    assert os.waitpid(child, 0)[1] == 0
    print(*(child.pid for child in psutil.Process().children()))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "tokenizer.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(psutil.pid_exists(int(pid)) for pid in done.stdout.split())


def test_a_prompt_that_ended_a_worker_is_refused_at_once_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fence, "SECONDS", 0.5)
    slow = fenced("tokenizers", running_away())
    for _ in range(3):
        begun = workers()
        with pytest.raises(TokenizerError):
            slow.encode("a" * 41 + "!")
    assert workers() == begun


def test_a_file_given_once_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mta_viz.tokenizers.loading import keep_given, remember_given

    monkeypatch.setenv("MTA_VIZ_TOKENIZERS", str(tmp_path / "given"))
    model, mine = tmp_path / "run" / "checkpoints" / "0000000010", tmp_path / "mine.json"
    model.mkdir(parents=True)
    mine.write_bytes(content())
    remember_given(model, mine)
    for place in (model, tmp_path / "run"):
        assert load_tokenizer("tokenizers", "/author/x.json", folder=place).given_before == mine
    mine.unlink()
    with pytest.raises(TokenizerError, match="/author/x"):
        load_tokenizer("tokenizers", "/author/x.json", folder=model)
    keep_given(model, "up.json", content())
    assert load_tokenizer("huggingface", "tokenizer.json", folder=model).kind == "huggingface"


def many_tokens() -> bytes:
    """200,000 added tokens, 27 MB."""
    settings = json.loads(content())
    look = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    first = len(settings["model"]["vocab"])
    settings["added_tokens"] = [{"id": first + at, "content": f"<{at}>", **look} for at in range(200_000)]
    return json.dumps(settings).encode()


@pytest.mark.skipif(sys.platform != "linux", reason="a system that may not count a process's own seconds")
def test_the_seconds_are_those_of_its_own_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = workers()
    tokenizer = fenced("tokenizers", many_tokens())  # of 10 s it takes 2, and 15 on the clock beside others
    (own,) = workers() - before
    monkeypatch.setattr(fence, "SECONDS", 1.5)
    monkeypatch.setattr(fence, "ENTRIES_A_SECOND", 10**9)
    for seconds, number in ((0.2, signal.SIGSTOP), (3.0, signal.SIGCONT)):
        threading.Timer(seconds, os.kill, (own, number)).start()
    text = "the thing " * 20_000
    assert tokenizer.encode(text).text == text and workers() - before == {own}
