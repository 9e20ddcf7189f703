"""Block finding, the paper's motivating task: find the one block that holds all query letters.

A sequence is BOS, `n_blocks` blocks of N distinct letters joined by ".", "#", L query letters, and
the answer: all letters of the target block in the block's order, or its first or last letter.
Owns the generator and the positions of its parts; scoring a model is the recipes' business.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mta_viz.errors import ConfigError
from mta_viz.tasks.words import stream_seed

OUTPUTS = ("all", "first", "last")

N_ALPHABET = 26  # letters a..z are ids 0..25
DOT, HASH, BOS = 26, 27, 29  # ids of the character vocabulary; 28 is "_", 30 EOS
VOCAB_SIZE = 32
_CHUNK = 50  # evaluation samples drawn at a time, so that sample i does not depend on how many follow


def stream_generator(stream: str, *numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on `device` at the start of the stream (`stream`, *numbers)."""
    return torch.Generator(device=device).manual_seed(stream_seed(stream, *numbers))


@dataclass(frozen=True)
class BlockBatch:
    """Sequences of one length T. `answer` marks the answer's tokens, `target` is the block's index."""

    tokens: Int[Tensor, "batch position"]
    answer: Bool[Tensor, "batch position"]
    target: Int[Tensor, " batch"]


@dataclass(frozen=True)
class BlockTask:
    """The task's sizes: N letters a block, L query letters, blocks a sequence, what is answered.

    Raises `ConfigError` listing every value out of range (the paper has L < N).
    """

    n_letters: int = 5
    n_query: int = 2
    n_blocks: int = 52
    output: str = "all"

    def __post_init__(self) -> None:
        ranges = {
            "n_letters": (2, N_ALPHABET - 1),
            "n_query": (1, self.n_letters - 1),
            "n_blocks": (1, 10_000),
        }
        problems = [
            f"{name} is {getattr(self, name)}; expected {low} to {high}"
            for name, (low, high) in ranges.items()
            if not low <= getattr(self, name) <= high
        ]
        if self.output not in OUTPUTS:
            problems.append(f"output is {self.output!r}; expected one of {', '.join(OUTPUTS)}")
        if problems:
            raise ConfigError(problems, subject="The block-finding task")

    @property
    def n_answer(self) -> int:
        """Letters of the answer: N for output "all", else 1."""
        return self.n_letters if self.output == "all" else 1

    @property
    def n_tokens(self) -> int:
        """Length T of a whole sequence, BOS and answer included."""
        blocks = self.n_blocks * (self.n_letters + 1)  # each ends in "." but the last, which ends in "#"
        return 1 + blocks + self.n_query + self.n_answer

    def block_positions(self, block: int) -> slice:
        """Token positions of a block's letters."""
        start = 1 + block * (self.n_letters + 1)
        return slice(start, start + self.n_letters)

    def batch(self, size: int, generator: torch.Generator) -> BlockBatch:
        """`size` sequences on the generator's device; the same generator state gives the same batch."""
        blocks, query, target = _draw(self, size, generator)
        letters = blocks[torch.arange(size, device=blocks.device), target]
        shown = {"all": slice(None), "first": slice(0, 1), "last": slice(-1, None)}[self.output]
        ends = torch.full((size, self.n_blocks, 1), DOT, device=blocks.device)
        ends[:, -1] = HASH
        start = torch.full((size, 1), BOS, device=blocks.device)
        joined = torch.cat([blocks, ends], dim=2).flatten(1)
        tokens = torch.cat([start, joined, query, letters[:, shown]], dim=1)
        answer = torch.zeros_like(tokens, dtype=torch.bool)
        answer[:, -self.n_answer :] = True
        return BlockBatch(tokens, answer, target)

    def sample_range(self, start: int, stop: int, seed: int) -> BlockBatch:
        """Sequences `start` to `stop` - 1 of the evaluation stream, on the CPU whatever the model's device.

        Sample i depends on (seed, i) and the task only. Training draws from another stream.
        """
        first, end = start // _CHUNK, -(-stop // _CHUNK)
        generators = (stream_generator("blocks evaluation", seed, chunk) for chunk in range(first, end))
        parts = [self.batch(_CHUNK, generator) for generator in generators]
        wanted = slice(start - first * _CHUNK, stop - first * _CHUNK)
        names = ("tokens", "answer", "target")
        return BlockBatch(*(torch.cat([getattr(part, name) for part in parts])[wanted] for name in names))


def _draw(
    task: BlockTask, size: int, generator: torch.Generator
) -> tuple[Int[Tensor, "batch block letter"], Int[Tensor, "batch query"], Int[Tensor, " batch"]]:
    """Blocks, query letters (in random order) and the index of the only block that holds them."""
    device = generator.device

    def random_order(*shape: int) -> Int[Tensor, "..."]:
        return torch.rand(shape, generator=generator, device=device).argsort(-1)

    blocks = random_order(size, task.n_blocks, N_ALPHABET)[..., : task.n_letters]
    target = torch.randint(task.n_blocks, (size,), generator=generator, device=device)
    letters = blocks[torch.arange(size, device=device), target]
    query = letters.gather(1, random_order(size, task.n_letters)[:, : task.n_query])
    spare = _blocks_without(query[:, 0], task, generator)
    holds_all = (blocks[..., None] == query[:, None, None, :]).any(2).all(-1)
    is_target = torch.arange(task.n_blocks, device=device) == target[:, None]
    return torch.where((holds_all & ~is_target)[..., None], spare, blocks), query, target


def _blocks_without(
    letter: Int[Tensor, " batch"], task: BlockTask, generator: torch.Generator
) -> Int[Tensor, "batch block letter"]:
    """Random blocks that lack one letter per sequence: what replaces a second match.

    Drawn for every block: a redraw-until-right loop would stop the GPU to ask whether it is done.
    The query's letters are in random order, so its first is any of them.
    """
    size = letter.shape[0]
    keys = torch.rand(size, task.n_blocks, N_ALPHABET, generator=generator, device=generator.device)
    banned = torch.arange(N_ALPHABET, device=generator.device) == letter[:, None]
    return keys.masked_fill(banned[:, None], 2.0).argsort(-1)[..., : task.n_letters]  # 2 sorts last
