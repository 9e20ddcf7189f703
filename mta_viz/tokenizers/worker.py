"""Tokenizers of files, each in a worker that is held to limits of time and memory, and replaced when it ends.

Libraries run what a file says: its regexes and normalizers may run for ever, hold Python's lock, take
all memory, or panic. In a process of its own, `python -m mta_viz.tokenizers.worker`, each of them ends
that process alone. It reads frames, a length of eight bytes and so many bytes: what to open and the
file's content, then calls; and writes a frame of JSON for each.

To whoever uses one it is a tokenizer like any other. Owns the workers too: started when first needed,
one a file, the ones used longest ago ended; they end with the process that started them.
"""

import atexit
import errno
import faulthandler
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

from mta_viz.errors import FEW_FILES, TokenizerError
from mta_viz.printed import printable
from mta_viz.tokenizers.base import Tokenizer, Tokens

# Module and class of each kind that a library makes.
KINDS = {
    "tiktoken": ("model_files", "TiktokenTokenizer"),
    "sp": ("model_files", "SentencePieceTokenizer"),
    "sp-plain": ("model_files", "PlainSentencePieceTokenizer"),
    "tokenizers": ("hf_json", "JsonTokenizer"),
    "huggingface": ("hf_json", "HuggingFaceTokenizer"),
}
OPENING_SECONDS = 10.0  # of a processor: a file as large as they come takes 2 to 4
PATIENCE = 6  # seconds on the clock for each of a processor that others take, too
BYTES, BYTES_A_BYTE = 5 * 2**27, 16  # of memory: for Python and any text, and for each byte of the file


def read_frame(stream: BinaryIO) -> bytes:
    """The next frame; nothing where the other end has ended."""
    size = int.from_bytes(stream.read(8), "big")
    content = stream.read(size)
    return content if len(content) == size else b""


def write_frame(stream: BinaryIO, content: bytes) -> None:
    """Raises OSError where the other end has ended."""
    stream.write(len(content).to_bytes(8, "big"))
    stream.write(content)
    stream.flush()


def open_content(kind: str, content: bytes, end: str | None) -> Tokenizer:
    """The tokenizer, here and now; a text ends with the token `end`, if it has that. TokenizerError."""
    module, name = KINDS[kind]
    tokenizer = getattr(import_module(f"mta_viz.tokenizers.{module}"), name)(content)
    return tokenizer if end is None else tokenizer.ending_with(end)  # type: ignore[no-any-return]


