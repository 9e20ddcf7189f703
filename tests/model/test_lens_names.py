"""TransformerLens's ActivationCache over our model: what it sums is what the model computes."""

import copy
import gc
import io
import pickle
import weakref
from dataclasses import replace

import pytest
import torch
from transformer_lens import ActivationCache

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.builtin import CharTokenizer

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
PLAIN = ModelConfig(
    d_model=16, n_layers=3, n_heads=4, n_kv_heads=2, d_head=4, d_mlp=24, vocab_size=13,
    mta=MTAOptions(pre_kernel=(2, 3), head_post_group=2),
)  # fmt: skip
FULL = MTAOptions(
    pre_kernel=(3, 5), post_kernel=(2, 3), mta_layers=(1,), head_pre=True, group_norm=True, depth_scale=True,
    gate="dd", scale_block_norms=True,
)  # fmt: skip
CASES = {
    "plain": PLAIN,
    "everything": replace(PLAIN, mta=FULL),
    "biases": replace(PLAIN, out_bias=True, mlp_bias=True, qkv_bias=True, tied=True),
}


def made(config: ModelConfig, seed: int = 0) -> HookedMTA:
    torch.manual_seed(seed)
    model = HookedMTA(config).requires_grad_(False).eval()
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn_like(weight))
    return model


@pytest.fixture(params=CASES)
def model(request) -> HookedMTA:
    return made(CASES[request.param])


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_the_residual_stream_is_the_sum_of_what_its_methods_take_apart(model):
    logits, raw = model.run_with_cache(IDS)
    assert torch.equal(logits, model(IDS))  # listening changes nothing
    cache, final = ActivationCache(raw, model), raw["blocks.2.hook_resid_post"]
    assert torch.equal(cache["resid_post", -1], final)
    stream, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    assert labels[-1] == "final_post" and torch.equal(stream[-1], final) and len(labels) == 7
    close(cache.decompose_resid().sum(0), final)
    close(cache.get_full_resid_decomposition(expand_neurons=True).sum(0), final)
    close(cache.get_full_resid_decomposition(expand_neurons=False).sum(0), final)
    assert cache.stack_activation("pattern").shape == (3, 2, 4, 8, 8)
    heads, names = cache.stack_head_results(return_labels=True)
    biases = [block.attn.wo.bias for block in model.blocks]
    for layer, block in enumerate(heads.unflatten(0, (3, 4))):
        bias = 0 if biases[layer] is None else biases[layer]
        close(block.sum(0) + bias, raw[f"blocks.{layer}.hook_attn_out"])
    assert names[5] == "L1H1"
    close(cache.stack_head_results(incl_remainder=True).sum(0), final)


def test_norms_and_logits_follow_from_the_stack(model):
    logits, raw = model.run_with_cache(IDS)
    cache = ActivationCache(raw, model)
    close(cache.apply_ln_to_stack(cache.decompose_resid()).sum(0), raw["ln_final.hook_normalized"])
    close(cache.decompose_resid(1, apply_ln=True).sum(0), raw["blocks.1.ln1.hook_normalized"])
    mlp = cache.decompose_resid(1, mlp_input=True, apply_ln=True).sum(0)
    close(mlp, raw["blocks.1.ln2.hook_normalized"])
    close(cache.accumulated_resid(apply_ln=True)[-1] @ model.W_U + model.b_U, logits)
    parts = cache.logit_attrs(cache.decompose_resid(), IDS)
    close(parts.sum(0), logits.gather(-1, IDS[..., None])[..., 0])
    one = ActivationCache(model.run_with_cache(IDS[:1])[1], model).remove_batch_dim()
    close(one.stack_head_results(incl_remainder=True).sum(0), one["resid_post", -1])


def test_where_z_is_not_what_heads_add_that_is_said():
    model = made(CASES["everything"])
    _, raw = model.run_with_cache(IDS, names_filter=lambda name: name.endswith(("hook_z", "resid_post")))
    for cache in (
        ActivationCache(raw, model),
        ActivationCache(model.run_with_cache(IDS)[1], model).to("cpu"),
    ):
        with pytest.raises(MtaVizError, match="layer 0 norms or gates its heads after hook_z"):
            cache.stack_head_results()


def test_what_follows_is_computed_and_listed_nowhere(model):
    _, raw = model.run_with_cache(IDS)
    assert raw.keys() == set(model.hook_dict) and "blocks.0.attn.hook_result" not in raw
    close(model.blocks[1].mlp.w2(raw["blocks.1.mlp.hook_post"]), raw["blocks.1.hook_mlp_out"])
    scaled = raw["blocks.1.hook_resid_mid"] / raw["blocks.1.ln2.hook_scale"]
    close(scaled, raw["blocks.1.ln2.hook_normalized"])
    for name in (
        "blocks.7.ln1.hook_scale",
        "blocks.0.mlp.hook_pre",
        "blocks.0.ln1.hook_result",
        ("z", 9),
        "nothing",
        ("nothing", 0),
        "",
        "blocks.7.mlp.hook_post",
    ):
        assert raw.get(name) is None
        with pytest.raises(KeyError):
            raw[name]


