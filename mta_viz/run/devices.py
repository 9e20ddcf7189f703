"""What a run costs, where it is computed and on how many threads, and a prompt cut to what fits.

Costs of a run, and of a step of training kernels, are counted from the configuration; devices go by name,
torch's threads by the work. A prompt that is too long for this machine is made shorter at the left,
in the middle or at the right.
"""

import math
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from mta_viz.checkpoint import door
from mta_viz.checkpoint.types import Checkpoint, Conversion
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.attention import slab_cells
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import printable, size_text
from mta_viz.tokenizers.base import CutPlace, Tokens, cut_to

FLOAT_BYTES = 4
LIVE_MAPS = 6  # maps of one slab alive at once: input, padded, output, mask, softmax, pattern
# Of training kernels into a fixed base, as measured with needle-transformer (a CPU, 16 x 320 and 6 x 384
# tokens): the way back in forwards, and what is kept for it, in widths and maps a layer and in logits.
BACKWARD = 2.0
KEPT_WIDTHS, KEPT_MLP, KEPT_MAPS, LOGITS = 12, 4, 1, 3


def multiply_adds(config: ModelConfig, n_tokens: int) -> float:
    """Multiply-adds of one forward over `n_tokens` (causal half of every map)."""
    width = config.n_heads * config.d_head
    attention = config.d_model * (2 * width + 2 * config.n_kv_heads * config.d_head)
    per_token = config.n_layers * (attention + 3 * config.d_model * config.d_mlp)
    per_token += config.d_model * config.vocab_size
    cells = config.n_heads * n_tokens * (n_tokens + 1) / 2
    per_cell = 0
    for kernels in map(config.kernels, range(config.n_layers)):
        taps = sum(shape[1] * shape[2] for shape in (kernels.pre, kernels.post) if shape)
        mixing = sum(shape[2] for shape in (kernels.head_pre, kernels.head_post) if shape)
        per_cell += 2 * config.d_head + taps + mixing + 20  # scores and values; about 20 for the softmax
    return n_tokens * per_token + cells * per_cell


def capture_bytes(config: ModelConfig, n_tokens: int, device: str = "cpu") -> int:
    """Bytes above the weights: residuals, a layer's activations, a slab (larger on a `device` like cuda)."""
    residuals = (config.n_layers + 1) * n_tokens * config.d_model
    layer = n_tokens * (4 * config.n_heads * config.d_head + 3 * config.d_mlp)
    slab = LIVE_MAPS * max(slab_cells(device), 16 * config.n_heads * n_tokens)
    return FLOAT_BYTES * (residuals + layer + min(slab, LIVE_MAPS * config.n_heads * n_tokens**2))


def hooks_bytes(config: ModelConfig, names: Sequence[str], n_tokens: int) -> int:
    """Bytes of the activations at these hook points, and of the logits; but for maps the most it can be."""
    stages = tuple(stage.value.hook for stage in Stage)
    n_maps = sum(name.endswith(stages) for name in names)
    widest = max(config.d_model, config.d_mlp, config.n_heads * config.d_head)
    others = (len(names) - n_maps) * widest + config.vocab_size
    return FLOAT_BYTES * n_tokens * (n_maps * config.n_heads * n_tokens + others)


@dataclass(frozen=True)
class TrainingCost:
    """A step of training kernels into a base, and its peak of memory above the weights."""

    multiply_adds: float
    n_bytes: int


def kernel_training(
    config: ModelConfig,
    first: int,
    prompts: tuple[int, int],
    text: tuple[int, int],
    *,
    dtype_bytes: int = FLOAT_BYTES,
) -> TrainingCost:
    """Of a model with kernels, layers below `first` fixed, on (sequences, tokens each) of both kinds.

    Below `first` a step runs forward alone; from there on forward and back, activations kept. Of prompts
    only the answers' logits are made.
    """
    rows, trained = (prompts, text), (config.n_layers - first) / config.n_layers
    work = sum(n * multiply_adds(config, length) for n, length in rows) * (1 + BACKWARD * trained)
    kept = sum(n * _kept(config, length) for n, length in rows) * (config.n_layers - first)
    logits = LOGITS * FLOAT_BYTES * math.prod(text) * config.vocab_size
    return TrainingCost(work, dtype_bytes * kept + logits)


def _kept(config: ModelConfig, length: int) -> int:
    """Numbers that a layer keeps of a sequence for the way back."""
    widths = KEPT_WIDTHS * config.d_model + KEPT_MLP * config.d_mlp
    return length * widths + KEPT_MAPS * config.n_heads * length**2


MEMORY = Path("/proc/meminfo")
SMALL_RUN = 2e9  # multiply-adds below which a second thread costs more than it brings
RUN_SECONDS = 900.0
_DEVICES = re.compile(r"(cpu|cuda|mps)(:\d{1,3})?")


