"""Lingua's params.json <-> `ModelConfig`: field names, defaults and ranges. Reads no file.

Absent fields take Lingua's defaults. Fields that act in training only are ignored by name; any
other field inside `model` or `model.mta` that is not known here is a fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mta_viz.checkpoint.fields import FieldReader, show
from mta_viz.checkpoint.mta_block import read_mta_block, write_mta_block
from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError

TRAINING_ONLY = frozenset(
    {"init_base_std", "init_std_factor", "init_method", "cache_attention_maps", "dropout", "seed"}
)
MOST_LAYERS = 10_000
MODEL_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Parsed:
    """What params.json says. With `problems`, `config` is the nearest usable model, or None.

    `dtype` is the one named there, e.g. `bfloat16`; the tensors of a file may have another.
    """

    config: ModelConfig | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tokenizer_name: str | None = None
    tokenizer_path: str | None = None
    dtype: str | None = None


def config_from_params(params: object, *, vocab_size: int | None) -> tuple[ModelConfig, tuple[str, ...]]:
    """The model that params.json describes, and notes for the user.

    `vocab_size` (the tokenizer's size) is used where the file says -1 or nothing.
    Raises ConfigError listing every field at fault.
    """
    parsed = parse_params(params, vocab_size=vocab_size)
    if parsed.config is None or parsed.problems:
        raise ConfigError(parsed.problems, "params.json")
    return parsed.config, parsed.notes


def parse_params(
    params: object, *, vocab_size: int | None, stand_ins: Mapping[str, Any] | None = None
) -> Parsed:
    """Everything params.json says, faults included; never raises.

    `stand_ins` maps field names to the values that the tensors call for; they replace fields at fault.
    """
    if not isinstance(params, dict) or not isinstance(params.get("model"), dict):
        return Parsed(None, ('params.json has no "model" object; expected Lingua\'s {"model": {...}, ...}',))
    stand_ins = stand_ins or {}
    model = FieldReader(params["model"], "model", stand_ins)
    mta = FieldReader(_object(model.anything("mta")), "model.mta", stand_ins)
    tokenizer, distributed, data = _other_blocks(params)
    notes: list[str] = []
    n_ctx = _trained_length(model, data, notes)
    sizes = _sizes(model, vocab_size)
    options = read_mta_block(mta, sizes["n_heads"], sizes["n_layers"], notes)
    model.refuse_unknown(TRAINING_ONLY)
    mta.refuse_unknown(TRAINING_ONLY)
    name, path = tokenizer.text("name"), tokenizer.text("path")
    dtype = MODEL_DTYPES.get(str(distributed.anything("model_dtype")))
    problems = [p for reader in (model, mta, data, tokenizer, distributed) for p in reader.problems]
    config = _build(problems, dict(**sizes, n_ctx=n_ctx, mta=options))
    return Parsed(config, tuple(problems), tuple(notes), name, path, dtype)


def _other_blocks(params: dict[str, Any]) -> tuple[FieldReader, FieldReader, FieldReader]:
    data = FieldReader(_object(params.get("data")), "data", {})
    tokenizer = FieldReader(_object(data.anything("tokenizer")), "data.tokenizer", {})
    return tokenizer, FieldReader(_object(params.get("distributed")), "distributed", {}), data


def _object(value: object) -> object:
    """A block that is absent or null has every field at its default."""
    return {} if value is None else value


def _build(problems: list[str], values: dict[str, Any]) -> ModelConfig | None:
    """The configuration; None (and a problem, when there was none) if there is no such model."""
    try:
        return ModelConfig(**values)
    except ConfigError as error:
        if not problems:
            problems += error.problems
        return None


def _trained_length(model: FieldReader, data: FieldReader, notes: list[str]) -> int:
    seq_len = data.whole("seq_len", None)
    n_ctx = model.whole("max_seqlen", seq_len or 1024)
    if seq_len is not None and seq_len != n_ctx:
        notes.append(
            f"model.max_seqlen is {n_ctx}, data.seq_len {seq_len}; the first is taken as trained length"
        )
    return cast(int, n_ctx)


def _sizes(model: FieldReader, vocab_size: int | None) -> dict[str, Any]:
    """Every size of `ModelConfig`, and the flags that are not multi-token attention's."""
    if (window := model.anything("sliding_window")) is not None:
        model.problems.append(
            f"model.sliding_window is {show(window)}; expected null: windowed attention is not supported"
        )
    d_model = cast(int, model.whole("dim", 512))
    n_heads, n_kv_heads, d_head = _heads(model, d_model)
    return {
        "d_model": d_model,
        "n_layers": model.whole("n_layers", 8, high=MOST_LAYERS),
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "d_head": d_head,
        "d_mlp": _mlp_width(model, d_model),
        "vocab_size": _vocab_size(model, vocab_size),
        "norm_eps": model.positive("norm_eps", 1e-5),
        "rope_theta": model.positive("rope_theta", 10000.0),
        "tied": model.flag("weight_tying", False),
    }


def _heads(model: FieldReader, d_model: int) -> tuple[int, int, int]:
    """n_heads, n_kv_heads, d_head; each of n_heads and head_dim follows from the other."""
    n_heads, d_head = model.whole("n_heads", None), model.whole("head_dim", None)
    if n_heads is None and d_head is None:
        n_heads = model.fault("n_heads", None, "a whole number (or model.head_dim)", 1)
    if d_head is None:
        d_head = d_model // cast(int, n_heads)
        if d_model % cast(int, n_heads) or d_head % 2:
            expected = f"a divisor of model.dim {d_model} with an even quotient (the head width)"
            n_heads = model.fault("n_heads", n_heads, expected, n_heads)
            d_head = model.stand_ins.get("head_dim") or d_model // cast(int, n_heads)
    elif d_head % 2 or (n_heads is None and d_model % d_head):
        whole = "" if n_heads else f" that divides model.dim {d_model}"
        d_head = model.fault("head_dim", d_head, f"an even number{whole}", d_head)
    n_heads = n_heads or max(1, d_model // cast(int, d_head))
    n_kv_heads = model.whole("n_kv_heads", None) or n_heads
    if n_heads % n_kv_heads:
        n_kv_heads = model.fault("n_kv_heads", n_kv_heads, f"a divisor of n_heads {n_heads}", n_heads)
    return n_heads, n_kv_heads, cast(int, d_head)


def _mlp_width(model: FieldReader, d_model: int) -> int:
    faults = len(model.problems)
    factor = model.positive("ffn_dim_multiplier", None, high=1e6)
    multiple = cast(int, model.whole("multiple_of", 256))
    if len(model.problems) > faults and (width := model.stand_ins.get("d_mlp")):
        return cast(int, width)
    return mlp_width(d_model, factor, multiple)


def mlp_width(d_model: int, factor: float | None, multiple_of: int) -> int:
    """Lingua's feed-forward width: 8/3 of the model width, times `factor`, rounded up."""
    width = 8 * d_model // 3
    if factor is not None:
        width = int(factor * width)
    return -(-width // multiple_of) * multiple_of


def _vocab_size(model: FieldReader, vocab_size: int | None) -> int:
    declared = model.whole("vocab_size", -1, low=-1)
    if declared == 0:
        return cast(int, model.fault("vocab_size", 0, "a whole number of at least 1, or -1", 1))
    if declared != -1:
        return cast(int, declared)
    if vocab_size is not None:
        return vocab_size
    expected = (
        "a size: -1 means the tokenizer's, and no tokenizer is here. Give the tokenizer file or the size"
    )
    return cast(int, model.fault("vocab_size", -1, expected, 1))


def params_from_config(
    config: ModelConfig, tokenizer_name: str | None, tokenizer_path: str | None
) -> dict[str, Any]:
    """params.json of a model: every field written, so that no reader falls back on a default."""
    factor, multiple = _mlp_fields(config)
    model = {
        "dim": config.d_model,
        "n_layers": config.n_layers,
        "head_dim": config.d_head,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "ffn_dim_multiplier": factor,
        "multiple_of": multiple,
        "norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "max_seqlen": config.n_ctx,
        "vocab_size": config.vocab_size,
        "weight_tying": config.tied,
        "sliding_window": None,
        "mta": write_mta_block(config),
    }
    tokenizer = {"name": tokenizer_name, "path": tokenizer_path}
    return {"model": model, "data": {"seq_len": config.n_ctx, "tokenizer": tokenizer}}


def _mlp_fields(config: ModelConfig) -> tuple[float | None, int]:
    """(ffn_dim_multiplier, multiple_of) that give exactly `config.d_mlp`."""
    for multiple in (256, 64, 16, 1):
        if mlp_width(config.d_model, None, multiple) == config.d_mlp:
            return None, multiple
    # Half a unit more than asked: int() then cuts to d_mlp whatever the rounding of the quotient.
    return (config.d_mlp + 0.5) / (8 * config.d_model // 3), 1
