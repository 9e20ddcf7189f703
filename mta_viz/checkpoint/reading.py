"""Any checkpoint path -> `Checkpoint` or `Summary`: the one door to all formats.

Finds the format, puts together what params.json, the tokenizer and the weights file say, and
reports every fault of a broken folder in one error. Finds the checkpoints in a user's folders. Never writes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import (
    adapter,
    digests,
    door,
    dumps,
    forms,
    gguf,
    huggingface,
    layout,
    lingua,
    native,
    parts,
    types,
)
from mta_viz.checkpoint.files import PARAMS, beside, read_params
from mta_viz.checkpoint.forms import table_problems
from mta_viz.checkpoint.hub import MISSING, WORD
from mta_viz.checkpoint.locate import (
    LOOKED_FOR,
    Location,
    adapter_file,
    checkpoint_folders,
    is_folder,
    is_model_file,
    locate,
    weight_files,
    without_weights,
)
from mta_viz.checkpoint.params import Parsed, parse_params
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError, TokenizerError
from mta_viz.printed import printable
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.loading import kind_of_file, unnamed_file


@dataclass(frozen=True)
class _Kind:
    """How the weights of a format are opened, where parameters lie in them, and what messages call that."""

    weights: Callable[[Path], types.StoredWeights]
    entries: Callable[[ModelConfig], dict[str, layout.Entry]] = layout.file_entries
    words: layout.FileWords = layout.LINGUA


_KINDS: Mapping[types.Format, _Kind] = {
    "native": _Kind(parts.open_native),
    "lingua": _Kind(parts.open_torch),
    "dcp": _Kind(lingua.open_dcp),
    "kernels": _Kind(dumps.open_kernels, layout.kernel_entries),
    "adapter": _Kind(lambda path: native.open_safetensors(adapter_file(Location(path, "adapter")))),
    "params": _Kind(lambda folder: types.StoredWeights({})),
    "gguf": _Kind(lambda file: gguf.open_gguf(file)[1], gguf.gguf_entries, gguf.WORDS),
    "huggingface": _Kind(parts.open_native, huggingface.file_entries, huggingface.WORDS),
}
_NO_FOLDER = {WORD: f"is no folder, and {MISSING}"}
_OF_FOLDERS = (huggingface.CONFIG, huggingface.INDEX)  # which say nothing without the weights beside them


def read_checkpoint(
    path: Path | str,
    *,
    tokenizer: Path | None = None,
    step: int | None = None,
    progress: Callable[[float], None] | None = None,
    conversion: types.Conversion | None = None,
) -> types.Checkpoint:
    """Read the model at `path`: a folder of any format, a file in it, a run folder, or a GGUF file.

    `tokenizer` is the user's own tokenizer file; `step` chooses one of a run (the last by default);
    `progress` gets the fraction of bytes read. Tensors have memory of their own and the file's dtype, or
    that of `conversion`.
    Raises CheckpointError listing everything wrong with the folder. A tokenizer file that is not
    there is no error: `tokenizer` is None and `tokenizer_problem` says which file is wanted. Of an adapter
    these are its own tensors; `relatives.read_model` puts it on its base.
    """
    location = locate(Path(path), step)
    if location.format == "adapter":
        return adapter.open_adapter(adapter_file(location)).alone(location.folder, progress)
    if location.format == "params":
        raise CheckpointError([without_weights(location.folder)], printable(location.folder))
    kind = _KINDS[location.format]
    settings = beside(location.folder) / kind.words.settings
    found = _inspect(location, settings, open_tokenizer=True, given=tokenizer, vocab_size=None)
    config = found.checked()
    try:
        if problems := table_problems(config, found.weights.tables, kind.words.settings):
            raise CheckpointError(problems)
        tensors, entries = found.weights.tensors, kind.entries(config)
        files = digests.noted(weight_files(location))
        state_dict = layout.read_parameters(config, tensors, progress, entries, kind.words, conversion)
    except CheckpointError as error:
        raise CheckpointError(error.problems, printable(location.folder)) from error
    stored = types.common_dtype(found.weights), found.weights.n_bytes
    return types.Checkpoint(
        config=config,
        state_dict=state_dict,
        tokenizer=found.opened.tokenizer,
        source=types.Source(location.folder, location.format, *stored, location.step, files=files),
        tokenizer_name=found.parsed.tokenizer_name,
        tokenizer_problem=found.opened.problem,
        notes=found.notes,
        tokenizer_path=found.opened.path,
    )


def open_weights(location: Location) -> types.StoredWeights:
    """The model's tensors at a location, unread, under printable names: a file may name its tensors anything.

    Where it holds something else than a model, that is its problem.
    """
    kind = _KINDS[location.format]
    weights = kind.weights(location.folder)
    tensors = {printable(key): tensor for key, tensor in weights.tensors.items()}
    problems = tuple(printable(problem, 1000) for problem in weights.problems)
    unreadable = {printable(key): printable(problem, 1000) for key, problem in weights.unreadable.items()}
    named = replace(weights, tensors=tensors, problems=problems, unreadable=unreadable)
    return named if location.format == "gguf" else forms.plain(named, kind.words.embedding)


def read_summary(path: Path | str, *, vocab_size: int | None = None) -> types.Summary:
    """Describe the checkpoint at `path` (a folder, or a params.json alone) without reading weights.

    `vocab_size` takes the place of the one in params.json. Raises CheckpointError listing every
    fault that shows without reading values.
    """
    path = Path(path)
    alone = path.is_file() and path.suffix == ".json" and path.name not in _OF_FOLDERS
    location = Location(path.parent, "params") if alone else locate(path)
    if location.format == "adapter":
        return adapter.open_adapter(adapter_file(location)).summary(location.folder)
    settings = path if alone else beside(location.folder) / _KINDS[location.format].words.settings
    found = _inspect(location, settings, open_tokenizer=False, given=None, vocab_size=vocab_size)
    return types.Summary(
        config=found.checked(),
        format=location.format,
        dtype=types.common_dtype(found.weights) or found.parsed.dtype,
        tokenizer_name=found.parsed.tokenizer_name,
        tokenizer_path=found.opened.path,
        n_bytes=found.weights.n_bytes,
        path=path if alone else location.folder,
        steps=location.steps,
        notes=found.notes,
        step=location.step,
    )


@dataclass(frozen=True)
class _OpenedTokenizer:
    """The tokenizer, or why there is none; `given`: the user chose the file; `broken`: there is one."""

    tokenizer: Tokenizer | None = None
    problem: str | None = None
    path: str | None = None
    given: bool = False
    broken: bool = False


@dataclass(frozen=True)
class _Findings:
    location: Location
    parsed: Parsed
    opened: _OpenedTokenizer
    weights: types.StoredWeights
    problems: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        dtypes = sorted({types.dtype_name(tensor.dtype) for tensor in self.weights.tensors.values()})
        mixed = [f"the file mixes dtypes: {', '.join(dtypes)}"] if len(dtypes) > 1 else []
        before = getattr(self.opened.tokenizer, "given_before", None)
        given = [f"the tokenizer is {printable(before)}, which was given for this model before"]
        return (*self.parsed.notes, *self.weights.notes, *mixed, *(given if before else ()))

    def checked(self) -> ModelConfig:
        """The configuration; raises CheckpointError with every problem found."""
        problems = self.problems
        # A missing tokenizer alone stops nothing, but a list of faults is complete only with it.
        if self.opened.problem and (problems or self.opened.given):
            problems = (*problems, self.opened.problem)
        if problems or self.parsed.config is None:
            raise CheckpointError(problems, printable(self.location.folder))
        return self.parsed.config


def _inspect(
    location: Location, settings: Path, *, open_tokenizer: bool, given: Path | None, vocab_size: int | None
) -> _Findings:
    """`given` is the user's own tokenizer file; a vocabulary that is the tokenizer's has it opened anyway."""
    if location.format == "gguf":
        return _inspect_gguf(location, open_tokenizer, given)
    if location.format == "kernels" and not location.folder.is_dir():
        return _inspect_dump(location)
    params, problems = read_params(settings)
    weights = open_weights(location)
    if problems:  # a file that is cut short may hold its settings itself
        known = () if not weights.n_bytes and location.folder.is_file() else problems
        return _Findings(location, Parsed(None), _OpenedTokenizer(), weights, (*known, *weights.problems))
    if location.format == "huggingface":
        return _inspect_huggingface(location, params, weights, open_tokenizer, given)
    model = params.get("model") if isinstance(params, dict) else None
    if isinstance(params, dict) and model is None and {"dim", "n_layers", "n_heads"} <= params.keys():
        model = params  # Llama's own params.json is what Lingua's has under `model`
        params = {"model": model}
    by_tokenizer = False
    if isinstance(model, dict):
        model = model if vocab_size is None else {**model, "vocab_size": vocab_size}
        params = {**params, "model": model}
        by_tokenizer = model.get("vocab_size", -1) == -1
        open_tokenizer |= by_tokenizer
        params = _with_tokenizer(params, given or unnamed_file(location.folder))
    named = parse_params(params, vocab_size=1)  # for the tokenizer's name; its size comes with it
    opened = _OpenedTokenizer(path=named.tokenizer_path)
    if open_tokenizer:
        opened = _open_tokenizer(named, beside(location.folder), given)
    hints = layout.shape_hints(weights.tensors)
    size = opened.tokenizer.vocab_size if opened.tokenizer else hints.get("vocab_size")
    parsed = parse_params(params, vocab_size=size, stand_ins=hints)
    misfits = _misfits(parsed, opened, weights, location.format)
    if by_tokenizer and opened.broken:
        misfits.append("vocab_size is -1, the number of its tokenizer's tokens, and that cannot be used")
    return _Findings(location, parsed, opened, weights, (*parsed.problems, *weights.problems, *misfits))


def _with_tokenizer(params: dict[str, Any], file: Path | None) -> dict[str, Any]:
    """The settings, `file` named as the tokenizer where they name none, as Llama's own do not."""
    data = params.get("data") or {}
    named = data.get("tokenizer") or {} if isinstance(data, dict) else True
    if file is None or not isinstance(named, dict) or named.get("name") is not None:
        return params
    return {**params, "data": {**data, "tokenizer": {"name": kind_of_file(file), "path": file.name}}}


