"""Where a model lies: on one device, or, too large for one, its layers spread over all there are.

`auto` as a device's name means the latter; accelerate decides which layer goes where. What enters a layer is
moved to where its weights are (`model.transformer`); embedding, final norm and unembedding lie together, on
the first device, and so do a run's tokens, residuals and maps.
"""

from collections.abc import Mapping

import torch
from torch import nn

from mta_viz.checkpoint.types import Checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA, build_model
from mta_viz.run.devices import check_fits, checked_device, devices

AUTO = "auto"
Memory = Mapping[
    int | str, int | str
]  # most of each device, as accelerate takes it: {0: "30GiB", "cpu": ...}


def first_device(name: str) -> torch.device:
    """The device of that name, for `auto` the first there is. Raises MtaVizError for what cannot be used."""
    if name != AUTO:
        return checked_device(name)
    try:
        import accelerate  # noqa: F401
    except ImportError:
        raise MtaVizError(
            "a model is spread over devices by accelerate, which is not installed: "
            "pip install 'mta-viz[accelerate]', or name one device"
        ) from None
    return torch.device([*devices(), "cpu"][1])


def placed(checkpoint: Checkpoint, name: str, dtype: torch.dtype | None) -> HookedMTA:
    """The checkpoint's model on the device of that name, or over all (`auto`). MtaVizError: no room."""
    if name == AUTO:
        first_device(name)
        return build_model(checkpoint, device=spread_layers(checkpoint.config, dtype), dtype=dtype)
    device = checked_device(name)
    if dtype is not None:
        check_fits(checkpoint, device, dtype)
    return build_model(checkpoint, device=device, dtype=dtype)


def spread_layers(
    config: ModelConfig, dtype: torch.dtype | None, memory: Memory | None = None
) -> dict[str, torch.device]:
    """Which part lies where, for `build_model`: whole layers, evenly over GPUs, then on the CPU.

    `memory`: the most of each device (default: what is free). Raises MtaVizError where they hold too little.
    """
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    with torch.device("meta"):
        model = HookedMTA(config)
        if model.unembed is not None:  # it lies beside the embedding
            model.embed, model.unembed = nn.Embedding(2 * config.vocab_size, config.d_model), None
    how = {"no_split_module_classes": ["Block"], "dtype": dtype or torch.float32}
    most = get_balanced_memory(model, None if memory is None else dict(memory), **how)
    places = infer_auto_device_map(model, most, clean_result=False, **how)
    if "disk" in places.values():
        raise MtaVizError("the devices here hold too little for this model; compute in bfloat16 (--dtype)")
    named = {
        f"{part}.": torch.device("cuda", place) if isinstance(place, int) else torch.device(place)
        for part, place in places.items()
    }
    return named | dict.fromkeys(("ln_final.", "unembed."), named["embed."])
