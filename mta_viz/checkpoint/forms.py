"""What a file's tensors tell by their names: wrappers, files of other programs, tables the settings give.

Of tables of rotary angles and of masks the values are read: they must be those that the settings give, and
are then not needed. Knows the forms in which programs keep angles: frequencies of pairs, complex turns,
matrices, cosines, sines. Of all else it looks at names, shapes and dtypes alone.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mta_viz.checkpoint.door import MIB
from mta_viz.checkpoint.gguf import slowdowns
from mta_viz.checkpoint.types import StoredTensor, StoredWeights, dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError
from mta_viz.printed import size_text

MOST_ABOVE_FILE = 512 * MIB  # bytes that the tensors of a file may take beyond its own size
_MOST_AXES = 8
# What torch.compile, DataParallel, FSDP and activation checkpointing put into the names of what they wrap.
_WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WRAPPER = re.compile(rf"(?:^|(?<=\.))(?:{'|'.join(_WRAPPERS)})\.")
_OPTIMIZER = re.compile(
    r"(?:^|\.)(?:optim|optimizer|param_groups)\.|\.?(?:exp_avg|exp_avg_sq|momentum_buffer|max_exp_avg_sq)$"
)
_ROTARY = re.compile(
    r"(?:^|\.)(?:rope|rope_embeddings|rotary|rotary_emb)\.(?:freqs|freqs_cis|inv_freq|cos|sin|cos_cached|"
    r"sin_cached|cache)$|(?:^|\.)(?:freqs_cis|inv_freq)$"
)
_MASK = re.compile(
    r"(?:^|\.)(?:attn|attention|self_attn)\.bias$|(?:^|\.)(?:masked_bias|causal_mask|(?:attn_|attention_)?mask|tril)$"
)
_HIDDEN = -1e3  # what is added to a score that is masked is below
_ADAPTER = re.compile(  # of peft, and of what is called so elsewhere
    r"(?:^|\.)(?:lora_(?:[AB]|embedding_[AB]|magnitude_vector|up|down)|ia3_l|hada_[wt]\d(?:_[ab])?|"
    r"lokr_[wt]\d(?:_[ab])?|b?oft_[rRsS]|vera_lambda_[bd])(?:\.|$)"
)
_COMPUTED = re.compile(r"\.parametrizations\.|\.weight_(?:g|v|orig|mask)$")
_NO_VALUES = re.compile(r"(?:^|\.)_extra_state$")  # Transformer Engine's scales of float8
_HUGGING_FACE = re.compile(r"(?:^|\.)(?:self_attn\.[qkvo]_proj|embed_tokens|mlp\.(?:gate|up|down)_proj)\.")
_LINGUA = re.compile(r"(?:^|\.)(?:attention\.w[qkvo]|tok_embeddings|feed_forward\.w[123])\.")
_KNOWN = {
    True: re.compile(r"(?:layers\.\d+|norm|output|tok_embeddings)\."),  # Lingua's
    False: re.compile(r"(?:model\.layers\.\d+|model\.norm|model\.embed_tokens|lm_head)\."),  # Hugging Face's
}
_QUANTISED_NAME = re.compile(
    r"\.(?:qweight|qzeros|SCB|absmax|quant_map|weight_scale(?:_inv)?|weight_packed|scales|_scale)$|\.quant_state\."
)
_QUANTISED = {
    dtype
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype)
    and name.startswith(("float8", "float4", "q", "int8", "uint8", "int4", "uint4"))
}
# Of safetensors, as `native` writes of what it has no dtype for.
_BITS = re.compile(r" has the dtype (F[468]\w*)")


def plain(weights: StoredWeights, embedding: str) -> StoredWeights:
    """The model's own tensors under the names of their format, which calls its embedding `embedding`.

    Of a file that is something else, or that claims far more than it holds, that alone is the problem.
    """
    named, notes, problems = _own_names(weights, embedding)
    tensors = {name: weights.tensors[key] for name, key in named.items() if key in weights.tensors}
    unreadable = {name: weights.unreadable[key] for name, key in named.items() if key in weights.unreadable}
    masks = {name: tensors.pop(name) for name in list(tensors) if _MASK.search(name)}
    if scales := {name: tensors.pop(name) for name in list(tensors) if _NO_VALUES.search(name)}:
        notes.append(f"{_listed(scales)} left out, since float8 is not computed in")
    cause = _cause(weights, tensors, unreadable, embedding) if tensors or unreadable else None
    if cause is not None:
        return StoredWeights({}, (cause,), weights.n_bytes)
    for name, tensor in list(tensors.items()):
        if len(tensor.shape) > _MOST_AXES:
            del tensors[name]
            unreadable[name] = f"{name} has {len(tensor.shape):,} axes; no parameter has more than 4"
    rotary = {name: tensors.pop(name) for name in list(tensors) if _ROTARY.search(name)}
    if rotary:
        compared = "compared with them when the model is read"
        notes.append(f"{_listed(rotary)} left out, since the settings give rotary angles; {compared}")
    if masks:
        notes.append(f"{_listed(masks)} left out, since attention is causal; compared when the model is read")
    return replace(
        weights,
        tensors=tensors,
        problems=(*weights.problems, *problems),
        unreadable=unreadable,
        notes=(*weights.notes, *notes),
        tables=rotary | masks,
    )


def _own_names(weights: StoredWeights, embedding: str) -> tuple[dict[str, str], list[str], list[str]]:
    """(name -> key in the file, notes, problems); the optimiser's tensors are left out beside the model's."""
    keys = [*weights.tensors, *weights.unreadable]
    wrappers = sorted({wrapper for key in keys for wrapper in _WRAPPER.findall(key)})
    bare = {key: _WRAPPER.sub("", key) for key in keys}
    ends = [name.removesuffix(embedding) for name in bare.values() if name.endswith(f".{embedding}")]
    prefix = ends[0] if len(ends) == 1 and embedding not in bare.values() else ""
    if prefix:
        wrappers.append(prefix)
    named: dict[str, str] = {}
    problems = []
    inner, _, rest = embedding.partition(".")
    headless = inner == "model" and rest in bare.values() and embedding not in bare.values()
    for key, name in bare.items():
        inside = headless and not name.startswith("lm_head.")
        own = f"model.{name}" if inside else name.removeprefix(prefix)
        if _OPTIMIZER.search(name) and not all(map(_OPTIMIZER.search, bare.values())):
            continue
        if own in named:
            problems.append(f"{named[own]} and {key} are both {own}; remove the one that is not the model's")
        named[own] = key
    without = f"names are read without {', '.join(wrappers)} (a wrapped or compiled model)"
    notes = [without] if wrappers else []
    notes += ["names are read with model. before them, where Hugging Face's have it"] if headless else []
    return named, notes, problems


def _cause(
    weights: StoredWeights, tensors: Mapping[str, StoredTensor], unreadable: Mapping[str, str], embedding: str
) -> str | None:
    """The one thing that is wrong with weights that are none of this format's, and what to do."""
    names = [*tensors, *unreadable]
    if kind := _quantisation(tensors, unreadable):
        return f"its weights are quantised ({kind}), which is not read; save it in bf16, fp16 or fp32"
    foreign = _no_model(names) or _more_than_a_model(names, embedding) or _told(names, _ALIKE)
    if useless := foreign or _foreign_names(names, embedding) or _no_values(tensors, unreadable):
        return useless
    claimed = sum(tensor.n_bytes for tensor in tensors.values())
    if claimed <= weights.n_bytes + MOST_ABOVE_FILE:
        return None
    sizes = f"its tensors claim {size_text(claimed)}, its files have {size_text(weights.n_bytes)}"
    return f"{sizes}: several share their values, or it is damaged; save each with values of its own"


