"""The file a sweep is kept in: one sample a line, read back so that no sample is run twice."""

import json
import math
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from mta_viz.analysis.labs.answers import Outcome
from mta_viz.analysis.labs.sweep import SampleResult, Sweep
from mta_viz.checkpoint.atomic import replacing
from mta_viz.errors import MtaVizError
from mta_viz.tasks.needles import MAX_NEEDLES

FORMAT = "mta_viz needle sweep 1"
MOST_CHARACTERS, LONGEST = 10_000, 10**8  # of a text; of a prompt, in tokens
LARGEST = sys.float_info.max  # JSON's whole numbers have no end
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("needles", "length", "seed", "place"), (int,)),
    "depth": (int, float),
    "outcome": (str,),
    "named": (int, type(None)),
    "log_probability": (int, float, type(None)),
}


@dataclass(frozen=True)
class ModelResults:
    """One checkpoint's samples. `sha256` is its weights', `vocabulary` its tokenizer's digest."""

    name: str
    sha256: str
    vocabulary: str
    samples: tuple[SampleResult, ...] = ()


@dataclass(frozen=True)
class SweepResults:
    """Several checkpoints on the same samples; `wording` is the digest of templates and haystack."""

    wording: str
    needle: str
    question: str | None
    models: tuple[ModelResults, ...] = ()

    def of(self, sha256: str, vocabulary: str) -> tuple[SampleResult, ...]:
        """The samples of one checkpoint, none where it has not been measured."""
        found = [one for one in self.models if (one.sha256, one.vocabulary) == (sha256, vocabulary)]
        return found[0].samples if found else ()

    def with_model(self, model: ModelResults) -> "SweepResults":
        """These with one checkpoint's results added or replaced."""
        same = [(one.sha256, one.vocabulary) == (model.sha256, model.vocabulary) for one in self.models]
        if not any(same):
            return replace(self, models=(*self.models, model))
        kept = (model if yes else one for yes, one in zip(same, self.models, strict=True))
        return replace(self, models=tuple(kept))


def empty_results(sweep: Sweep) -> SweepResults:
    """Results without a sample yet."""
    return SweepResults(sweep.wording, sweep.needle, sweep.question)


def sweep_text(results: SweepResults) -> str:
    """The file's content: JSON with one sample a line."""
    head = {"format": FORMAT, **{name: getattr(results, name) for name in ("wording", "needle", "question")}}
    models = ",".join(_model_text(model) for model in results.models)
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "models": [{models}\n ]\n}}\n'


def _model_text(model: ModelResults) -> str:
    names = {name: getattr(model, name) for name in ("name", "sha256", "vocabulary")}
    rows = ",".join(f"\n   {_sample_text(one)}" for one in model.samples)
    return "\n  " + json.dumps(names).removesuffix("}") + f', "samples": [{rows}\n  ]}}'


def _sample_text(one: SampleResult) -> str:
    """A line; a log-probability that is not finite is null."""
    row = asdict(one)
    if not math.isfinite(one.log_probability):
        row["log_probability"] = None
    return json.dumps(row, allow_nan=False)


def write_sweep(file: Path, results: SweepResults) -> None:
    """Replace `file`; a reader never sees half of it. Raises MtaVizError when the disk refuses."""
    try:
        with replacing(file) as partial:
            partial.write_text(sweep_text(results), encoding="utf-8")
    except OSError as error:
        raise MtaVizError(f"{file} cannot be written: {error.strerror or error}") from error


def read_sweep(file: Path) -> SweepResults:
    """The results in a file. Raises MtaVizError saying what is wrong with it."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MtaVizError(f"{file} cannot be read: {error}") from error
    return parse_sweep(text, str(file))


def parse_sweep(text: str, name: str) -> SweepResults:
    """The results in the content of the file `name`. Raises MtaVizError saying what is wrong with it.

    The text may come from anywhere: values of another kind or out of range are refused, nothing is run.
    """
    try:
        data = json.loads(text, parse_constant=_no_number)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        question = None if data["question"] is None else _text(data, "question")
        models = tuple(map(_model, data["models"]))
        return SweepResults(_text(data, "wording"), _text(data, "needle"), question, models)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise MtaVizError(
            f"{name} holds no needle sweep that this version reads ({reason}); "
            "name another file, or move it away"
        ) from error


def _model(data: dict[str, Any]) -> ModelResults:
    names = {name: _text(data, name) for name in ("name", "sha256", "vocabulary")}
    samples = tuple(map(_sample, data["samples"]))
    if len({one.key for one in samples}) < len(samples):
        raise ValueError(f"{names['name'][:40]!r} has a sample twice")
    return ModelResults(**names, samples=samples)


def _text(data: dict[str, Any], name: str) -> str:
    if not isinstance(data[name], str) or len(data[name]) > MOST_CHARACTERS:
        raise ValueError(f"{name} is no text of at most {MOST_CHARACTERS:,} characters")
    data[name].encode()  # a UnicodeEncodeError, which is a ValueError, for halves of characters
    return data[name]


def _no_number(name: str) -> float:
    raise ValueError(f"it holds {name}, which is no JSON")


def _sample(row: dict[str, Any]) -> SampleResult:
    values = {field.name: row[field.name] for field in fields(SampleResult)}
    wrong = [name for name, value in values.items() if type(value) not in _TYPES[name]]
    if wrong or values["outcome"] not in get_args(Outcome):
        raise ValueError(f"a sample has {', '.join(wrong) or 'outcome'} of another kind")
    out_of_range = _out_of_range(**values)
    if out_of_range:
        raise ValueError(f"a sample's {', '.join(out_of_range)} cannot be")
    if values["log_probability"] is None:
        values["log_probability"] = math.nan
    return SampleResult(**values)


def _out_of_range(
    needles: int,
    length: int,
    depth: float | int,
    place: int,
    named: int | None,
    log_probability: float | int | None,
    **_free: object,
) -> list[str]:
    """The values no sweep gives."""
    good = {
        "needles": 1 <= needles <= MAX_NEEDLES,
        "length": 1 <= length <= LONGEST,
        "depth": 0 <= depth <= 100,
        "place": 0 <= place < needles,
        "named": named is None or 0 <= named < needles,
        "log_probability": log_probability is None or -LARGEST <= log_probability <= 0,
    }
    return [name for name, fine in good.items() if not fine]
