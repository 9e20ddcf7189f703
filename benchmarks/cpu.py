"""Captures and greedy generation on the CPU, each as many times the time of something plainer, in one run.

    python -m benchmarks.cpu [--rounds 7] [--new 200]

The yardstick is a Transformer of the twin's weights with torch's own attention, written here. All sides take
turns, since a machine has slow and fast minutes; the numbers are medians, with OMP_NUM_THREADS=1 of processor
time, which other work on the machine lengthens least. A capture's residual streams are those that enter and
leave every layer; no side makes logits of them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from mta_viz.model import ops
from mta_viz.model.transformer import Block, HookedMTA
from mta_viz.run.tracing import Continuation, as_batch, capture, generate, load

ASSETS = Path(__file__).parents[1] / "assets"
CASES = (("needle-mta", "needle-transformer", 1024), ("blocks-n5-mta", "blocks-n5-transformer", 320))
PROMPT, ANEW = 2000, 3  # tokens of the continued prompt; runs of "everything again" that are measured


def clock() -> float:
    """Seconds: of this process where it has one thread, else of the world."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def yardstick(model: HookedMTA, ids: Tensor) -> Tensor:
    """Residual streams of a model without kernels, by nothing but torch's functions."""
    turns = ops.rotary_frequencies(model.config.d_head, model.config.rope_theta, None, "cpu")
    angle = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] * turns
    turned = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    residuals = [F.embedding(ids, model.embed.weight)]
    for block in model.blocks:
        residuals.append(_plain_block(block, residuals[-1], turned))
    return torch.cat(residuals)


def _plain_block(block: Block, resid: Tensor, turned: Tensor) -> Tensor:
    attn, mlp, width = block.attn, block.mlp, (resid.shape[-1],)
    h = F.rms_norm(resid, width, block.ln1.weight, block.ln1.eps)
    q, k, v = (F.linear(h, m.weight).unflatten(-1, (-1, attn.config.d_head)).transpose(1, 2)
               for m in (attn.wq, attn.wk, attn.wv))  # fmt: skip
    q, k = (
        torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turned).flatten(-2)
        for x in (q, k)
    )
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    if attn.group_norm is not None:
        z = F.rms_norm(z, z.shape[-1:], attn.group_norm, 1e-5)
    if attn.gate is not None:
        z = z * torch.sigmoid(F.linear(z, attn.gate.weight, attn.gate.bias))
    mid = resid + F.linear(z.flatten(-2), attn.wo.weight)
    h = F.rms_norm(mid, width, block.ln2.weight, block.ln2.eps)
    return mid + F.linear(F.silu(F.linear(h, mlp.w1.weight)) * F.linear(h, mlp.w3.weight), mlp.w2.weight)


def in_slabs(model: HookedMTA, ids: Tensor) -> Tensor:
    """Residual streams by the way that hooks, patches and gradients take."""
    residuals = [model.embed(ids)]
    with torch.enable_grad():
        for block in model.blocks:
            residuals.append(block(residuals[-1]))
    return torch.cat(residuals).detach()


def medians(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each way, taking turns, after a turn that is not counted."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            start = clock()
            way()
            spent[name] += [clock() - start] if turn else []
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def print_captures(kernels: str, twin: str, n_tokens: int, rounds: int) -> None:
    """A line a way, as a multiple of the yardstick and of the twin, and how far results lie apart."""
    model, plain = (load(ASSETS / name) for name in (kernels, twin))
    ids = [(7 * position) % model.config.vocab_size for position in range(n_tokens)]
    batch = torch.tensor([ids])
    ways: dict[str, Callable[[], object]] = {
        "yardstick": partial(yardstick, plain, batch),
        twin: partial(capture, plain, ids),
        kernels: partial(capture, model, ids),
        f"{kernels} in slabs": partial(in_slabs, model, batch),
    }
    for name, seconds in (spent := medians(ways, rounds)).items():
        print(
            f"{n_tokens} tokens, {name}: {1e3 * seconds:.1f} ms, "
            f"{seconds / spent['yardstick']:.2f} x yardstick, {seconds / spent[twin]:.2f} x twin"
        )
    apart = {
        "yardstick and twin": (yardstick(plain, batch), capture(plain, ids).residuals),
        "slabs and capture": (in_slabs(model, batch), capture(model, ids).residuals),
    }
    for name, (want, got) in apart.items():
        print(f"{n_tokens} tokens, {name} apart: {float((got - want).abs().max() / want.abs().max()):.1e}")


def print_generation(new: int) -> None:
    """Seconds for `new` tokens with and, from a few runs, without what is kept of earlier ones."""
    model = load(ASSETS / "needle-mta")
    ids = [(7 * position) % model.config.vocab_size for position in range(PROMPT)]
    start = clock()
    made = generate(model, ids, new)
    kept = clock() - start
    anew, apart = [], 0.0
    with torch.no_grad():
        run = Continuation(model, as_batch(model, ids)[0])
        for at, token in enumerate(made[:ANEW]):
            start = clock()
            logits = model(torch.tensor([[*ids, *made[:at]]]))[0, -1]
            anew.append(clock() - start)
            apart = max(apart, float((run.logits - logits).abs().max() / logits.abs().max()))
            run.append(token)
    whole = statistics.median(anew) * len(made)
    print(
        f"{len(made)} tokens after {PROMPT}: {kept:.2f} s; everything anew {whole:.0f} s (from {ANEW} runs), "
        f"{whole / kept:.0f} times that; logits {apart:.1e} apart"
    )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new", type=int, default=200)
    arguments = parser.parse_args()
    with torch.no_grad():
        for case in CASES:
            print_captures(*case, arguments.rounds)
    print_generation(arguments.new)


if __name__ == "__main__":
    main()
