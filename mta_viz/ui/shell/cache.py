"""What is kept between reruns and sessions: summaries, tokenizers, models and traces, all bounded.

Models and traces live in one process-wide `Stores`, filled by the threads of `work` and shared by all
sessions (a model serialises its own runs). `remember` keeps what is drawn from them.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from mta_viz.checkpoint.adapter import open_adapter
from mta_viz.checkpoint.digests import Watched
from mta_viz.checkpoint.locate import adapter_file, locate, sha256
from mta_viz.checkpoint.reading import Discovery, find_checkpoints, read_summary
from mta_viz.checkpoint.relatives import checked_base, find_base, missing_base
from mta_viz.checkpoint.types import Summary
from mta_viz.errors import CheckpointError, FileError
from mta_viz.model.turns import TICK, tell
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.chat import chat_template
from mta_viz.tokenizers.loading import load_tokenizer

T = TypeVar("T")

MAX_MODELS = 2
MAX_TRACES = 6
MAX_DRAWN = 128  # maps and figures, up to two megabytes each


@dataclass(frozen=True)
class ModelKey:
    """Everything that makes one loaded model: a changed file (`changed`, in ns) is another model.

    `base`: of an adapter, where its base lies; None: its kernels alone.
    """

    path: str
    changed: int
    device: str
    dtype: str
    tokenizer: str | None = None
    step: int | None = None
    base: str | None = None


@dataclass(frozen=True)
class RunKey:
    """One prompt (text or token ids) through one model."""

    model: ModelKey
    prompt: str | tuple[int, ...]

    @property
    def text(self) -> str:
        """A short string that is equal only for equal runs; keys caches and widgets."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


class BoundedStore:
    """A dictionary that forgets what was used longest ago; threads wait for one of them to make a value."""

    def __init__(self, size: int) -> None:
        self._size, self._values = size, OrderedDict[Hashable, Any]()
        self._lock, self._making = threading.Lock(), dict[Hashable, threading.Lock]()

    def get(self, key: Hashable) -> Any | None:
        """The value, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value, made by `make()` if it is not here. Errors of `make` pass through."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        while not making.acquire(timeout=TICK):
            tell(1)  # another makes it
        try:
            value = self.get(key)
            if value is None:
                value = make()
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self._size:
                        self._values.popitem(last=False)
            return value
        finally:
            with self._lock:
                self._making.pop(key, None)
            making.release()

    def clear(self) -> None:
        """Forget all of it."""
        with self._lock:
            self._values.clear()


@dataclass(frozen=True)
class Stores:
    """The models and traces of the process, and what was computed and drawn from them."""

    models: BoundedStore = field(default_factory=lambda: BoundedStore(MAX_MODELS))
    traces: BoundedStore = field(default_factory=lambda: BoundedStore(MAX_TRACES))
    drawn: BoundedStore = field(default_factory=lambda: BoundedStore(MAX_DRAWN))
    of_runs: BoundedStore = field(default_factory=lambda: BoundedStore(MAX_TRACES))  # they hold a run


@st.cache_resource(show_spinner=False)
def stores() -> Stores:
    """The process's stores."""
    return Stores()


def remember(make: Callable[[], T], *key: Hashable) -> T:
    """`make()`, once for each `key`: name what is made and everything it depends on."""
    return stores().drawn.get_or_make(key, make)


def remember_with_run(make: Callable[[], T], *key: Hashable) -> T:
    """The same for what holds a run."""
    return stores().of_runs.get_or_make(key, make)


@st.cache_resource(show_spinner="Looking for models ...", ttl=120, max_entries=4)
def discovery(roots: tuple[str, ...]) -> Discovery:
    """The checkpoints under `roots`; looked up again after two minutes or `discovery.clear()`."""
    return find_checkpoints([Path(root) for root in roots])


@dataclass(frozen=True)
class Base:
    """An adapter's base, or what to say where it is not found."""

    summary: Summary | None = None
    problem: str = ""

    @property
    def path(self) -> str | None:
        """Where it lies."""
        return None if self.summary is None else str(self.summary.path)


@st.cache_resource(show_spinner="Looking for the adapter's base ...", ttl=120, max_entries=32)
def base_of(path: str, changed: int, given: str | None, roots: tuple[str, ...]) -> Base:
    """The base of the adapter at `path`: what lies at `given`, else the one found: `find_base`."""
    try:
        adapter = open_adapter(adapter_file(locate(Path(path))))
        if given:
            return Base(read_summary(checked_base(adapter, Path(given).expanduser())))
        place = find_base(adapter, list(map(Path, roots)))
        return Base(problem=missing_base(adapter)) if place is None else Base(read_summary(place))
    except CheckpointError as error:
        return Base(problem=str(error))


def changed(path: Path, step: int | None = None) -> int:
    """A number for what a checkpoint's files hold, a run's step folder included; another once any changed.

    About when that was, in ns. Touched files, and those that their copies replaced, are the same.
    """
    return _watched(path, step).state(_files(path, step))


def changes(path: Path, step: int | None = None) -> tuple[str, ...]:
    """What changed last while the app was there, a sentence a file."""
    return _watched(path, step).words


@lru_cache(maxsize=256)
def _watched(path: Path, step: int | None) -> Watched:
    return Watched()


def written(path: Path) -> int:
    """When it was last written, in ns, wherever that was."""
    times = [0]
    for file in (path, *_files(path)):
        with suppress(OSError):  # gone, or replaced at this moment
            times.append(file.stat().st_mtime_ns)
    return max(times)


def _files(path: Path, step: int | None = None) -> Iterator[Path]:
    folders = {path}
    with suppress(CheckpointError):  # reading it will say what is wrong
        folders.add(locate(path, step).folder)
    for folder in folders:
        with suppress(OSError):  # gone, or nobody may look: reading it will say so
            yield from folder.iterdir() if folder.is_dir() else (folder,)


def digest(key: ModelKey) -> str:
    """The sha256 of a checkpoint's weights, read once."""
    return weights_digest(str(locate(Path(key.path), key.step).folder), key.changed)


@st.cache_data(show_spinner="Reading the weights for their sha256 ...", max_entries=16)
def weights_digest(folder: str, changed: int) -> str:
    """The sha256 of the weights in a folder, read once for each state of its files."""
    return sha256(folder)


@st.cache_resource(show_spinner=False, max_entries=8)
def chat_place(path: str, changed: int) -> Path | None:
    """Where the chat template of the model at `path` is, None without one; looked at again once `changed`."""
    place = locate(Path(path)).folder
    try:
        return None if chat_template(place) is None else place
    except FileError:
        return place  # rendering it will say what is wrong


@st.cache_resource(show_spinner=False, max_entries=8)
def tokenizer(name: str, path: str | None, folder: str, override: str | None, changed: int) -> Tokenizer:
    """A checkpoint's tokenizer without its weights, read again once `changed`. Raises TokenizerError."""
    return load_tokenizer(name, path, folder=Path(folder), override=Path(override) if override else None)
