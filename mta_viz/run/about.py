"""What a saved run says of itself beside its tensors: JSON in the file's header, read strictly.

Owns the words of the header. Tensors and the file are `files.py`'s.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mta_viz.checkpoint.params import params_from_config, parse_params
from mta_viz.config import DTYPES, ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.plans import Plan, check_plan, plan_as_data, plan_from_data
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.printed import printable
from mta_viz.version import VERSION

FORMAT = "mta_viz run 1"
MOST_LAYERS = 1000
MOST_CHARACTERS = 10**9  # where a token ends in its prompt
Place = tuple[int, Stage]


@dataclass(frozen=True)
class About:
    """Which run it is. `sha256` is that of the checkpoint's weights, `dtype` what it was computed in.

    `pieces`, `spans` and `text` are those of `Tokens`. `plan`: interventions the model ran with.
    `stored`: layer and stage of every map in the file.
    """

    checkpoint: str
    sha256: str
    config: ModelConfig
    dtype: str
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    text: str | None
    plan: Plan = ()
    stored: tuple[Place, ...] = ()
    version: str = VERSION

    def to_text(self) -> str:
        """As JSON, ASCII only."""
        data = {
            "format": FORMAT,
            "version": self.version,
            "checkpoint": self.checkpoint,
            "sha256": self.sha256,
            "dtype": self.dtype,
            "text": self.text,
            "pieces": self.pieces,
            "spans": self.spans,
            "interventions": plan_as_data(self.plan),
            "maps": [[layer, stage.value.key] for layer, stage in self.stored],
            "params": params_from_config(self.config, None, None),
        }
        return json.dumps(data)

    def stored_words(self) -> str:
        """`layer 3: hook_scores_kq, hook_pattern; ...`, or that there are none."""
        by_layer: dict[int, list[str]] = {}
        for layer, stage in self.stored:
            by_layer.setdefault(layer, []).append(stage.value.hook)
        return "; ".join(f"layer {layer}: {', '.join(names)}" for layer, names in by_layer.items()) or "none"


def from_text(text: str) -> About:
    """What `to_text` wrote. Raises MtaVizError listing what is missing or of the wrong kind."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MtaVizError(f"its description is no JSON ({error})") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        named = printable(data.get("format")) if isinstance(data, dict) else "nothing"
        raise MtaVizError(f'its description names the format {named}; this version reads "{FORMAT}"')
    wrong = [name for name, check in _CHECKS.items() if name not in data or not check(data[name])]
    if wrong:
        raise MtaVizError(f"its description lacks, or has in another form: {', '.join(wrong)}")
    config = _config(data["params"])
    plan = plan_from_data(data["interventions"])
    check_plan(plan, config)
    return About(
        **{name: data[name] for name in ("checkpoint", "sha256", "dtype", "text", "version")},
        config=config,
        pieces=tuple(data["pieces"]),
        spans=tuple((start, stop) for start, stop in data["spans"]),
        plan=plan,
        stored=_stored(data["maps"], config),
    )


def _config(params: object) -> ModelConfig:
    parsed = parse_params(params, vocab_size=None)
    if parsed.config is None or parsed.problems:
        raise MtaVizError(f"its model cannot be: {'; '.join(parsed.problems)}")
    if parsed.config.n_layers > MOST_LAYERS:
        raise MtaVizError(f"its model has {parsed.config.n_layers} layers; at most {MOST_LAYERS} are read")
    return parsed.config


def _stored(maps: list[list[Any]], config: ModelConfig) -> tuple[Place, ...]:
    stages = {stage.value.key: stage for stage in Stage}
    there = [
        0 <= layer < config.n_layers and stages.get(key) in layer_stages(config.kernels(layer))
        for layer, key in maps
    ]
    if not all(there) or len(set(map(tuple, maps))) < len(maps):
        raise MtaVizError("its list of maps names one twice, or one that its model does not compute")
    return tuple((layer, stages[key]) for layer, key in maps)


def _is_text(value: object) -> bool:
    """A text that can be written: JSON can hold halves of characters."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_list(value: object, entry: Any) -> bool:
    return isinstance(value, list) and all(map(entry, value))


def _is_pair(value: object, second: type) -> bool:
    return isinstance(value, list) and [type(one) for one in value] == [int, second]


_CHECKS: Mapping[str, Any] = {
    "version": _is_text,
    "checkpoint": _is_text,
    "sha256": lambda value: _is_text(value) and len(value) == 64,
    "dtype": lambda value: value in DTYPES or value == "float64",
    "text": lambda value: value is None or _is_text(value),
    "pieces": lambda value: _is_list(value, _is_text),
    "spans": lambda value: _is_list(
        value, lambda span: _is_pair(span, int) and 0 <= span[0] <= span[1] <= MOST_CHARACTERS
    ),
    "interventions": lambda value: isinstance(value, list),
    "maps": lambda value: _is_list(value, lambda one: _is_pair(one, str)),
    "params": lambda value: isinstance(value, dict),
}