def _inspect_dump(location: Location) -> _Findings:
    parsed, weights = dumps.parse_kernels(location.folder), open_weights(location)
    opened = _OpenedTokenizer()
    problems = (*parsed.problems, *weights.problems, *_misfits(parsed, opened, weights, "kernels"))
    return _Findings(location, parsed, opened, weights, problems)


def _inspect_huggingface(
    location: Location,
    settings: object,
    weights: types.StoredWeights,
    open_tokenizer: bool,
    given: Path | None,
) -> _Findings:
    """An architecture that is not supported makes no sense of the weights: nothing else is told."""
    parsed = huggingface.parse_config(settings, *huggingface.tokenizer_of(location.folder, given))
    opened, config = _OpenedTokenizer(path=parsed.tokenizer_path), parsed.config
    if config is None:
        return _Findings(location, parsed, opened, weights, parsed.problems)
    if open_tokenizer:
        opened = _open_tokenizer(parsed, location.folder, given)
        parsed = replace(parsed, notes=parsed.notes + _vocabulary_notes(opened.tokenizer, config.vocab_size))
    misfits = _misfits(parsed, opened, weights, location.format)
    return _Findings(location, parsed, opened, weights, (*parsed.problems, *weights.problems, *misfits))


def _inspect_gguf(location: Location, open_tokenizer: bool, given: Path | None) -> _Findings:
    parsed, weights = gguf.open_gguf(location.folder)
    opened = _OpenedTokenizer(path=parsed.tokenizer_path)
    problems = (*parsed.problems, *weights.problems, *_misfits(parsed, opened, weights, "gguf"))
    if open_tokenizer and not problems:  # of a file that claims anything no vocabulary is built
        parsed = replace(parsed, tokenizer_name=kind_of_file(given)) if given else parsed
        opened = _open_tokenizer(parsed, location.folder, given)
        problems = tuple(_misfits(parsed, opened, weights, "gguf"))
    return _Findings(location, parsed, opened, weights, problems)


