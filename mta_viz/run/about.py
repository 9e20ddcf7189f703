"""What a saved run says of itself beside its tensors: JSON in the file's header, read strictly."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from mta_viz.checkpoint.params import params_from_config, parse_params
from mta_viz.checkpoint.validate import from_text
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.plans import Plan, PlanData, check_plan, plan_as_data
from mta_viz.model.stages import Stage, layer_stages
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


def from_header(text: str) -> About:
    """What `to_text` wrote. Raises MtaVizError listing what is missing or of the wrong kind."""
    header = from_text(_Header, text, "its description", file_format=FORMAT)
    parsed = parse_params(header.params, vocab_size=None)
    config = parsed.config
    if config is None or parsed.problems:
        raise MtaVizError(f"its model cannot be: {'; '.join(parsed.problems)}")
    if config.n_layers > MOST_LAYERS:
        raise MtaVizError(f"its model has {config.n_layers} layers; at most {MOST_LAYERS} are read")
    check_plan(header.interventions, config)
    checkpoint = header.checkpoint, header.sha256, config, header.dtype
    tokens = header.pieces, header.spans, header.text
    return About(*checkpoint, *tokens, header.interventions, _stored(header.maps, config), header.version)


def _span(span: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= span[0] <= span[1] <= MOST_CHARACTERS:
        raise ValueError("is no span of a text")
    return span


@dataclass(frozen=True)
class _Header:
    """The description as it is written."""

    version: str
    checkpoint: str
    sha256: Annotated[str, Field(min_length=64, max_length=64)]
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    text: str | None
    pieces: tuple[str, ...]
    spans: tuple[Annotated[tuple[int, int], AfterValidator(_span)], ...]
    interventions: PlanData
    maps: tuple[tuple[int, str], ...]
    params: dict[str, Any]


def _stored(maps: tuple[tuple[int, str], ...], config: ModelConfig) -> tuple[Place, ...]:
    stages = {stage.value.key: stage for stage in Stage}
    there = [
        0 <= layer < config.n_layers and stages.get(key) in layer_stages(config.kernels(layer))
        for layer, key in maps
    ]
    if not all(there) or len(set(maps)) < len(maps):
        raise MtaVizError("its list of maps names one twice, or one that its model does not compute")
    return tuple((layer, stages[key]) for layer, key in maps)
