"""Lingua's params.json <-> `ModelConfig`: field names, defaults and ranges. Reads no file.

Absent fields take Lingua's defaults. Fields that act in training only are ignored by name; any other field
inside `model` or `model.mta` that is not known here is a fault. Faults are collected, so all are reported.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mta_viz.config import Gate, ModelConfig, MTAOptions, RopeScaling
from mta_viz.errors import ConfigError, first_problems
from mta_viz.printed import printable

LARGEST = 2**31 - 1
# What Lingua's models have none of, and its files no field for: `ModelConfig`'s, and the fields of the rule.
BEYOND_LINGUA = ("qkv_bias", "out_bias", "mlp_bias", "differential")
SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


class FieldReader:
    """Takes typed values out of one JSON object; one that is absent or null has every field at its default.

    `stand_ins` gives, for a field at fault, the value that the tensors beside the file call for;
    reading goes on with it (else with the default), so that later checks still mean something.
    `problems` grows with every fault, `notes` with what is told and is none. `seen`: the names asked for;
    the rest is unknown.
    """

    def __init__(self, block: object, where: str, stand_ins: Mapping[str, Any]) -> None:
        self.where, self.stand_ins = where, stand_ins
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.seen: set[str] = set()
        self.block: dict[str, Any] = block if isinstance(block, dict) else {}
        if not isinstance(block, dict | None):
            self.problems.append(f"{where} is {show(block)}; expected a JSON object")

    def anything(self, name: str, default: Any = None) -> Any:
        """The value as it is."""
        self.seen.add(name)
        return self.block.get(name, default)

    def checked(self, name: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        """The value if it `fits`; null only where the default is None."""
        value = self.anything(name, default)
        if (value is None and default is None) or fits(value):
            return value
        return self.fault(name, value, expected, default)

    def whole(self, name: str, default: int | None, *, low: int = 1, high: int = LARGEST) -> Any:
        """A whole number from `low` to `high`."""
        expected = f"a whole number from {low} to {high}"
        return self.checked(name, default, lambda v: type(v) is int and low <= v <= high, expected)

    def needed(self, name: str, high: int = LARGEST) -> int:
        """The same of at least 1, which has to be there; 1 stands for one at fault."""
        value = self.anything(name)
        if type(value) is int and 1 <= value <= high:
            return value
        return self.fault(name, value, f"a whole number from 1 to {high}", 1)

    def positive(self, name: str, default: float | None, *, high: float = 1e12) -> Any:
        """A finite number above 0, as a float."""
        expected = f"a number above 0, up to {high:g}"
        value = self.checked(name, default, lambda v: type(v) in (int, float) and 0 < v <= high, expected)
        return None if value is None else float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        return self.checked(name, default, lambda value: isinstance(value, bool), "true or false")

    def text(self, name: str) -> str | None:
        """Any string, or null."""
        return self.checked(name, None, lambda value: isinstance(value, str), "a string")

    def fault(self, name: str, value: object, expected: str, default: Any) -> Any:
        """Note a fault of a field and give the value to go on with."""
        stand_in = self.stand_ins.get(name)
        fits = f" (the tensors fit {show(stand_in)})" if stand_in is not None else ""
        null = ", or null" if default is None else ""
        said = "missing" if value is None and name not in self.block else show(value)
        self.problems.append(f"{self.where}.{name} is {said}; expected {expected}{null}{fits}")
        return default if stand_in is None else stand_in

    def note_window(self, window: int) -> None:
        """Tell of a window of attention that hides nothing within the length trained on."""
        self.notes.append(
            f"its window of {window:,} tokens is not computed: a prompt that is longer is attended to whole"
        )

    def refuse_unknown(self, ignored: frozenset[str]) -> None:
        """Every name that was neither asked for nor is known to be without effect is a fault."""
        unknown = [
            f"{self.where}.{show(name)[1:-1]} ({show(value)}) is not a field this program "
            "knows; it might change the computation. Remove it if it does not"
            for name, value in self.block.items()
            if name not in self.seen and name not in ignored
        ]
        self.problems += first_problems(unknown, f"fields of {self.where} this program does not know")


def show(value: object) -> str:
    """A JSON value as it is written in the file, cut after 60 characters."""
    try:
        text = json.dumps(value, default=repr)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def read_mta_block(mta: FieldReader, n_heads: int, n_layers: int) -> MTAOptions:
    """Options of `model.mta`. Without `use_mta` no kernels and no mixing; norm, gate and scales still act."""
    use_mta = mta.flag("use_mta")
    words = ("both", "left", "right")
    pad_key = mta.checked("pad_key", "both", lambda word: word in words, " or ".join(map(show, words)))
    pre = _kernel(mta, "", 1, pad_key, use_mta)
    post = _kernel(mta, "after_sm_", None, pad_key, use_mta)
    layers = _layers(mta, n_layers)
    head_pre = mta.flag("pre_sm_linear_head")
    group, linear = _head_post(mta, n_heads, use_mta)
    gate: Gate = "1d" if mta.flag("gate_1d", True) else "dd"
    # Once reported, an even width must not stop other checks: "left" takes any, and no shape depends on it.
    even = any(kernel and kernel[1] % 2 == 0 for kernel in (pre, post)) and mta.problems
    return MTAOptions(
        pre_kernel=pre,
        post_kernel=post,
        pad_key="left" if even and pad_key == "both" else pad_key,
        mta_layers=layers if use_mta else None,
        head_pre=head_pre and use_mta,
        head_post_group=group,
        head_post_linear=linear,
        group_norm=mta.flag("group_norm"),
        depth_scale=mta.flag("layer_norm_rescale"),
        gate=gate if mta.flag("add_gating") else None,
        scale_block_norms=mta.flag("curse_norm"),
    )


def _kernel(
    mta: FieldReader, prefix: str, default: int | None, pad_key: str, use_mta: bool
) -> tuple[int, int] | None:
    names = (f"{prefix}query_kernel_size", f"{prefix}key_kernel_size")
    # Either may be null whatever its default is.
    defaults = (None if mta.block.get(name, default) is None else default for name in names)
    sizes = [mta.whole(name, size) for name, size in zip(names, defaults, strict=True)]
    if not use_mta or sizes[0] is None or sizes[1] is None:
        return None
    if pad_key == "both" and sizes[1] % 2 == 0:
        sizes[1] = mta.fault(names[1], sizes[1], 'an odd number, since pad_key is "both"', sizes[1])
    return sizes[0], sizes[1]


def _head_post(mta: FieldReader, n_heads: int, use_mta: bool) -> tuple[int | None, bool]:
    group, linear = mta.whole("head_kernel_size", None), mta.flag("post_sm_linear_head")
    if not use_mta:
        return None, False
    if group is not None and n_heads % group:
        group = mta.fault("head_kernel_size", group, f"a divisor of n_heads {n_heads}", n_heads)
    if group is not None and linear:
        mta.problems.append(
            f"model.mta.head_kernel_size is {group} and model.mta.post_sm_linear_head is true; "
            "expected one of the two: set one to null or false"
        )
        linear = False
    return group, linear


def _layers(mta: FieldReader, n_layers: int) -> tuple[int, ...] | None:
    """The layers of a comma list such as "0, 1"; those outside the model are dropped and noted."""
    value = mta.anything("mta_layers")
    if value is None:
        return None
    try:
        listed = sorted({int(item) for item in value.split(",")})
    except (AttributeError, ValueError):
        expected = 'a comma list of layers counted from 0, such as "1,3"'
        return mta.fault("mta_layers", value, expected, None)
    outside = [layer for layer in listed if not 0 <= layer < n_layers]
    if outside:
        names = ", ".join(map(str, outside))
        there = f"the model has layers 0 to {n_layers - 1}"
        mta.notes.append(f"model.mta.mta_layers names {names}; {there}: ignored")
    return tuple(layer for layer in listed if 0 <= layer < n_layers)


def write_mta_block(config: ModelConfig) -> dict[str, Any]:
    """Every field of `model.mta`, the inverse of `read_mta_block`."""
    mta = config.mta
    kernels = mta.mta_layers != ()  # an empty list cannot be written: no layer means no kernels
    pre = (kernels and mta.pre_kernel) or (None, None)
    post = (kernels and mta.post_kernel) or (None, None)
    mixing = mta.head_pre or mta.head_post_linear or mta.head_post_group is not None
    return {
        "use_mta": pre[0] is not None or post[0] is not None or mixing,
        "query_kernel_size": pre[0],
        "key_kernel_size": pre[1],
        "pad_key": mta.pad_key,
        "mta_layers": ",".join(map(str, mta.mta_layers)) if mta.mta_layers else None,
        "after_sm_query_kernel_size": post[0],
        "after_sm_key_kernel_size": post[1],
        "head_kernel_size": mta.head_post_group,
        "group_norm": mta.group_norm,
        "layer_norm_rescale": mta.depth_scale,
        "curse_norm": mta.scale_block_norms,
        "pre_sm_linear_head": mta.head_pre,
        "post_sm_linear_head": mta.head_post_linear,
        "add_gating": mta.gate is not None,
        "gate_1d": mta.gate != "dd",
    }


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


def parse_params(
    params: object, *, vocab_size: int | None, stand_ins: Mapping[str, Any] | None = None
) -> Parsed:
    """Everything params.json says; `stand_ins`, what the tensors call for, replace fields at fault."""
    if not isinstance(params, dict) or not isinstance(params.get("model"), dict):
        return Parsed(None, ('params.json has no "model" object; expected Lingua\'s {"model": {...}, ...}',))
    stand_ins = stand_ins or {}
    model = FieldReader(params["model"], "model", stand_ins)
    mta = FieldReader(model.anything("mta"), "model.mta", stand_ins)
    data = FieldReader(params.get("data"), "data", {})
    tokenizer = FieldReader(data.anything("tokenizer"), "data.tokenizer", {})
    distributed = FieldReader(params.get("distributed"), "distributed", {})
    seq_len = data.whole("seq_len", None)
    n_ctx = model.whole("max_seqlen", seq_len or 1024)
    if seq_len is not None and seq_len != n_ctx:
        taken = "the first is taken as trained length"
        model.notes.append(f"model.max_seqlen is {n_ctx}, data.seq_len {seq_len}; {taken}")
    sizes = _sizes(model, vocab_size)
    options = read_mta_block(mta, sizes["n_heads"], sizes["n_layers"])
    model.refuse_unknown(TRAINING_ONLY)
    mta.refuse_unknown(TRAINING_ONLY)
    name, path = tokenizer.text("name"), tokenizer.text("path")
    dtype = MODEL_DTYPES.get(str(distributed.anything("model_dtype")))
    problems = [p for reader in (model, mta, data, tokenizer, distributed) for p in reader.problems]
    try:
        config = ModelConfig(**sizes, n_ctx=n_ctx, mta=options)
    except ConfigError as error:
        config, problems = None, problems or [*error.problems]
    shown = None if name is None else printable(name)
    return Parsed(config, tuple(problems), (*model.notes, *mta.notes), shown, path, dtype)


def _sizes(model: FieldReader, vocab_size: int | None) -> dict[str, Any]:
    if (window := model.anything("sliding_window")) is not None:
        expected = "expected null: windowed attention is not supported"
        model.problems.append(f"model.sliding_window is {show(window)}; {expected}")
    d_model = model.whole("dim", 512)
    n_heads, n_kv_heads, d_head = _heads(model, d_model)
    n_layers, faults = model.whole("n_layers", 8, high=MOST_LAYERS), len(model.problems)
    factor, multiple = model.positive("ffn_dim_multiplier", None, high=1e6), model.whole("multiple_of", 256)
    hinted = model.stand_ins.get("d_mlp") if len(model.problems) > faults else None
    return {
        "d_model": d_model,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "d_head": d_head,
        "d_mlp": hinted or model.whole("hidden_dim", None) or mlp_width(d_model, factor, multiple),
        "vocab_size": _vocab_size(model, vocab_size),
        "norm_eps": model.positive("norm_eps", 1e-5),
        "rope_theta": model.positive("rope_theta", 10000.0),
        "tied": model.flag("weight_tying"),
        "rope_scaling": _rope_scaling(model),
        **{name: model.flag(name) for name in BEYOND_LINGUA},
    }


def _rope_scaling(model: FieldReader) -> RopeScaling | None:
    if model.anything("use_scaled_rope") not in (None, False):
        rule = {"rope_type": "llama3", **dict(zip(SCALING, (8.0, 1.0, 4.0, 8192), strict=True))}
        written = f'"rope_scaling": {json.dumps(rule)} (factor 32.0 for Llama 3.2)'
        model.problems.append(f"model.use_scaled_rope does not say by how much; write {written} in its place")
    block = FieldReader(model.anything("rope_scaling"), "model.rope_scaling", {})
    scaling = read_rope_scaling(block)
    model.problems += block.problems
    return scaling


def read_rope_scaling(block: FieldReader, n_ctx: int | None = None) -> RopeScaling | None:
    """Llama 3's rule as Hugging Face writes it, None for `default`; any other is a fault of the block.

    `n_ctx` stands for the length trained on at first where the block does not tell it.
    """
    kind, faults = block.anything("rope_type", block.anything("type", "default")), len(block.problems)
    if kind not in ("default", "llama3"):
        block.fault("rope_type", kind, '"default" or "llama3"; no other rule is supported', "default")
        return None
    scaling = None
    if kind == "llama3":
        factors = [block.positive(name, None) for name in SCALING[:3]]
        values = [*factors, block.whole(SCALING[3], n_ctx)]
        absent = [name for name, value in zip(SCALING, values, strict=True) if value is None]
        block.problems += [f"{block.where}.{name} is missing; expected a number" for name in absent]
        scaling = None if len(block.problems) > faults else RopeScaling(*values)
    block.refuse_unknown(frozenset())
    return scaling


def _heads(model: FieldReader, d_model: int) -> tuple[int, int, int]:
    """n_heads, n_kv_heads, d_head; each of n_heads and head_dim follows from the other."""
    n_heads, d_head = model.whole("n_heads", None), model.whole("head_dim", None)
    if n_heads is None and d_head is None:
        n_heads = model.fault("n_heads", None, "a whole number (or model.head_dim)", 1)
    if d_head is None:
        d_head = d_model // n_heads
        if d_model % n_heads or d_head % 2:
            expected = f"a divisor of model.dim {d_model} with an even quotient (the head width)"
            n_heads = model.fault("n_heads", n_heads, expected, n_heads)
            d_head = model.stand_ins.get("head_dim") or d_model // n_heads
    elif d_head % 2 or (n_heads is None and d_model % d_head):
        whole = "" if n_heads else f" that divides model.dim {d_model}"
        d_head = model.fault("head_dim", d_head, f"an even number{whole}", d_head)
    n_heads = n_heads or max(1, d_model // d_head)
    n_kv_heads = model.whole("n_kv_heads", None) or n_heads
    if n_heads % n_kv_heads:
        n_kv_heads = model.fault("n_kv_heads", n_kv_heads, f"a divisor of n_heads {n_heads}", n_heads)
    return n_heads, n_kv_heads, d_head


def mlp_width(d_model: int, factor: float | None, multiple_of: int) -> int:
    """Lingua's feed-forward width: 8/3 of the model width, times `factor`, rounded up."""
    width = 8 * d_model // 3 if factor is None else int(factor * (8 * d_model // 3))
    return -(-width // multiple_of) * multiple_of


def _vocab_size(model: FieldReader, vocab_size: int | None) -> int:
    declared = model.whole("vocab_size", -1, low=-1)
    if declared == 0:
        return model.fault("vocab_size", 0, "a whole number of at least 1, or -1", 1)
    if declared != -1:
        return declared
    if vocab_size is not None:
        return vocab_size
    means = "-1 means the tokenizer's, and no tokenizer is here. Give the tokenizer file or the size"
    return model.fault("vocab_size", -1, f"a size: {means}", 1)


def params_from_config(
    config: ModelConfig, tokenizer_name: str | None, tokenizer_path: str | None
) -> dict[str, Any]:
    """params.json of a model: every field of Lingua's written, so that no reader falls back on a default."""
    # Half a unit more than asked: int() then cuts to d_mlp whatever the rounding of the quotient.
    factor = (config.d_mlp + 0.5) / (8 * config.d_model // 3)
    sizes = [size for size in (256, 64, 16, 1) if mlp_width(config.d_model, None, size) == config.d_mlp]
    model = {
        "dim": config.d_model,
        "n_layers": config.n_layers,
        "head_dim": config.d_head,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "ffn_dim_multiplier": None if sizes else factor,
        "multiple_of": sizes[0] if sizes else 1,
        "norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "max_seqlen": config.n_ctx,
        "vocab_size": config.vocab_size,
        "weight_tying": config.tied,
        "sliding_window": None,
        "mta": write_mta_block(config),
    }
    model |= {name: True for name in BEYOND_LINGUA if getattr(config, name)}
    if config.rope_scaling:
        values = vars(config.rope_scaling).values()
        model["rope_scaling"] = {"rope_type": "llama3", **dict(zip(SCALING, values, strict=True))}
    tokenizer = {"name": tokenizer_name, "path": tokenizer_path}
    return {"model": model, "data": {"seq_len": config.n_ctx, "tokenizer": tokenizer}}
