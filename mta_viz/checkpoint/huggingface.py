"""Hugging Face folders of Llama's kind: config.json beside safetensors, one file or shards with an index.

Owns which architectures are read, what config.json says of them, and where their tensors lie. What an
architecture's class in `transformers` takes for an absent field is taken here.
"""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.layout import SAME, Entry, FileWords, Layout
from mta_viz.checkpoint.params import MOST_LAYERS, FieldReader, Parsed, read_rope_scaling, show
from mta_viz.checkpoint.parts import INDEX, SHARDS, WEIGHTS, unfinished
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError, FileError
from mta_viz.tokenizers.loading import kind_of_file, settings_beside, unnamed_file

CONFIG = "config.json"
DOWNLOADS = ".cache/huggingface/download"  # where `hf download --local-dir` keeps what it has begun
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
WORDS = FileWords(
    settings=CONFIG,
    n_layers="config.num_hidden_layers",
    layer="model.layers.",
    embedding=EMBEDDING,
    tied="config.tie_word_embeddings",
    tied_copies=(HEAD,),
    untie="set tie_word_embeddings to false",
)


@dataclass(frozen=True)
class Architecture:
    """What an architecture fixes, and what an absent field means: length trained on, window, kv heads."""

    n_ctx: int
    window: int | None = None
    chooses_window: bool = False  # only as use_sliding_window says, in layers from max_window_layers on
    qkv_bias: bool = False
    chooses_biases: bool = False
    one_kv_head_each: bool = False  # for a query head, where nothing is said; shapes show whether that is so


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(2048, chooses_biases=True, one_kv_head_each=True),
    "MistralForCausalLM": Architecture(131_072, window=4096),
    "Qwen2ForCausalLM": Architecture(32_768, window=4096, chooses_window=True, qkv_bias=True),
}

_ENDING = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)\Z")  # of a class in `transformers`


def tokenizer_of(folder: Path, given: Path | None) -> tuple[str, str]:
    """Kind and file of a folder's tokenizer, or of the file `given` in its place.

    tokenizer.json itself puts BOS before a text or does not; a SentencePiece model leaves it to the settings.
    """
    file = given or unnamed_file(folder) or folder / "tokenizer.json"
    kind = kind_of_file(file)
    without_bos = kind == "sp" and settings_beside(folder).get("add_bos_token") is False
    return ("sp-plain" if without_bos else kind), file.name


def parse_config(data: object, tokenizer_name: str, tokenizer_path: str) -> Parsed:
    """Everything config.json says. An architecture that is not supported is the only problem told."""
    listed = data.get("architectures") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(listed, list) or len(listed) != 1:
        wanted = "expected Hugging Face's object of settings with one name in `architectures`"
        return Parsed(None, (f"{CONFIG} holds {show(listed if isinstance(data, dict) else data)}; {wanted}",))
    name = listed[0]
    if not isinstance(name, str) or name not in ARCHITECTURES:
        return Parsed(None, (_unsupported(name),))
    model = FieldReader(data, "config", {})
    if (packed := model.anything("quantization_config")) is not None:
        how = show(packed.get("quant_method") if isinstance(packed, dict) else packed)
        remedy = "which is not read; open the files of the model that is not"
        return Parsed(None, (f"config.quantization_config: its weights are quantised ({how}), {remedy}",))
    fields = _fields(model, ARCHITECTURES[name])
    model.refuse_unknown(frozenset(_known()["no_effect"]))
    problems: tuple[str, ...] = tuple(model.problems)
    try:
        config = ModelConfig(**fields)
    except ConfigError as error:
        config, problems = None, problems or error.problems
    dtype = data.get("dtype", data.get("torch_dtype"))
    named = dtype if type(dtype) is str else None
    return Parsed(config, problems, tuple(model.notes), tokenizer_name, tokenizer_path, named)


@cache
def _known() -> dict[str, Any]:
    return door.read_toml(Path(__file__).with_name("architectures.toml"))


def _unsupported(name: object) -> str:
    why = "it computes something else or is not known here"
    if differs := difference(name):
        why = f"it has {differs}"
    return f"{show(name)} is not supported: {why}; supported are {', '.join(ARCHITECTURES)}"


def difference(name: object) -> str | None:
    """What an architecture has that Llama's kind has not, by its name; None for one not known here."""
    if not isinstance(name, str):
        return None
    return _known()["differences"].get(_ENDING.sub("", name).lower().replace("-", ""))


def _fields(model: FieldReader, kind: Architecture) -> dict[str, Any]:
    d_model, n_heads = model.needed("hidden_size"), model.needed("num_attention_heads")
    n_ctx = model.whole("max_position_embeddings", kind.n_ctx)
    n_layers = model.needed("num_hidden_layers", MOST_LAYERS)
    _check_window(model, kind, n_ctx, n_layers)
    model.checked("hidden_act", "silu", lambda value: value in ("silu", "swish"), '"silu"')
    model.checked("rope_interleaved", False, lambda value: value is False, "false")
    biases = [_bias(model, name, kind) for name in ("attention_bias", "mlp_bias")]
    return {
        "d_model": d_model,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": _kv_heads(model, n_heads, kind),
        "d_head": _head_width(model, d_model, n_heads),
        "d_mlp": model.needed("intermediate_size"),
        "vocab_size": model.needed("vocab_size"),
        "n_ctx": n_ctx,
        "norm_eps": model.positive("rms_norm_eps", 1e-6),
        "tied": model.flag("tie_word_embeddings"),
        "qkv_bias": biases[0] or kind.qkv_bias,
        "out_bias": biases[0],
        "mlp_bias": biases[1],
        **_rotary(model, n_ctx),
    }