@pytest.mark.parametrize(
    "tokens, words",
    [
        ("text", "came without its tokenizer; give ids"),
        ([[1, 2]], r"list came.*torch\.tensor"),
        (None, "NoneType came"),
        (torch.tensor([1, 2]), r"shape \[2\] came.*ids\[None\]"),
        (torch.tensor(1), r"shape \[\] came"),
        (torch.zeros(1, 0, dtype=torch.long), "no token came"),
        (torch.zeros(0, 3, dtype=torch.long), "no token came"),
        (torch.ones(1, 2), "tensor of float32 came"),
        (torch.ones(1, 2, dtype=torch.bool), "tensor of bool came"),
        (torch.tensor([[0, 13]]), "ids from 0 to 13 came; the model has 0 to 12"),
        (torch.tensor([[-1, 3]]), "ids from -1 to 3 came"),
    ],
)
def test_what_are_no_ids_is_said_in_one_line(tokens, words):
    with pytest.raises(PromptError, match=words) as error:
        made(PLAIN)(tokens)
    assert "\n" not in str(error.value)


def test_a_text_runs_and_what_comes_back_is_chosen():
    model = made(replace(PLAIN, vocab_size=32))
    model.tokenizer = CharTokenizer()
    text = "abcab"
    ids = model.to_tokens(text)
    logits, loss = model(text, return_type="both")
    close(logits, model(ids))
    close(loss, -logits[0, :-1].log_softmax(-1)[range(ids.shape[1] - 1), ids[0, 1:]].mean())
    assert model(text, return_type="loss") == loss and model(text, return_type=None) is None
    assert model.to_str_tokens(text) == model.to_str_tokens(ids) and model.to_string(ids[0, 1:]) == text
    assert model.run_with_cache(text, return_type="loss")[0] == loss and model.W_E is model.embed.weight


@pytest.mark.parametrize(
    "ask, words",
    [
        (lambda model: model(IDS, stop_at_layer=1), "stop_at_layer: the model takes a text or ids"),
        (lambda model: model(IDS, return_type="logit"), "return_type 'logit'; expected one of 'logits'"),
        (lambda model: model(IDS[:, :1], return_type="loss"), "one token has no next one"),
        (lambda model: model.to_tokens("a"), "without its tokenizer"),
        (
            lambda model: model.generate("a"),
            r"no generate .*: .*generate\(model, text, n\)",
        ),
        (lambda model: model.b_Q, "blocks"),
        (
            lambda model: model.run_with_cache(IDS, return_type="loss", incl_bwd=True),
            r"call model\.requires_grad_\(True\) first",
        ),
    ],
)
def test_what_transformer_lens_has_beside_is_an_error_of_ours(ask, words):
    model = made(PLAIN)
    with pytest.raises(MtaVizError, match=words):
        ask(model)
    assert not hasattr(model, "generate") and not hasattr(model, "nothing")


