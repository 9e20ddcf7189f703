"""Tiny checkpoints with random weights, random kernels and known facts, for tests of the app."""

import json
from pathlib import Path

import torch

from mta_viz.checkpoint.native import write_kernels, write_native
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture

FULL = MTAOptions(
    pre_kernel=(6, 11),
    post_kernel=(6, 11),
    mta_layers=(1, 3),
    head_pre=True,
    head_post_group=4,
    group_norm=True,
    gate="1d",
)

# One layer with four stages: raw, kq, softmax, final.
TWO_HEADS = ModelConfig(
    d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=11,
    mta=MTAOptions(pre_kernel=(2, 3), head_post_group=2),
)  # fmt: skip

NAN_AT = "blocks.1.attn.kernel_pre"  # where `tiny-nan` holds one NaN


def config(mta: MTAOptions, vocab_size: int, n_ctx: int = 1024) -> ModelConfig:
    """4 layers x 4 heads, 64 wide."""
    return ModelConfig(
        d_model=64, n_layers=4, n_heads=4, n_kv_heads=4, d_head=16, d_mlp=128, vocab_size=vocab_size,
        n_ctx=n_ctx, tied=True, mta=mta,
    )  # fmt: skip


def random_weights(shapes: ModelConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Matrices small, norms about 1, kernels and mixing about the identity."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in parameter_shapes(shapes).items():
        noise = torch.randn(shape, generator=generator)
        if "ln" in name or "group_norm" in name:
            weights[name] = 1 + 0.1 * noise
        elif "kernel" in name:
            own = torch.zeros(shape)
            own[:, -1, shapes.key_pad_left(shape[2])] = 1
            weights[name] = own + 0.3 * noise
        elif "head_p" in name:
            weights[name] = torch.eye(shape[1]) + 0.3 * noise
        else:
            weights[name] = 0.15 * noise
    return weights


def write_models(root: Path) -> Path:
    """`tiny-mta` (bytes), `tiny-blocks` (char), `tiny-plain`, `tiny-nan`, `no-tokenizer` and `broken`."""
    models = {
        "tiny-mta": (config(FULL, 258), "bytes"),
        "tiny-blocks": (config(MTAOptions(pre_kernel=(2, 9)), 32), "char"),
        "tiny-plain": (config(MTAOptions(), 258), "bytes"),
        "tiny-nan": (config(FULL, 258), "bytes"),
        "no-tokenizer": (config(FULL, 258), "bytes"),
    }
    for name, (shapes, tokenizer) in models.items():
        weights = random_weights(shapes)
        if name == "tiny-nan":
            weights[NAN_AT][0, 0, 0] = torch.nan
        write_native(
            root / name, shapes, weights, tokenizer_name=tokenizer, tokenizer_path=None, dtype=torch.float32
        )
    _lose_tokenizer(root / "no-tokenizer" / "params.json")
    broken = root / "broken"
    broken.mkdir()
    (broken / "params.json").write_text(json.dumps({"model": {"dim": 64, "n_heads": 5}}))
    (broken / "model.safetensors").write_bytes(b"nothing")
    return root


def _lose_tokenizer(file: Path) -> None:
    """As a checkpoint that came from another machine: its tokenizer's path means nothing here."""
    params = json.loads(file.read_text())
    params["data"]["tokenizer"] = {"name": "sp", "path": "/home/author/tokenizer.model"}
    file.write_text(json.dumps(params))


def two_head_trace() -> Trace:
    """Nine tokens through `TWO_HEADS`, kernels and mixing far from the identity."""
    torch.manual_seed(0)
    model = HookedMTA(TWO_HEADS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return capture(model, [1, 2, 3, 4, 5, 6, 7, 8, 9])


def write_wide(folder: Path) -> Path:
    """The kernels alone of a model of the paper's 880M shape (24 layers x 16 heads, 6 x 11), random."""
    mta = MTAOptions(
        pre_kernel=(6, 11), post_kernel=(6, 11), mta_layers=(3, 7, 11, 15, 19, 23), head_pre=True,
        head_post_linear=True,
    )  # fmt: skip
    shapes = ModelConfig(
        d_model=32, n_layers=24, n_heads=16, n_kv_heads=16, d_head=2, d_mlp=8, vocab_size=258, tied=True,
        mta=mta,
    )  # fmt: skip
    write_kernels(folder, shapes, random_weights(shapes))
    return folder