def _no_model(names: list[str]) -> str | None:
    if all(map(_OPTIMIZER.search, names)):
        return f"its weights are an optimiser's state alone ({names[0]}, ...); give the model's file"
    if flat := _first(names, lambda name: name.endswith("flat_param")):
        whole = "gather a full state dict (FullStateDictConfig) and save that"
        return f"its weights are pieces that FSDP flattened ({flat}); {whole}"
    if computed := _first(names, _COMPUTED.search):
        remedy = "remove that (torch.nn.utils.parametrize or prune) and save the weights themselves"
        return f"its weights are computed from others ({computed}, as by weight norm or pruning); {remedy}"
    return None


def _more_than_a_model(names: list[str], embedding: str) -> str | None:
    """An adapter, with its model or without it, or several models."""
    models = sorted({name.removesuffix(embedding) for name in names if f".{name}".endswith(f".{embedding}")})
    if adapter := _first(names, _ADAPTER.search):
        kind = f"{'a LoRA adapter' if 'lora' in adapter else 'an adapter of peft'} ({adapter})"
        what = f"hold {kind} beside the model" if models else f"are {kind}, which is no model by itself"
        return f"its weights {what}; merge it into its base (in peft: merge_and_unload) and save that"
    if len(models) < 2:
        return None
    named = ", ".join(model or "one without a name" for model in models)
    return f"it holds {len(models)} models ({named}); save the one to open by itself"


