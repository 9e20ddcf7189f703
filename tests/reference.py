"""A second derivation of the whole model, to test the first against: float64, slow, plain arithmetic.

Owns: reading Lingua's `model` options with their defaults, the parameter names and shapes they call
for, and one forward pass that keeps every intermediate under its hook name, without batch axis.
Does not: import anything of the package, call a convolution, read files or hold a model.

Nothing here is fast or general on purpose: arrays are numpy, loops run over heads and kernel taps.
Formulas are those of the paper's section 3 (arXiv 2504.00927).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Shape = tuple[int, ...]
Weights = Mapping[str, Array]

MODEL_DEFAULTS: dict[str, Any] = {
    "dim": 512, "n_layers": 8, "n_heads": None, "head_dim": None, "n_kv_heads": None,
    "ffn_dim_multiplier": None, "multiple_of": 256, "norm_eps": 1e-5, "rope_theta": 10000.0,
    "max_seqlen": 1024, "weight_tying": False, "vocab_size": -1,
    "rope_scaling": None, "qkv_bias": False, "out_bias": False, "mlp_bias": False, "differential": False,
}  # fmt: skip
MTA_DEFAULTS: dict[str, Any] = {
    "use_mta": False, "query_kernel_size": 1, "key_kernel_size": 1, "pad_key": "both", "mta_layers": None,
    "after_sm_query_kernel_size": None, "after_sm_key_kernel_size": None, "head_kernel_size": None,
    "group_norm": False, "layer_norm_rescale": False, "curse_norm": False, "pre_sm_linear_head": False,
    "post_sm_linear_head": False, "add_gating": False, "gate_1d": True,
}  # fmt: skip
LAMBDAS = [f"attention.lambda_{name}" for name in ("q1", "k1", "q2", "k2")]  # of DIFF Transformer


@dataclass(frozen=True)
class Sizes:
    """Widths that follow from the options."""

    d_model: int
    n_layers: int
    heads: int
    kv_heads: int
    d_head: int
    d_mlp: int
    vocab: int


def options(model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(model, mta) options of a params.json `model` block, absent fields filled with defaults."""
    given = {name: value for name, value in model.items() if name != "mta"}
    return MODEL_DEFAULTS | given, MTA_DEFAULTS | (model.get("mta") or {})


def sizes(model: Mapping[str, Any]) -> Sizes:
    """Head width, kv heads and feed-forward width of a `model` block."""
    opts, _ = options(model)
    dim = opts["dim"]
    d_head = opts["head_dim"] or dim // opts["n_heads"]
    heads = opts["n_heads"] or dim // d_head
    hidden = int(8 * dim / 3)
    if opts["ffn_dim_multiplier"] is not None:
        hidden = int(opts["ffn_dim_multiplier"] * hidden)
    multiple = opts["multiple_of"]
    hidden = multiple * math.ceil(hidden / multiple)
    kv_heads = opts["n_kv_heads"] or heads
    return Sizes(dim, opts["n_layers"], heads, kv_heads, d_head, hidden, opts["vocab_size"])


