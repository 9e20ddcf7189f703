"""Capture on a GPU beside a plain Transformer of its shape: 24 blocks with sdpa, the last position's logits.

    python -m benchmarks.plain [--tokens 2048 4096] [--long 32768] [--dtype bfloat16]

The paper's 880M configuration with random weights. Reference, capture of a plain model and capture of an MTA
model run in one process, turn by turn, each in a CUDA graph: medians of 20, and eager medians beside. Floors
are counted from the card's rates. Ends with 1 when a layer of ours fell back to slabs, or a bar is missed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mta_viz.analysis.attention.maps import head_map
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.backends import angles, described
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import captured
from mta_viz.tokenizers.base import tokens_from_ids

TURNS, GIB = 20, 2**30
BARS = {"MTA": 2.0, "plain": 1.15}  # times the reference
MOST_GIB, MOST_SECONDS = 1.2, 3.0  # above the weights at 4,096 tokens; of the long prompt
MOST_CROP, MOST_OVERVIEW = 10.0, 30.0  # milliseconds after the run, at 4,096 tokens
FLOPS, BYTES = 790e12, 4.3e12  # a second of an H200, measured: bf16 products, copies (read and written)
MTA = MTAOptions(
    pre_kernel=(6, 11), post_kernel=(6, 11), mta_layers=(2, 6, 10, 14, 18, 22),
    head_pre=True, head_post_group=16, group_norm=True, gate="1d",
)  # fmt: skip


def config(mta: MTAOptions) -> ModelConfig:
    sizes = {"d_model": 1536, "n_layers": 24, "n_heads": 16, "n_kv_heads": 16, "d_head": 96, "d_mlp": 4096}
    return ModelConfig(**sizes, vocab_size=128_256, n_ctx=2048, tied=True, mta=mta)


def random_model(mta: MTAOptions, dtype: torch.dtype) -> HookedMTA:
    """Weights that keep activations near 1, kernels and mixing away from the identity."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = HookedMTA(config(mta)).requires_grad_(False).eval()
    for name, weight in model.named_parameters():
        if "kernel" in name or "head_p" in name:
            weight.add_(torch.randn_like(weight), alpha=0.05)
        elif weight.ndim == 2:
            weight.copy_(torch.randn_like(weight) * weight.shape[-1] ** -0.5)
    return model.to(dtype)