def test_the_cache_is_asked_as_transformer_lens_has_it(model):
    _, raw = model.run_with_cache(IDS)
    assert (
        torch.equal(raw["pattern", 0], raw["blocks.0.attn.hook_pattern"])
        and raw["embed"] is raw["hook_embed"]
    )
    close(raw.decompose_resid().sum(0), raw["resid_post", -1])
    close(raw.stack_head_results(incl_remainder=True).sum(0), raw["resid_post", -1])
    for again in (copy.deepcopy(raw), pickle.loads(pickle.dumps(raw))):
        close(again.accumulated_resid()[-1], raw["resid_post", -1])
    one = model.run_with_cache(IDS[:1], remove_batch_dim=True)[1]
    late = model.run_with_cache(IDS[:1])[1]
    late.remove_batch_dim()
    for cache in (one, late):
        assert cache["pattern", 1].shape == (4, 8, 8) and cache.apply_slice_to_batch_dim is not None
        close(cache.stack_head_results(incl_remainder=True).sum(0), raw["resid_post", -1][0])
    chosen = model.run_with_cache(IDS, names_filter=["blocks.0.hook_resid_pre", "hook_embed"])[1]
    assert list(chosen) == ["hook_embed", "blocks.0.hook_resid_pre"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert raw.nothing


def test_matrices_of_all_layers_are_those_the_layers_use(model):
    config, block = model.config, model.blocks[1]
    x = torch.randn(5, config.d_model)
    q, k, v = (torch.einsum("td,hdk->thk", x, matrix[1]) for matrix in (model.W_Q, model.W_K, model.W_V))
    plain = (
        torch.nn.functional.linear(x, part.weight) for part in (block.attn.wq, block.attn.wk, block.attn.wv)
    )
    for ours, theirs in zip((q, k, v), plain, strict=True):
        close(
            ours, theirs.unflatten(-1, (-1, config.d_head)).repeat_interleave(4 // (theirs.shape[-1] // 4), 1)
        )
    close(
        torch.nn.functional.silu(x @ model.W_gate[1]) * (x @ model.W_in[1]) @ model.W_out[1], _mlp(block, x)
    )
    if config.mta.group_norm:
        with pytest.raises(MtaVizError, match="layer 0 norms or gates"):
            assert model.W_O
    else:
        close(torch.einsum("thk,hkd->td", v, model.W_O[1]), v.flatten(1) @ block.attn.wo.weight.T)


def _mlp(block, x: torch.Tensor) -> torch.Tensor:
    """Without biases."""
    linear, mlp = torch.nn.functional.linear, block.mlp
    inner = torch.nn.functional.silu(linear(x, mlp.w1.weight)) * linear(x, mlp.w3.weight)
    return linear(inner, mlp.w2.weight)


def test_texts_of_one_length_are_a_batch_and_bos_is_a_choice():
    model = made(replace(PLAIN, vocab_size=32))
    model.tokenizer = CharTokenizer()
    ids = model.to_tokens(["abc", "cba"])
    assert torch.equal(ids, torch.cat([model.to_tokens("abc"), model.to_tokens("cba")]))
    close(model(["abc", "cba"]), model(ids))
    with pytest.raises(
        PromptError, match=r"texts of 3 and 5 tokens came; a batch has no padding: give each alone"
    ):
        model(["ab", "abcd"])
    assert torch.equal(model.to_tokens("abc", prepend_bos=False), ids[:1, 1:])
    assert torch.equal(model.to_tokens("abc", prepend_bos=True), ids[:1])
    close(model("abc", prepend_bos=False), model(ids[:1, 1:]))
    assert model.run_with_cache("abc", prepend_bos=False)[1]["pattern", 0].shape[-1] == 3
    assert model.to_str_tokens(["abc", "cba"])[1] == model.to_str_tokens("cba")
    assert model.to_str_tokens("abc", prepend_bos=False) == ["a", "b", "c"]
    assert model.to_string(ids) == ["abc", "cba"] and model.to_string([1, 2]) == model.to_string(
        torch.tensor([1, 2])
    )
    assert model.to_single_token("a") == ids[0, 1]


def test_sizes_have_their_names():
    model = made(PLAIN)
    cfg = model.cfg
    assert (cfg.model_name, cfg.d_vocab_out, cfg.eps) == ("multi-token-attention", 13, PLAIN.norm_eps)
    per_layer = (
        16 * 16 * 2 + 16 * 8 * 2 + 3 * 16 * 24 + 4 * 2 * 3 + 2 * 2 * 2
    )  # wq wo, wk wv, MLP, kernel, mixing
    assert cfg.n_params == 3 * per_layer


def test_tools_of_transformer_lens_run():
    from transformer_lens.head_detector import detect_head
    from transformer_lens.patching import get_act_patch_resid_pre

    model = made(replace(PLAIN, vocab_size=32))
    model.tokenizer = CharTokenizer()
    scores = detect_head(model, "abcabc", "previous_token_head")
    pattern = model.run_with_cache("abcabc")[1]["pattern", 2][0, 1]
    close(scores[2, 1], pattern.diagonal(-1).sum() / pattern.abs().sum())
    clean = model.run_with_cache("abcabc")[1]
    patched = get_act_patch_resid_pre(
        model, model.to_tokens("abcabd"), clean, lambda logits: logits[0, -1, 3]
    )
    close(patched[0, -1], model("abcabc")[0, -1, 3])


def by_torch(model: HookedMTA) -> HookedMTA:
    file = io.BytesIO()
    torch.save(model, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch": by_torch,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_runs_on_its_own(model, way):
    other = COPIES[way](model)
    assert torch.equal(other(IDS), model(IDS)) and other.lock is not model.lock
    with model.lock, other.lock:
        assert other.run_with_cache(IDS)[1].keys() == set(model.hook_dict)
    other.embed.weight.zero_()
    assert model.embed.weight.abs().max() > 0
    model.add_perma_hook("blocks.0.hook_attn_out", lambda value, hook: value)
    with pytest.raises(MtaVizError, match=r"hooks at blocks\.0\.hook_attn_out, which a copy would not have"):
        COPIES[way](model)


def test_a_cache_goes_with_its_name_and_holds_no_maps_until_a_collection() -> None:
    model = made(PLAIN)
    gc.disable()
    try:
        cache = model.run_with_cache(IDS[:1])[1]
        assert cache["pattern", 0].shape == (1, 4, 8, 8) and cache.get(5) is None
        gone = weakref.ref(cache["pattern", 0])
        del cache
        assert gone() is None
    finally:
        gc.enable()


def test_gradients_of_activations_need_one_weight_that_asks_for_some() -> None:
    model = made(PLAIN)
    model.blocks[1].attn.kernel_pre.requires_grad_(True)
    assert model.run_with_cache(IDS[:1], incl_bwd=True, return_type="loss")[1]
    model.requires_grad_(False)
    with pytest.raises(PromptError, match="no weight asks for gradients"):
        model.run_with_cache(IDS[:1], incl_bwd=True)
