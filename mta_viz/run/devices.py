"""Where a run is computed and on how many threads: devices by name, and torch's threads by the work."""

import os
import re
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path

import torch

from mta_viz.checkpoint.types import Checkpoint, Conversion
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import printable, size_text
from mta_viz.run.cost import multiply_adds

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
    if not any(one.startswith(kind) for one in there):
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
    """Of the memory of a device; None where the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, unused
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        text = MEMORY.read_text()
    except OSError:  # not Linux
        return None
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.M)
    return None if available is None else 1024 * int(available[1])


def run_seconds() -> float:
    """The most seconds that a run may be expected to take: `MTA_VIZ_RUN_SECONDS`, else `RUN_SECONDS`."""
    given = os.environ.get("MTA_VIZ_RUN_SECONDS", "")
    return float(given) if given.isdecimal() else RUN_SECONDS


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or this machine, had no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


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
