"""A tokenizer in a process of its own: `python -m mta_viz.tokenizers.worker`, which fenced.py starts.

Libraries run what a file says: its regexes and normalizers may run for ever, hold Python's lock, take all
memory, or panic. Here each of them ends this process alone. It reads frames, a length of eight bytes and so
many bytes: what to open and the file's content, then calls; and writes a frame of JSON for each.
"""

import faulthandler
import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.base import Tokenizer

# Module and class of each kind that a library makes.
KINDS = {
    "tiktoken": ("tiktoken_ranks", "TiktokenTokenizer"),
    "sp": ("sentencepiece_model", "SentencePieceTokenizer"),
    "sp-plain": ("sentencepiece_model", "PlainSentencePieceTokenizer"),
    "tokenizers": ("hf_json", "JsonTokenizer"),
    "huggingface": ("hf_json", "HuggingFaceTokenizer"),
}
OPENING_SECONDS, SECONDS_A_BYTE = 10.0, 5e-7
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


def opening_seconds(content: bytes) -> float:
    """How long a file may take to open."""
    return OPENING_SECONDS + SECONDS_A_BYTE * len(content)


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
    # A thread of its own ends the process, whoever holds Python's lock.
    faulthandler.dump_traceback_later(opening_seconds(content), exit=True)
    _limit_memory(BYTES + BYTES_A_BYTE * len(content))
    opened: list[Tokenizer] = []

    def facts() -> dict[str, Any]:
        opened.append(open_content(about["kind"], content, about["end"]))
        return {name: getattr(opened[0], name) for name in ("vocab_size", "bos_id", "eos_id")}

    goes_on = _answer(sink, facts)
    while goes_on and opened and (asked := read_frame(source)):
        name, argument, seconds = json.loads(asked)
        faulthandler.dump_traceback_later(seconds, exit=True)
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


def _limit_memory(n_bytes: int) -> None:
    """At most `n_bytes` of address space, where the system can hold the process to that."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


if __name__ == "__main__":
    main()