class Reference:
    """The yardstick: the plain model's own weights, and nothing but what a plain Transformer needs."""

    def __init__(self, model: HookedMTA, n_tokens: int) -> None:
        self.model, self.config = model, model.config
        cos, sin = angles(n_tokens, self.config.d_head, self.config.rope_theta, None, model.device)
        self.turns = torch.complex(cos, sin)[:, None]

    def _rotated(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * self.turns).flatten(-2).to(x.dtype)

    def _attention(self, attn: torch.nn.Module, h: Tensor) -> Tensor:
        q, k, v = (
            linear(h).unflatten(-1, (-1, self.config.d_head)) for linear in (attn.wq, attn.wk, attn.wv)
        )
        q, k, v = (part.transpose(1, 2) for part in (self._rotated(q), self._rotated(k), v))
        return attn.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))

    def _normed(self, norm: torch.nn.Module, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of the last position."""
        x = self.model.embed(ids)
        for block in self.model.blocks:
            x = x + self._attention(block.attn, self._normed(block.ln1, x))
            h = self._normed(block.ln2, x)
            x = x + block.mlp.w2(F.silu(block.mlp.w1(h)) * block.mlp.w3(h))
        return F.linear(self._normed(self.model.ln_final, x[:, -1:]), self.model.embed.weight)


@dataclass
class Side:
    """What is timed, eager and as a graph."""

    run: Callable[[], Tensor]

    def __post_init__(self) -> None:
        for _ in range(3):
            self.run()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.run()


def milliseconds(run: Callable[[], object]) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def medians(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Turn by turn, so that the card's clock is the same for all."""
    turns = [{name: milliseconds(run) for name, run in runs.items()} for _ in range(TURNS + 2)][2:]
    return {name: statistics.median(turn[name] for turn in turns) for name in runs}


def capture_logits(model: HookedMTA, ids: Tensor) -> Tensor:
    """The residuals of a capture, and the last position's logits."""
    residuals, backends = captured(model, ids)
    fallen = [backend for backend in backends if backend.name == "slabs"]
    if fallen:
        sys.exit(f"not the fast path: {described(backends)}")
    return model.logits(residuals[-1, -1:].to(model.dtype))


def floor(shape: ModelConfig, n_tokens: int) -> float:
    """Milliseconds: products at the card's rate; of a layer with mixing one causal half-precision tensor
    written and read, of one with kernels two more; convolutions as banded products, 16 keys at once."""
    width = shape.n_heads * shape.d_head
    dense = 2 * n_tokens * shape.n_layers * (4 * shape.d_model * width + 3 * shape.d_model * shape.d_mlp)
    cells = shape.n_heads * n_tokens**2 / 2
    seconds = (dense + shape.n_layers * 4 * shape.d_head * cells) / FLOPS
    for kernels in map(shape.kernels, range(shape.n_layers)):
        convolutions = [kernel for kernel in (kernels.pre, kernels.post) if kernel]
        tensors = (1 if kernels.any else 0) + len(convolutions)
        seconds += tensors * 4 * cells / BYTES
        seconds += sum(2 * kernel[1] * (16 + kernel[2] - 1) * cells for kernel in convolutions) / FLOPS
    return 1000 * seconds


def peak_gib(run: Callable[[], object]) -> float:
    """Above what is held before."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / GIB


def compare(models: dict[str, HookedMTA], n_tokens: int) -> list[str]:
    """Print one length; returns the bars it misses."""
    ids = torch.randint(128_256, (1, n_tokens), device="cuda")
    reference = Reference(models["plain"], n_tokens)
    runs = {"reference": lambda: reference(ids)}
    for name, model in models.items():
        runs[name] = lambda model=model: capture_logits(model, ids)
    sides = {name: Side(run) for name, run in runs.items()}
    graphs = medians({name: side.graph.replay for name, side in sides.items()})
    eager = medians(runs)
    alike = F.cosine_similarity(
        *(sides[name].out.float().flatten() for name in ("reference", "plain")), dim=0
    )
    print(f"{n_tokens} tokens; the plain model's logits beside the reference's: cosine {alike:.5f}")
    del sides
    missed = []
    for name, spent in graphs.items():
        ratio = spent / graphs["reference"]
        least = floor(config(MTA if name == "MTA" else MTAOptions()), n_tokens)
        print(
            f"  {name:9} graph {spent:7.2f} ms ({ratio:.2f} x), floor {least:.2f} ({spent / least:.1f} x); "
            f"eager {eager[name]:.2f} ms; peak {peak_gib(runs[name]):.2f} GiB",
            flush=True,
        )
        if ratio > BARS.get(name, 1.0):
            missed.append(f"{name} at {n_tokens}: {ratio:.2f} x, bar {BARS[name]}")
    if n_tokens == 4096 and peak_gib(runs["MTA"]) > MOST_GIB:
        missed.append(f"memory at {n_tokens}")
    return missed


def views(model: HookedMTA, n_tokens: int = 4096) -> list[str]:
    """A crop of 256 x 256 of the final weights and a pooled overview, after the run."""
    ids = torch.randint(128_256, (1, n_tokens), device="cuda")
    with model.lock, torch.no_grad():
        residuals, backends = captured(model, ids)
    tokens = tokens_from_ids(ids[0].tolist(), vocab_size=model.config.vocab_size, tokenizer=None)
    trace, part = Trace(tokens, residuals, model, backends=backends), slice(n_tokens - 256, n_tokens)
    drawn = {
        "crop": (lambda: trace.map(2, Stage.PATTERN, 0, part, part), MOST_CROP),
        "overview": (lambda: head_map(trace, 2, Stage.PATTERN, 0), MOST_OVERVIEW),
    }
    missed = []
    for name, (draw, most) in drawn.items():
        spent = statistics.median(milliseconds(draw) for _ in range(6))
        print(f"{name} of the last stage: {spent:.1f} ms")
        missed += [] if spent <= most else [f"{name}: {spent:.1f} ms, bar {most}"]
    return missed


def long_prompt(model: HookedMTA, n_tokens: int) -> list[str]:
    """Seconds and memory of one eager capture."""
    ids = torch.randint(128_256, (1, n_tokens), device="cuda")
    capture_logits(model, ids)
    torch.cuda.synchronize()
    start = time.perf_counter()
    peak = peak_gib(lambda: capture_logits(model, ids))
    seconds = time.perf_counter() - start
    print(f"{n_tokens} tokens: {seconds:.2f} s, peak {peak:.2f} GiB", flush=True)
    return [] if seconds <= MOST_SECONDS else [f"{n_tokens} tokens: {seconds:.2f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--long", type=int, default=32_768, help="0: none")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.dtype)
    models = {"plain": random_model(MTAOptions(), dtype), "MTA": random_model(MTA, dtype)}
    missed = []
    with torch.no_grad():
        for n_tokens in arguments.tokens:
            missed += compare(models, n_tokens)
        missed += views(models["MTA"])
        if arguments.long:
            missed += long_prompt(models["MTA"], arguments.long)
    sys.exit("missed: " + "; ".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
