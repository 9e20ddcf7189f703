"""Identity kernels and identity mixing are the plain transformer; a new model starts that way."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES, prompts, random_case

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.transformer import HookedMTA

PLAIN = {"dim": 16, "n_layers": 2, "n_heads": 4, "multiple_of": 8, "vocab_size": 13}


def _with_identity_kernels(plain: HookedMTA, options: MTAOptions) -> HookedMTA:
    old = plain.config
    config = ModelConfig(
        old.d_model, old.n_layers, old.n_heads, old.n_kv_heads, old.d_head, old.d_mlp, old.vocab_size,
        old.n_ctx, old.norm_eps, old.rope_theta, old.tied, options,
    )  # fmt: skip
    model = HookedMTA(config)
    model.load_state_dict(model.state_dict() | plain.state_dict())
    return model.requires_grad_(False).eval()


@st.composite
def kernel_options(draw: st.DrawFn) -> dict:
    pad_key = draw(st.sampled_from(("both", "left", "right")))
    c_k = st.sampled_from((1, 3, 5, 11) if pad_key == "both" else (1, 2, 3, 6))
    pairs = st.none() | st.tuples(st.integers(1, 6), c_k)
    group, linear = draw(st.sampled_from(((None, False), (None, True), (1, False), (2, False), (4, False))))
    kernels = {"pre_kernel": draw(pairs), "post_kernel": draw(pairs), "pad_key": pad_key}
    return kernels | {"head_pre": draw(st.booleans()), "head_post_group": group, "head_post_linear": linear}


@EXAMPLES
@given(kernel_options(), prompts())
def test_identity_kernels_give_the_plain_transformer(options: dict, ids: list[int]) -> None:
    plain = random_case(PLAIN, seed=2).build()
    model, tokens = _with_identity_kernels(plain, MTAOptions(**options)), torch.tensor([ids])
    torch.testing.assert_close(model(tokens), plain(tokens), atol=2e-6, rtol=0)


@pytest.mark.parametrize(("pad_key", "own_key"), [("both", 2), ("left", 4), ("right", 0)])
def test_the_identity_tap_is_the_current_query_and_the_own_key(pad_key: str, own_key: int) -> None:
    options = MTAOptions(pre_kernel=(3, 5), post_kernel=(3, 5), pad_key=pad_key)
    model = _with_identity_kernels(random_case(PLAIN).build(), options)
    expected = torch.zeros(4, 3, 5)
    expected[:, 2, own_key] = 1
    assert torch.equal(model.blocks[1].attn.kernel_pre, expected)
    assert torch.equal(model.blocks[1].attn.kernel_post, expected)