def _no_values(tensors: Mapping[str, StoredTensor], unreadable: Mapping[str, str]) -> str | None:
    """What all tensors alike lack; a single fault of them all is that fault already."""
    if tensors and all(0 in tensor.shape for tensor in tensors.values()):
        whole = "write the whole model (of DeepSpeed's ZeRO with its zero_to_fp32.py) and give that"
        return f"its {len(tensors):,} tensors are empty: their values lie elsewhere, in pieces; {whole}"
    reasons = dict.fromkeys(unreadable.values())
    if tensors or len(reasons) < 2:
        return None
    return f"none of its {len(unreadable):,} tensors can be used: {next(iter(reasons))}"


def _quantisation(tensors: Mapping[str, StoredTensor], unreadable: Mapping[str, str]) -> str | None:
    for name, tensor in tensors.items():
        if tensor.dtype in _QUANTISED and (len(tensor.shape) > 1 or tensor.dtype.is_floating_point):
            others = sum(other.dtype == tensor.dtype for other in tensors.values()) - 1
            return f"{name}{f' and {others:,} more' if others else ''}: {dtype_name(tensor.dtype)}"
    if bits := next(filter(None, map(_BITS.search, unreadable.values())), None):
        return bits[1]
    return _first(tensors, _QUANTISED_NAME.search)


# Names of what is Llama's kind but for one thing, and of other programs' models.
_ALIKE = {
    "have experts ({}) in place of one MLP, which is not read; give a model without": re.compile(
        r"\.(?:experts|block_sparse_moe|router)\."
    ),
    "have projections joined in one matrix ({}); cut each into its own and save those": re.compile(
        r"\.(?:wqkv|w13|qkv_proj|gate_up_proj)\."
    ),
    "have torchtune's names ({}); save it with torchtune's FullModelMetaCheckpointer": re.compile(
        r"\.(?:sa_norm|mlp_norm)\.scale$"
    ),
}
_OTHERS = {
    f"have {whose} names ({{}}), whose architecture is not read; give a Llama": re.compile(
        rf"(?:^|\.)(?:{begin})"
    )
    for whose, begin in {
        "GPT-NeoX's": r"gpt_neox\.",
        "GPT-2's or a relative's": r"(?:wte|wpe|h\.\d+)\.",
        "BERT's": r"bert\.",
        "TransformerLens's": r"blocks\.\d+\.(?:attn|mlp)\.W_|embed\.W_E$",
    }.items()
}


def _foreign_names(names: list[str], embedding: str) -> str | None:
    """Names of Hugging Face where Lingua's are expected, the other way round, or none that is known."""
    lingua = embedding == "tok_embeddings.weight"
    expected, other = (_LINGUA, _HUGGING_FACE) if lingua else (_HUGGING_FACE, _LINGUA)
    if any(map(expected.search, names)):
        return None
    if foreign := _first(names, other.search):
        if lingua:
            remedy = "put Hugging Face's config.json beside it"
            return f"its tensors have Hugging Face's names ({foreign}), not Lingua's; {remedy}"
        remedy = "put Lingua's params.json beside it, and no config.json"
        return f"its tensors have Lingua's names ({foreign}), not Hugging Face's; {remedy}"
    if any(map(_KNOWN[lingua].match, names)):
        return None
    unknown = f"none of its {len(names):,} tensors has a known name ({names[0]}, ...)"
    return _told(names, _OTHERS) or f"{unknown}; expected {embedding} and others"


def _told(names: list[str], table: Mapping[str, re.Pattern[str]]) -> str | None:
    """The first sentence of a table whose pattern a name fits, with that name in it."""
    fitting = ((words, _first(names, pattern.search)) for words, pattern in table.items())
    return next((f"its weights {words.format(found)}" for words, found in fitting if found), None)


def _first(names: Iterable[str], fits: Callable[[str], object]) -> str | None:
    return next((name for name in names if fits(name)), None)


def _listed(names: Iterable[str]) -> str:
    """The first name and how many more."""
    first, *rest = names
    return f"{first} is" if not rest else f"{first} and {len(rest):,} more are"


_MOST_ROWS = 4096  # positions that are compared; of longer tables some, evenly spread


def table_problems(config: ModelConfig, tables: Mapping[str, StoredTensor], settings: str) -> list[str]:
    """One line for each table that is not what `config` gives, saying how; `settings` is its file."""
    turns = config.rope_theta ** (-np.arange(0, config.d_rotary, 2) / config.d_rotary)
    if config.rope_scaling:
        turns = turns / slowdowns(config.rope_scaling, config.d_rotary, config.rope_theta)
    problems: list[str] = []
    unlike: dict[str, list[str]] = {}  # what differs -> the tables in which it does, often one a layer
    for name, stored in tables.items():
        try:
            if _MASK.search(name):
                problems += _mask_problems(name, stored.read())
            elif differs := _difference(name.rpartition(".")[2], stored.read(), turns):
                unlike.setdefault(differs, []).append(name)
        except CheckpointError as error:
            problems += error.problems
    for differs, names in unlike.items():
        holds = "holds" if len(names) == 1 else f"and {len(names) - 1:,} more hold"
        given = f"{names[0]} {holds} other rotary angles than {settings} gives: {differs}"
        problems.append(f"{given}; correct rope_theta or the head width there")
    return problems