def _vocabulary_notes(tokenizer: Tokenizer | None, size: int) -> tuple[str, ...]:
    there = size if tokenizer is None else tokenizer.vocab_size
    if there < size:
        return (f"the vocabulary has {size:,} places, the tokenizer {there:,} tokens: the rest is padding",)
    beyond = f"the tokenizer has {there:,} tokens, the model {size:,}: a prompt with another cannot run"
    return (beyond,) if there > size else ()


def _misfits(
    parsed: Parsed, opened: _OpenedTokenizer, weights: types.StoredWeights, format: types.Format
) -> list[str]:
    if parsed.config is None:
        return []
    # A file that cannot be opened at all has its own problem; its tensors are not missing.
    opened_well = weights.tensors or weights.unreadable or (format != "params" and not weights.problems)
    kind = _KINDS[format]
    entries = kind.entries(parsed.config)
    problems = layout.tensor_problems(parsed.config, weights, entries, kind.words) if opened_well else []
    if problems and weights.parts and (gone := parts.missing_parts(weights, entries)):
        problems = [gone]
    size, tokenizer = parsed.config.vocab_size, opened.tokenizer
    added = format == "huggingface" and not opened.given  # tokens may be: `_vocabulary_notes`
    if tokenizer is not None and tokenizer.vocab_size > size and not added:
        problems.append(
            f'the tokenizer "{parsed.tokenizer_name}" has {tokenizer.vocab_size} tokens, more than the '
            f"vocabulary of the model ({size}); choose the tokenizer file it was trained with"
        )
    return problems