def _kv_heads(model: FieldReader, n_heads: int, kind: Architecture) -> int:
    absent = kind.one_kv_head_each and model.anything("num_key_value_heads") is None
    n_kv_heads = n_heads if absent else model.needed("num_key_value_heads")
    if n_heads % n_kv_heads:
        expected = f"a divisor of num_attention_heads {n_heads}"
        return model.fault("num_key_value_heads", n_kv_heads, expected, n_heads)
    return n_kv_heads


def _head_width(model: FieldReader, d_model: int, n_heads: int) -> int:
    d_head = model.whole("head_dim", None)
    if d_head is None and d_model % n_heads:
        expected = f"a divisor of hidden_size {d_model}, or head_dim beside it"
        return model.fault("num_attention_heads", n_heads, expected, 2)
    d_head = d_head or d_model // n_heads
    return model.fault("head_dim", d_head, "an even number", 2) if d_head % 2 else d_head


def _bias(model: FieldReader, name: str, kind: Architecture) -> bool:
    if kind.chooses_biases:
        return model.flag(name)
    return model.checked(name, False, lambda value: value is False, "false in this architecture")


def _check_window(model: FieldReader, kind: Architecture, n_ctx: int, n_layers: int) -> None:
    """A window no shorter than what the model was trained on hides nothing within that length."""
    window, used = model.whole("sliding_window", None), model.flag("use_sliding_window")
    if "sliding_window" not in model.block:
        window = kind.window
    if kind.chooses_window and not used:
        window = None
    first = model.whole("max_window_layers", None, low=0)
    in_layers = window is not None and not (kind.chooses_window and first is not None and first >= n_layers)
    short = window is not None and window < n_ctx
    if in_layers and short:
        model.problems.append(
            f"config.sliding_window is {window}, shorter than max_position_embeddings {n_ctx}: windowed "
            "attention is not supported; expected null, or at least that length"
        )
        return
    if in_layers:
        model.note_window(window)
    whole = {"full_attention"} if short else {"full_attention", "sliding_attention"}
    kinds = model.checked("layer_types", None, lambda value: isinstance(value, list), "a list")
    if others := sorted({show(kind) for kind in kinds or () if kind not in whole}):
        model.problems.append(f'config.layer_types has {", ".join(others)}; expected "full_attention" alone')


def _rotary(model: FieldReader, n_ctx: int) -> dict[str, Any]:
    """theta and scaling; `rope_parameters` is how transformers 5 writes both, before it `rope_scaling`."""
    older, newer = model.anything("rope_scaling"), model.anything("rope_parameters")
    block = FieldReader(older or newer, f"config.{'rope_scaling' if older else 'rope_parameters'}", {})
    theta = model.positive("rope_theta", 10_000.0)
    theta = block.positive("rope_theta", theta)
    for reader in (model, block):
        reader.checked("partial_rotary_factor", None, lambda value: value == 1, "1: the whole of each head")
    scaling = read_rope_scaling(block, n_ctx)
    model.problems += block.problems
    return {"rope_theta": theta, "rope_scaling": scaling}


MODEL_KEYS = {"embed.weight": EMBEDDING, "ln_final.weight": "model.norm.weight", "unembed.weight": HEAD}
BLOCK_KEYS = {
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
    "attn.wo": "self_attn.o_proj",
    "mlp.w1": "mlp.gate_proj",
    "mlp.w2": "mlp.down_proj",
    "mlp.w3": "mlp.up_proj",
}


def halves(d_head: int) -> Layout:
    """Rows of each head in two halves, row i turning with row i + d/2; ours turn in pairs, 2i and 2i + 1."""

    def turned(*rows_of_heads: int) -> Callable[[Tensor], Tensor]:
        return lambda rows: rows.unflatten(0, rows_of_heads).transpose(1, 2).flatten(0, 2)

    return Layout(lambda shape: shape, turned(-1, 2, d_head // 2), turned(-1, d_head // 2, 2))


def file_entries(config: ModelConfig) -> dict[str, Entry]:
    """Our parameter name -> its place in a folder's weights."""
    turned, entries = halves(config.d_head), {}
    for name, shape in parameter_shapes(config).items():
        if name in MODEL_KEYS:
            entries[name] = Entry(MODEL_KEYS[name], shape, SAME)
            continue
        _, layer, part = name.split(".", 2)
        module, _, values = part.rpartition(".")
        layout = turned if module in ("attn.wq", "attn.wk") else SAME
        entries[name] = Entry(f"model.layers.{layer}.{BLOCK_KEYS[module]}.{values}", shape, layout)
    return entries


def is_half_fetched(folder: Path, kinds: Collection[str]) -> bool:
    """Whether a folder, no model, has a model's settings, or a broken-off download of one of `kinds`."""
    with suppress(FileError):
        settings = door.read_json(folder / CONFIG)
        if isinstance(settings, dict) and "architectures" in settings:
            return True
    return any(Path(file.stem).suffix.lower() in kinds for file in unfinished(folder))


def is_folder(folder: Path) -> bool:
    """Whether it is one, by the names of its files alone."""
    if not (folder / CONFIG).is_file():
        return False
    return any(door.is_there(folder / name) for name in (WEIGHTS, INDEX)) or any(folder.glob(SHARDS))