def _mask_problems(name: str, table: Tensor) -> list[str]:
    """What of a mask is not causal: each query sees the keys up to its own, and no later one."""
    start, size = f"{name} is no causal mask, which alone is supported", table.shape[-1] if table.ndim else 1
    if name.endswith("masked_bias") and table.numel() == 1 and float(table) < _HIDDEN:
        return []
    if table.ndim < 2 or table.numel() != size**2 or table.shape[-2] != size:
        return [f"{start}: its shape is {list(table.shape)}, expected [n, n]"]
    mask = table.reshape(size, size)
    sees = mask == mask[0, 0]
    wrong = (sees != torch.ones_like(sees).tril()).nonzero()
    if len(wrong):
        query, key = wrong[0].tolist()
        does = f"hides key {key} from" if key <= query else f"shows key {key} to"
        return [f"{start}: it {does} query {query}"]
    shown, hidden = float(mask[0, 0]), mask[~sees].double()
    if bool((hidden == 1 - shown).all()) or (shown == 0 and bool((hidden < _HIDDEN).all())):
        return []
    return [f"{start}: of later keys it holds {float(hidden.max()):g}, of others {shown:g}"]


def _difference(kind: str, table: Tensor, turns: np.ndarray) -> str | None:
    """What differs between a table and what each pair turns a position; None where nothing does."""
    close = 1e-3 if table.dtype.itemsize > 2 else 2e-2
    pairs = len(turns)
    if table.ndim == 1:
        own = table.double().numpy()
        if own.shape != turns.shape:
            return f"{own.size} frequencies, of heads {2 * own.size} wide; its heads are {2 * pairs} wide"
        if np.allclose(own, turns, rtol=close, atol=0):
            return None
        pair = int(np.abs(own / turns - 1).argmax())
        return f"pair {pair} turns by {own[pair]:g} a position, expected {turns[pair]:g}{_theta(own, turns)}"
    both = _cosines_and_sines(kind, table, pairs)
    if both is None:
        return f"its shape is {list(table.shape)}, which is none of a table for heads {2 * pairs} wide"
    step = -(-both.shape[1] // _MOST_ROWS)
    angles = np.arange(0, both.shape[1], step)[:, None] * turns
    for name, own, wanted in zip(("cosine", "sine"), both[:, ::step], (np.cos, np.sin), strict=True):
        wrong = ~np.isclose(own, wanted(angles), rtol=0, atol=10 * close)
        if wrong.any() and not np.isnan(own).all():
            row, pair = (int(place) for place in np.argwhere(wrong)[0])
            values = f"{own[row, pair]:g}, expected {wanted(angles)[row, pair]:g}"
            return f"the {name} of pair {pair} at position {row * step:,} is {values}"
    return None


def _theta(own: np.ndarray, turns: np.ndarray) -> str:
    """Which theta the frequencies come from, where they come from one."""
    if len(own) < 2 or not 0 < own[1] < 1:
        return ""
    theta = own[1] ** -len(own)
    exact = np.allclose(own, theta ** (-np.arange(len(own)) / len(own)), rtol=1e-2)
    return f" (the table is of theta {theta:,.0f})" if exact else ""


def _cosines_and_sines(kind: str, table: Tensor, pairs: int) -> np.ndarray | None:
    """[2, position, pair], NaN for what the table does not hold; None for no shape of a table."""
    if table.is_complex():
        table = torch.view_as_real(table)
    values = table.double().numpy()
    shape = values.shape
    if shape[-2:] == (2, 2) and values.ndim > 3:  # [[cos, -sin], [sin, cos]]
        values, shape = values[..., 0], (*shape[:-2], 2)
    if shape[-2:] == (pairs, 2):
        return np.moveaxis(values.reshape(-1, pairs, 2), 2, 0)
    only = {"cos": 0, "sin": 1}.get(kind[:3])
    if only is None or shape[-1] not in (pairs, 2 * pairs):
        return None
    both = np.full((2, values.size // shape[-1], pairs), np.nan)
    both[only] = values.reshape(-1, shape[-1])[:, :pairs]  # Hugging Face writes each pair twice, in halves
    return both