def _open_tokenizer(parsed: Parsed, folder: Path, override: Path | None) -> _OpenedTokenizer:
    from mta_viz.tokenizers.loading import WHAT_TO_DO, load_tokenizer

    name, path = parsed.tokenizer_name, parsed.tokenizer_path
    missing = _OpenedTokenizer(None, None, str(override) if override else path, override is not None)
    if name is None:
        problem = f"{PARAMS} names no tokenizer (data.tokenizer.name). {WHAT_TO_DO}"
        return replace(missing, problem=problem)
    try:
        tokenizer = load_tokenizer(name, path, folder=folder, override=override)
    except (TokenizerError, OSError, ValueError) as error:
        return replace(missing, problem=str(error), broken=not getattr(error, "missing", False))
    found = replace(missing, tokenizer=tokenizer)
    if override or path is None:
        return found
    with suppress(FileError):  # as written when it lies there, else the file of that name in the folder
        if door.inside(folder, path).is_file():
            return found
    return replace(found, path=door.base_name(path))


@dataclass(frozen=True)
class Found:
    """One checkpoint (or run folder). A broken one has no summary but a `problem`."""

    path: Path
    name: str
    summary: types.Summary | None
    problem: str | None


@dataclass(frozen=True)
class Discovery:
    """All checkpoints found, in the order of the roots; `skipped` says what was not there or not readable."""

    found: tuple[Found, ...]
    skipped: tuple[str, ...]


def find_checkpoints(roots: Sequence[Path], depth: int = 2) -> Discovery:
    """Checkpoints at each root and down to `depth` levels below it. Never raises for a broken folder.

    Adapters stand after their base, by its name, where that is among them.
    Names hold no control characters and no broken UTF-8: both are shown escaped.
    """
    found: dict[Path, Found] = {}
    skipped: list[str] = []
    for root in map(Path, roots):
        before = len(skipped)
        folders = [root] if is_model_file(root) else []
        otherwise = _NO_FOLDER.get(root.name, "is no folder; check the path")
        if not folders and is_folder(root, skipped, otherwise=otherwise):
            folders = list(checkpoint_folders(root, depth, skipped))
        for folder in folders:
            if (place := folder.resolve()) not in found:
                found[place] = _describe(folder, root)
        if not folders and len(skipped) == before:
            looked = f"Looked in it and two levels below for {LOOKED_FOR}"
            skipped.append(f"{printable(root)} has no checkpoint. {looked}")
    return Discovery(tuple(_adapters_beside(list(found.values()))), tuple(skipped))


def _adapters_beside(found: list[Found]) -> Iterator[Found]:
    """The same, adapters behind the first model that has their base's name."""
    names = {model.path.name for model in found}
    of_base: dict[str, list[Found]] = {}
    for model in found:
        if model.summary is not None and model.summary.base in names:
            of_base.setdefault(model.summary.base, []).append(model)
    moved = {model.path for adapters in of_base.values() for model in adapters}
    for model in found:
        if model.path not in moved:
            yield model
            yield from of_base.pop(model.path.name, ())


def _describe(folder: Path, root: Path) -> Found:
    name = root.name if folder == root else folder.relative_to(root).as_posix()
    name = printable(name or folder)
    try:
        summary = read_summary(folder)
    except CheckpointError as error:
        return Found(folder, name, None, str(error))
    except Exception as error:  # a file can be broken in ways nobody foresaw: the others must still be shown
        kind = f"{type(error).__name__}: {printable(error)}"
        return Found(folder, name, None, f"{printable(folder)} cannot be read ({kind})")
    problem = without_weights(folder) if summary.format == "params" else None
    return Found(folder, name, summary, problem)