def kernel_sizes(mta: Mapping[str, Any], layer: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """(c_q, c_k) before and after the softmax in one layer, None where the layer has no kernel."""
    listed = mta["mta_layers"] is None or layer in [int(part) for part in mta["mta_layers"].split(",")]
    if not (mta["use_mta"] and listed):
        return None, None
    pre = mta["query_kernel_size"], mta["key_kernel_size"]
    post = mta["after_sm_query_kernel_size"], mta["after_sm_key_kernel_size"]
    return (None if None in pre else pre), (None if None in post else post)


def parameter_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    """Lingua's parameter names and shapes for a `model` block; a tied matrix is listed once."""
    opts, mta = options(model)
    s = sizes(model)
    shapes: dict[str, Shape] = {
        "tok_embeddings.weight": (s.vocab, s.d_model),
        "norm.weight": (s.d_model,),
    }
    if not opts["weight_tying"]:
        shapes["output.weight"] = (s.vocab, s.d_model)
    for layer in range(s.n_layers):
        block = (
            _attention_shapes(s, mta, layer)
            | _bias_shapes(s, opts)
            | {name: (s.d_head // 2,) for name in LAMBDAS if opts["differential"]}
            | {
                "feed_forward.w1.weight": (s.d_mlp, s.d_model),
                "feed_forward.w3.weight": (s.d_mlp, s.d_model),
                "feed_forward.w2.weight": (s.d_model, s.d_mlp),
                "attention_norm.weight": (s.d_model,),
                "ffn_norm.weight": (s.d_model,),
            }
        )
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in block.items()}
    return shapes


def _bias_shapes(s: Sizes, opts: Mapping[str, Any]) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    if opts["qkv_bias"]:
        shapes["attention.wq.bias"] = (s.heads * s.d_head,)
        shapes["attention.wk.bias"] = shapes["attention.wv.bias"] = (s.kv_heads * s.d_head,)
    if opts["out_bias"]:
        shapes["attention.wo.bias"] = (s.d_model,)
    if opts["mlp_bias"]:
        shapes["feed_forward.w1.bias"] = shapes["feed_forward.w3.bias"] = (s.d_mlp,)
        shapes["feed_forward.w2.bias"] = (s.d_model,)
    return shapes


def _attention_shapes(s: Sizes, mta: Mapping[str, Any], layer: int) -> dict[str, Shape]:
    pre, post = kernel_sizes(mta, layer)
    group = mta["head_kernel_size"]
    gate = 1 if mta["gate_1d"] else s.d_head
    shapes: dict[str, Shape | None] = {
        "wq.weight": (s.heads * s.d_head, s.d_model),
        "wk.weight": (s.kv_heads * s.d_head, s.d_model),
        "wv.weight": (s.kv_heads * s.d_head, s.d_model),
        "wo.weight": (s.d_model, s.heads * s.d_head),
        "mta_kernel": (s.heads, 1, *pre) if pre else None,
        "mta_kernel_after_sm": (s.heads, 1, *post) if post else None,
        "wpsm.weight": (s.heads, s.heads) if mta["use_mta"] and mta["pre_sm_linear_head"] else None,
        "wposm.weight": (s.heads, s.heads) if mta["use_mta"] and mta["post_sm_linear_head"] else None,
        "head_kernel": (s.heads // group, group, group) if mta["use_mta"] and group else None,
        "subln.weight": (s.d_head,) if mta["group_norm"] else None,
        "gate.weight": (gate, s.d_head) if mta["add_gating"] else None,
        "gate.bias": (gate,) if mta["add_gating"] else None,
    }
    return {f"attention.{name}": shape for name, shape in shapes.items() if shape}


def forward(model: Mapping[str, Any], state: Weights, ids: Array) -> dict[str, Array]:
    """Every intermediate of one prompt by hook name, and `logits` [position, vocab]; all float64.

    `state` has Lingua's names; `ids` is [position]. T x T stages are [head, query, key], vectors
    per head [position, head, d]. Score stages before the softmax carry no mask; the normalised
    residual streams carry no weight yet.
    """
    opts, _ = options(model)
    w = {name: np.asarray(value, dtype=np.float64) for name, value in state.items()}
    out: dict[str, Array] = {}
    x = out["hook_embed"] = w["tok_embeddings.weight"][np.asarray(ids)]
    for layer in range(opts["n_layers"]):
        x = _block(model, w, x, layer, out)
    unit = out["ln_final.hook_normalized"] = rms(x, opts["norm_eps"])
    out["logits"] = (unit * w["norm.weight"]) @ _unembedding(w).T
    return out


def _unembedding(w: Weights) -> Array:
    for name in ("output.weight", "output.tied_module.weight", "tok_embeddings.weight"):
        if name in w:
            return w[name]
    raise KeyError("no unembedding in the state dict")


def _block(model: Mapping[str, Any], w: Weights, x: Array, layer: int, out: dict[str, Array]) -> Array:
    opts, mta = options(model)
    here = f"blocks.{layer}"
    mine = {
        name.removeprefix(f"layers.{layer}."): v
        for name, v in w.items()
        if name.startswith(f"layers.{layer}.")
    }
    factor = depth_factor(layer) if mta["curse_norm"] else 1.0
    out[f"{here}.hook_resid_pre"] = x
    unit = out[f"{here}.ln1.hook_normalized"] = rms(x, opts["norm_eps"])
    h = unit * mine["attention_norm.weight"] * factor
    attended = out[f"{here}.hook_attn_out"] = _attention(model, mine, h, layer, out)
    mid = out[f"{here}.hook_resid_mid"] = x + attended
    unit = out[f"{here}.ln2.hook_normalized"] = rms(mid, opts["norm_eps"])
    h = unit * mine["ffn_norm.weight"] * factor
    gated = silu(_linear(mine, "feed_forward.w1", h)) * _linear(mine, "feed_forward.w3", h)
    out[f"{here}.hook_mlp_out"] = _linear(mine, "feed_forward.w2", gated)
    out[f"{here}.hook_resid_post"] = mid + out[f"{here}.hook_mlp_out"]
    return out[f"{here}.hook_resid_post"]


def _linear(w: Weights, name: str, x: Array) -> Array:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def _attention(model: Mapping[str, Any], w: Weights, h: Array, layer: int, out: dict[str, Array]) -> Array:
    opts, mta = options(model)
    s, here = sizes(model), f"blocks.{layer}.attn."
    q = _linear(w, "attention.wq", h).reshape(len(h), s.heads, s.d_head)
    k = _linear(w, "attention.wk", h).reshape(len(h), s.kv_heads, s.d_head)
    v = _linear(w, "attention.wv", h).reshape(len(h), s.kv_heads, s.d_head)
    if opts["differential"]:
        return _differential_attention(opts, mta, w, (q, k, v), layer, out)
    turns = [turn_per_position(opts, i, s.d_head) for i in range(s.d_head // 2)]
    rot_q, rot_k = rotate(q, turns), rotate(k, turns)
    vectors = {"hook_q": q, "hook_k": k, "hook_v": v, "hook_rot_q": rot_q, "hook_rot_k": rot_k}
    out |= {here + name: value for name, value in vectors.items()}
    kv_head = [head // (s.heads // s.kv_heads) for head in range(s.heads)]
    scores = np.stack([rot_q[:, i] @ rot_k[:, kv_head[i]].T / math.sqrt(s.d_head) for i in range(s.heads)])
    pattern = _weights(mta, w, scores, layer, out)
    z = out[here + "hook_z"] = np.stack([pattern[i] @ v[:, kv_head[i]] for i in range(s.heads)], axis=1)
    z = _norm_and_gate(mta, w, z, layer, out)
    return _linear(w, "attention.wo", z.reshape(len(h), -1))


def _differential_attention(
    opts: Mapping[str, Any], mta: Mapping[str, Any], w: Weights, qkv: tuple[Array, ...], layer: int,
    out: dict[str, Array],
) -> Array:  # fmt: skip
    """Ye et al. 2024: q and k of `heads` heads are 2 x heads sub-heads of half the width.

    Sub-heads 2i and 2i + 1 are head i's two softmax maps, whose difference weights its values.
    """
    n, heads, width = qkv[0].shape
    here, d, past = f"blocks.{layer}.attn.", width // 2, causal(n)
    sub_q, sub_k = (part.reshape(n, 2 * heads, d) for part in qkv[:2])
    turns = [turn_per_position(opts, i, d) for i in range(d // 2)]
    rot_q, rot_k = rotate(sub_q, turns), rotate(sub_k, turns)
    scores = np.stack([rot_q[:, i] @ rot_k[:, i].T / math.sqrt(d) for i in range(2 * heads)])
    maps = np.stack([softmax(np.where(past, score[None], -np.inf))[0] for score in scores])
    q1, k1, q2, k2 = (w[name] for name in LAMBDAS)
    share = math.exp(sum(q1 * k1)) - math.exp(sum(q2 * k2)) + 0.8 - 0.6 * math.exp(-0.3 * layer)
    pattern = np.stack([maps[2 * i] - share * maps[2 * i + 1] for i in range(heads)])
    z = np.stack([pattern[i] @ qkv[2][:, i] for i in range(heads)], axis=1)
    values = {
        "q": qkv[0], "k": qkv[1], "v": qkv[2], "rot_q": rot_q.reshape(n, heads, width),
        "rot_k": rot_k.reshape(n, heads, width), "attn_scores": scores[0::2], "attn_scores_2": scores[1::2],
        "softmax": maps[0::2], "softmax_2": maps[1::2], "lambda": np.full(heads, share), "pattern": pattern,
        "z": z,
    }  # fmt: skip
    out |= {f"{here}hook_{name}": value for name, value in values.items()}
    return _linear(w, "attention.wo", _norm_and_gate(mta, w, z, layer, out).reshape(n, -1))


def _weights(mta: Mapping[str, Any], w: Weights, scores: Array, layer: int, out: dict[str, Array]) -> Array:
    """Raw scores -> the weights that multiply v, keeping each stage the layer computes."""
    here, past = f"blocks.{layer}.attn.", causal(scores.shape[-1])
    out[here + "hook_attn_scores"] = scores
    if "attention.mta_kernel" in w:
        scores = convolve(np.where(past, scores, 0.0), w["attention.mta_kernel"][:, 0], mta["pad_key"])
        out[here + "hook_scores_kq"] = scores
    if "attention.wpsm.weight" in w:
        scores = mix(scores, w["attention.wpsm.weight"])
        out[here + "hook_scores_mixed"] = scores
    p = out[here + "hook_softmax"] = softmax(np.where(past, scores, -np.inf))
    if "attention.mta_kernel_after_sm" in w:
        p = np.where(past, convolve(p, w["attention.mta_kernel_after_sm"][:, 0], mta["pad_key"]), 0.0)
        out[here + "hook_softmax_kq"] = p
    if "attention.head_kernel" in w:
        p = mix(p, grouped_to_full(w["attention.head_kernel"]))
    elif "attention.wposm.weight" in w:
        p = mix(p, w["attention.wposm.weight"])
    out[here + "hook_pattern"] = p
    return p


def _norm_and_gate(mta: Mapping[str, Any], w: Weights, z: Array, layer: int, out: dict[str, Array]) -> Array:
    here = f"blocks.{layer}.attn."
    if mta["group_norm"]:
        z = rms(z, 1e-5) * w["attention.subln.weight"]
        z = z * (depth_factor(layer) if mta["layer_norm_rescale"] else 1.0)
        out[here + "hook_z_normed"] = z
    if mta["add_gating"]:
        logit = z @ w["attention.gate.weight"].T + w["attention.gate.bias"]
        out[here + "hook_gate"] = 1.0 / (1.0 + np.exp(-logit))
        z = z * out[here + "hook_gate"]
    out[here + "hook_z_gated"] = z
    return z


def convolve(maps: Array, kernel: Array, pad_key: str) -> Array:
    """out[h,i,j] = sum over a,b of kernel[h,a,b] * maps[h, i+a-(c_q-1), j+b-L], zero outside.

    maps [head, query, key], kernel [head, c_q, c_k]; L = (c_k-1)/2 for "both", c_k-1 for "left",
    0 for "right". Tap by tap over shifted slices.
    """
    heads, rows, columns = maps.shape
    _, c_q, c_k = kernel.shape
    left = {"both": (c_k - 1) // 2, "left": c_k - 1, "right": 0}[pad_key]
    framed = np.zeros((heads, rows + c_q - 1, columns + c_k - 1))
    framed[:, c_q - 1 :, left : left + columns] = maps
    out = np.zeros_like(maps)
    for a in range(c_q):
        for b in range(c_k):
            out = out + kernel[:, a, b, None, None] * framed[:, a : a + rows, b : b + columns]
    return out


def mix(maps: Array, matrix: Array) -> Array:
    """out[target] = sum over source of matrix[target, source] * maps[source]."""
    heads = range(len(maps))
    return np.stack([sum(matrix[target, source] * maps[source] for source in heads) for target in heads])


def grouped_to_full(kernel: Array) -> Array:
    """[group, source, target] within groups of consecutive heads -> [target, source] over all heads."""
    groups, size, _ = kernel.shape
    full = np.zeros((groups * size, groups * size))
    for g in range(groups):
        for source in range(size):
            for target in range(size):
                full[g * size + target, g * size + source] = kernel[g, source, target]
    return full


def turn_per_position(opts: Mapping[str, Any], pair: int, d: int) -> float:
    """Radians: theta^(-2i/d), or what Llama 3's rule makes of it (by the pair's wavelength in tokens)."""
    turn = opts["rope_theta"] ** (-2 * pair / d)
    rule = opts["rope_scaling"]
    if rule is None:
        return turn
    wavelength, trained = 2 * math.pi / turn, rule["original_max_position_embeddings"]
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    if wavelength < trained / high:
        return turn
    if wavelength > trained / low:
        return turn / rule["factor"]
    smooth = (trained / wavelength - low) / (high - low)
    return (1 - smooth) * turn / rule["factor"] + smooth * turn


def rotate(x: Array, turns: list[float]) -> Array:
    """Rotary embedding of [position, head, d]: pair (2i, 2i+1) turns by position * turns[i]."""
    out = np.empty_like(x)
    d = x.shape[-1]
    for pos in range(len(x)):
        for i in range(d // 2):
            cos, sin = math.cos(pos * turns[i]), math.sin(pos * turns[i])
            even, odd = x[pos, :, 2 * i], x[pos, :, 2 * i + 1]
            out[pos, :, 2 * i] = cos * even - sin * odd
            out[pos, :, 2 * i + 1] = sin * even + cos * odd
    return out


def rms(x: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) over the last axis; no weight."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def depth_factor(layer: int) -> float:
    """1 - (0.8 - 0.6 exp(-0.3 l)), layers from 0."""
    return 1.0 - (0.8 - 0.6 * math.exp(-0.3 * layer))


def causal(n: int) -> Array:
    """[query, key] True where key <= query."""
    return np.arange(n)[None, :] <= np.arange(n)[:, None]


def softmax(scores: Array) -> Array:
    """Over the last axis; -inf gives exactly 0."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x / (1.0 + np.exp(-x))