def devices() -> tuple[str, ...]:
    """Names of the devices that torch can use here: cpu, cuda:0 and so on, mps."""
    cuda = (f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else []))


def checked_device(name: str) -> torch.device:
    """The device of that name: cpu, cuda or mps. Raises `MtaVizError` that says which there are."""
    if (reason := _device_problem(name)) is None:
        return torch.device(name)
    words = f" ({reason})" if reason else ""
    there = ", ".join(devices())
    raise MtaVizError(f"device {printable(name)!r} cannot be used{words}; there is: {there}")


def _device_problem(name: str) -> str | None:
    """Why nothing can be run on a device, empty where its name says it all; None where it can."""
    if not _DEVICES.fullmatch(name):  # torch knows more, such as meta, on which nothing can be run
        return ""
    kind, there = name.partition(":")[0], devices()
    if not any(device.startswith(kind) for device in there):
        return _absent(kind)
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return str(error).strip().partition("\n")[0]  # torch goes on with advice for its developers
    return None


def _absent(kind: str) -> str:
    if kind == "mps":
        return "this torch, or this machine, has no Metal"
    built = torch.version.cuda or torch.version.hip
    return "torch finds no GPU" if built else f"torch {torch.__version__} is a build without CUDA"


def conversion(device: torch.device, dtype: torch.dtype | None) -> Conversion | None:
    """How weights are read that are to lie on `device` in `dtype`; None where they are moved afterwards."""
    if device.type != "cpu" or dtype is None:
        return None
    return Conversion(dtype, partial(_check_memory, device, dtype))


def check_fits(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
    """Raise `MtaVizError` where its weights made `dtype` need more memory than `device` has free."""
    weights = checkpoint.state_dict.values()
    made = [weight.numel() for weight in weights if weight.dtype != dtype or weight.device != device]
    _check_memory(device, dtype, sum(made))


def _check_memory(device: torch.device, dtype: torch.dtype, n_values: int) -> None:
    needed, free = n_values * dtype.itemsize, free_bytes(device)
    if free is not None and needed > free:
        name = str(dtype).removeprefix("torch.")
        raise MtaVizError(
            f"in {name} the weights take {size_text(needed)}, and {device} has {size_text(free)} free; "
            "compute in bfloat16 (--dtype, or Compute in among the settings), or on another device"
        )


def free_bytes(device: torch.device) -> int | None:
    """Of the memory of a device, and of what this process may take; None where the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, unused
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        text = MEMORY.read_text()
    except OSError:  # not Linux
        text = ""
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.M)
    there = (available and 1024 * int(available[1]), door.memory_left())
    return min((n_bytes for n_bytes in there if n_bytes is not None), default=None)


def resident_bytes(process: int) -> int | None:
    """Of memory that a process takes; None where the system does not tell, or it has ended."""
    try:
        text = (MEMORY.parent / str(process) / "status").read_text()
    except OSError:
        return None
    taken = re.search(r"^VmRSS:\s+(\d+) kB$", text, re.M)
    return None if taken is None else 1024 * int(taken[1])


def run_seconds() -> float:
    """The most seconds that a run may be expected to take: `MTA_VIZ_RUN_SECONDS`, else `RUN_SECONDS`."""
    given = os.environ.get("MTA_VIZ_RUN_SECONDS", "")
    return float(given) if given.isdecimal() else RUN_SECONDS


@cache
def all_threads() -> int:
    """torch's own choice, read before anything here changes it."""
    return torch.get_num_threads()


def set_threads(config: ModelConfig, n_tokens: int, batch: int = 1) -> None:
    """Tiny runs are 25 to 50 times slower on several threads than on one; choose by size."""
    most = all_threads()  # asked first, always: after a small run torch would answer 1
    wanted = 1 if batch * multiply_adds(config, n_tokens) < SMALL_RUN else most
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


def in_turns(model: HookedMTA, n_tokens: int, batch: int = 1) -> AbstractContextManager[None]:
    """Around a run without hooks of its own, which gives way to others and then has its threads again."""
    return model.lock.in_turns(partial(set_threads, model.config, n_tokens, batch))


TRIES = 8  # a text that is cut may have other tokens at its ends


def cut(model: HookedMTA, tokens: Tokens, most: int, place: CutPlace) -> str | tuple[int, ...]:
    """What is left of a prompt of which `most` tokens fit; a text stays a text.

    What comes before the first character (BOS) counts among the tokens that fit.
    """
    if tokens.text is None or model.tokenizer is None:
        return cut_to(tokens.ids, most, place)
    text, room = tokens.text, most
    for _ in range(TRIES):
        first = next((at for at, (start, stop) in enumerate(tokens.spans) if stop > start), len(tokens))
        spans = cut_to(tokens.spans[first:], max(room - first, 0), place)
        text = "".join(tokens.text[start:stop] for start, stop in spans)
        beyond = len(model.tokenizer.encode(text)) - most if text else 0
        if beyond <= 0:
            break
        room -= beyond
    return text