def main() -> None:
    """Open one tokenizer and answer for it until the other end is gone, each call within its seconds."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other end
    about, content = json.loads(read_frame(source)), read_frame(source)
    _limit_seconds(OPENING_SECONDS)
    _limit_memory(BYTES + BYTES_A_BYTE * len(content))
    opened: list[Tokenizer] = []

    def facts() -> dict[str, Any]:
        opened.append(open_content(about["kind"], content, about["end"]))
        return {name: getattr(opened[0], name) for name in ("vocab_size", "bos_id", "eos_id")}

    goes_on = _answer(sink, facts)
    while goes_on and opened and (asked := read_frame(source)):
        name, argument, seconds = json.loads(asked)
        _limit_seconds(seconds)
        goes_on = _answer(sink, partial(_CALLS[name], opened[0], argument))
        faulthandler.cancel_dump_traceback_later()


def _encoded(tokenizer: Tokenizer, text: str) -> Any:
    """Ids, where the tokens end in the text, which spans partition, and the label of each different id."""
    tokens = tokenizer.encode(text)
    labels = dict(zip(tokens.ids, tokens.pieces, strict=True))
    return tokens.ids, [end for _, end in tokens.spans], list(labels.items())


_CALLS: dict[str, Callable[[Tokenizer, Any], Any]] = {
    "encode": _encoded,
    "decode": lambda tokenizer, ids: tokenizer.decode(ids),
    "pieces": lambda tokenizer, ids: tokenizer.pieces(ids),
}


def _answer(sink: BinaryIO, make: Callable[[], Any]) -> bool:
    """Write what `make` gives, or what is wrong; whether the library can be asked again."""
    reply, goes_on = {}, True
    try:
        reply["value"] = make()
    except TokenizerError as error:
        reply["error"] = str(error)
    except BaseException as error:  # a panic is none of the class Exception
        reply["failure"], goes_on = f"{type(error).__name__}: {str(error)[:1000]}", False
    write_frame(sink, json.dumps(reply).encode())
    return goes_on


def _limit_seconds(seconds: float) -> None:
    """From now on the process has so many; then it ends, whoever holds Python's lock."""
    try:
        import resource

        most = int(time.process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # that limit's signal would leave a core file
        seconds *= PATIENCE
    except (ImportError, OSError, ValueError):  # no such limit here: the clock's alone
        pass
    faulthandler.dump_traceback_later(seconds, exit=True)


def _limit_memory(n_bytes: int) -> None:
    """At most `n_bytes` of address space, where the system can hold the process to that."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


SECONDS = 5.0  # of a call
ENTRIES_A_SECOND = 50_000  # characters or ids; a book takes longer
MOST_WORKERS, MOST_TOKENS = 8, 2**24
REMEMBERED_SECONDS, MOST_REMEMBERED = 60.0, 64
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Contents:
    """What a worker opens: a file's kind and bytes, and the token that ends a text where its own does not."""

    kind: str
    sha256: str
    end: str | None
    content: bytes = field(repr=False, compare=False)


@dataclass(unsafe_hash=True)  # the protocol's attributes are no properties; nothing sets them
class FencedTokenizer:
    """A tokenizer in a worker. Raises TokenizerError also where the library fails or takes too much.

    `given_before`: the file, where the user gave it in an earlier run and the checkpoint's own makes none.
    """

    kind: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    contents: Contents
    given_before: Path | None = field(default=None, compare=False)

    def encode(self, text: str) -> Tokens:
        """BOS (if the tokenizer has one) + ids of `text`. Raises TokenizerError."""
        ids, ends, labels = _ask(self.contents, "encode", text)
        pieces = map(dict(labels).__getitem__, ids)
        return Tokens(tuple(ids), tuple(pieces), tuple(pairwise([0, *ends])), text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, as the tokenizer gives it. Raises TokenizerError."""
        return str(_ask(self.contents, "decode", list(map(int, ids))))

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """One label per id. Raises TokenizerError."""
        return tuple(_ask(self.contents, "pieces", list(map(int, ids))))


def fenced(kind: str, content: bytes, end: str | None = None) -> FencedTokenizer:
    """The tokenizer of a file's content; a text ends with the token `end`, if it has that. TokenizerError."""
    contents = Contents(kind, hashlib.sha256(content).hexdigest(), end, content)
    facts = _ask(contents, "facts", None)
    if facts["vocab_size"] > MOST_TOKENS:
        raise TokenizerError(f"its ids go up to {facts['vocab_size'] - 1:,}; at most {MOST_TOKENS:,} tokens.")
    return FencedTokenizer(kind, **facts, contents=contents)


class _Worker:
    """A process with one tokenizer in it; one call at a time."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._lock = contents, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._facts: dict[str, Any] = {}

    def ask(self, call: str, argument: Any) -> Any:
        """What the tokenizer answers. Raises TokenizerError, `_Ended` where the worker did not live on."""
        with self._lock:
            try:
                with suppress(_Gone):
                    return self._answer(call, argument)
                return self._answer(call, argument)  # of a new worker: the system may have ended the old one
            except TokenizerError:
                raise
            except BaseException:  # interrupted: the next answer would be this call's
                self._stop()
                raise

    def stop(self) -> None:
        """End the process, if there is one, after a call that is under way."""
        with self._lock:
            self._stop()

    @property
    def process(self) -> int | None:
        """Its id, while it lives."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def kill(self) -> None:
        """The same at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answer(self, call: str, argument: Any) -> Any:
        # One that opened nothing says so and is about to end.
        if starts := not self._facts or self._process is None or self._process.poll() is not None:
            self._stop()
            self._facts = self._start()
        if call == "facts":
            return self._facts
        seconds = SECONDS + len(argument) / ENTRIES_A_SECOND
        try:
            return self._exchange([json.dumps([call, argument, seconds]).encode()], seconds)
        except _Gone as error:
            raise (_Ended(str(error)) if starts else error) from None

    def _start(self) -> dict[str, Any]:
        path = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mta_viz.tokenizers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # where panics print
                env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            few = error.errno in (errno.EMFILE, errno.ENFILE)
            reason = FEW_FILES if few else f"no process could be started for it ({error.strerror})"
            raise TokenizerError(f"{reason}.") from error
        about = {"kind": self._contents.kind, "end": self._contents.end}
        frames = [json.dumps(about).encode(), self._contents.content]
        return cast(dict[str, Any], self._exchange(frames, OPENING_SECONDS))

    def _exchange(self, frames: Sequence[bytes], seconds: float) -> Any:
        process, begun = cast("subprocess.Popen[bytes]", self._process), time.monotonic()
        try:
            for frame in frames:
                write_frame(cast(BinaryIO, process.stdin), frame)
            answer = read_frame(cast(BinaryIO, process.stdout))
        except OSError:
            answer = b""
        reply = json.loads(answer or "{}")
        if "error" in reply:
            raise TokenizerError(reply["error"])
        if "value" not in reply:
            if failure := reply.get("failure"):
                self._stop()
                raise _Ended(f"the library fails on it ({printable(failure)}).")
            with suppress(subprocess.TimeoutExpired):  # it ends, by its limit or by itself
                process.wait(1.0)
            over_limit = process.returncode == -getattr(signal, "SIGXCPU", 24)
            self._stop()
            if over_limit or time.monotonic() - begun >= seconds:
                raise _Ended(f"the library takes more than {seconds:.0f} s for it.")
            raise _Gone("the library crashes on it, or takes too much memory for it.")
        return reply["value"]

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:  # closes the pipes and waits
                self._process = None


class _Ended(TokenizerError):
    """The worker did not live through a call."""


class _Gone(_Ended):
    """It says not why."""


_workers: OrderedDict[Contents, _Worker] = OrderedDict()
_refused: OrderedDict[tuple[Contents, str, int], tuple[float, str]] = OrderedDict()
_lock = threading.Lock()
_inherited: list[object] = []


def _ask(contents: Contents, call: str, argument: Any) -> Any:
    """The worker's answer. What ended a worker is refused at once when it is asked for again soon."""
    if _refused:
        at, message = _refused.get(_key(contents, call, argument), (0.0, ""))
        if message and time.monotonic() - at < REMEMBERED_SECONDS:
            raise TokenizerError(message)
    try:
        return _worker_of(contents).ask(call, argument)
    except _Ended as error:
        message = str(error)
        if call != "facts":
            what_to_do = "Change the prompt, or give another tokenizer file."
            message = f"The model's tokenizer cannot {call} this: {message} {what_to_do}"
        with _lock:
            _refused[_key(contents, call, argument)] = time.monotonic(), message
            while len(_refused) > MOST_REMEMBERED:
                _refused.popitem(last=False)
        raise TokenizerError(message) from None


def _key(contents: Contents, call: str, argument: Any) -> tuple[Contents, str, int]:
    return contents, call, hash(str(argument))


def _worker_of(contents: Contents) -> _Worker:
    with _lock:
        worker = _workers.setdefault(contents, _Worker(contents))
        _workers.move_to_end(contents)
        last = _workers.popitem(last=False)[1] if len(_workers) > MOST_WORKERS else None
    if last is not None:
        last.stop()
    return worker


def processes() -> list[tuple[str, int]]:
    """(kind of tokenizer, process) of each worker that lives, the one used longest ago first."""
    with _lock:
        running = [(contents.kind, worker.process) for contents, worker in _workers.items()]
    return [(kind, process) for kind, process in running if process is not None]


@atexit.register
def _stop_all() -> None:
    for worker in _workers.values():
        worker.kill()


def _after_fork() -> None:
    """A fork may not talk to the workers of the process it came from, nor wait for its threads' locks."""
    global _workers, _lock
    _inherited.append(_workers)
    _workers, _lock = OrderedDict(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


if __name__ == "__main__":
    main()
