"""The `model.mta` object of params.json <-> `MTAOptions`: defaults, ranges and what switches what off."""

from typing import Any, cast

from mta_viz.checkpoint.fields import FieldReader
from mta_viz.config import Gate, ModelConfig, MTAOptions, PadKey


def read_mta_block(mta: FieldReader, n_heads: int, n_layers: int, notes: list[str]) -> MTAOptions:
    """Options of `model.mta`; layers outside the model go into `notes`.

    Without `use_mta` there are no kernels and no mixing; norm, gate and scales still act.
    """
    use_mta = mta.flag("use_mta", False)
    pad_key = mta.word("pad_key", "both", ("both", "left", "right"))
    pre = _kernel(mta, "", 1, pad_key, use_mta)
    post = _kernel(mta, "after_sm_", None, pad_key, use_mta)
    layers = _layers(mta, n_layers, notes)
    head_pre = mta.flag("pre_sm_linear_head", False)
    group, linear = _head_post(mta, n_heads, use_mta)
    gate = "1d" if mta.flag("gate_1d", True) else "dd"
    # Once reported, an even width must not stop other checks: "left" takes any, and no shape depends on it.
    even = any(kernel and kernel[1] % 2 == 0 for kernel in (pre, post)) and mta.problems
    return MTAOptions(
        pre_kernel=pre,
        post_kernel=post,
        pad_key=cast(PadKey, "left" if even and pad_key == "both" else pad_key),
        mta_layers=layers if use_mta else None,
        head_pre=head_pre and use_mta,
        head_post_group=group,
        head_post_linear=linear,
        group_norm=mta.flag("group_norm", False),
        depth_scale=mta.flag("layer_norm_rescale", False),
        gate=cast(Gate, gate) if mta.flag("add_gating", False) else None,
        scale_block_norms=mta.flag("curse_norm", False),
    )


def _kernel(
    mta: FieldReader, prefix: str, default: int | None, pad_key: str, use_mta: bool
) -> tuple[int, int] | None:
    """(c_q, c_k), or None where either size is null."""
    names = (f"{prefix}query_kernel_size", f"{prefix}key_kernel_size")
    sizes = [_nullable(mta, name, default) for name in names]
    if not use_mta or sizes[0] is None or sizes[1] is None:
        return None
    if pad_key == "both" and sizes[1] % 2 == 0:
        sizes[1] = mta.fault(names[1], sizes[1], 'an odd number, since pad_key is "both"', sizes[1])
    return sizes[0], cast(int, sizes[1])


def _nullable(mta: FieldReader, name: str, default: int | None) -> int | None:
    """A size that may be null whatever its default is."""
    if name in mta.block and mta.block[name] is None:
        default = None
    return mta.whole(name, default)


def _head_post(mta: FieldReader, n_heads: int, use_mta: bool) -> tuple[int | None, bool]:
    group, linear = mta.whole("head_kernel_size", None), mta.flag("post_sm_linear_head", False)
    if not use_mta:
        return None, False
    if group is not None and n_heads % group:
        group = mta.fault("head_kernel_size", group, f"a divisor of n_heads {n_heads}", n_heads)
    if group is not None and linear:
        mta.problems.append(
            f"model.mta.head_kernel_size is {group} and model.mta.post_sm_linear_head is true; "
            "expected one of the two: set one to null or false"
        )
        linear = False
    return group, linear


def _layers(mta: FieldReader, n_layers: int, notes: list[str]) -> tuple[int, ...] | None:
    """The layers of a comma list such as "0, 1"; those outside the model are dropped and noted."""
    value = mta.anything("mta_layers")
    if value is None:
        return None
    try:
        listed = sorted({int(item) for item in value.split(",")})
    except (AttributeError, ValueError):
        expected = 'a comma list of layers counted from 0, such as "1,3"'
        return cast("tuple[int, ...] | None", mta.fault("mta_layers", value, expected, None))
    outside = [layer for layer in listed if not 0 <= layer < n_layers]
    if outside:
        names = ", ".join(map(str, outside))
        notes.append(f"model.mta.mta_layers names {names}; the model has layers 0 to {n_layers - 1}: ignored")
    return tuple(layer for layer in listed if 0 <= layer < n_layers)


def write_mta_block(config: ModelConfig) -> dict[str, Any]:
    """Every field of `model.mta`, the inverse of `read_mta_block`."""
    mta = config.mta
    kernels = mta.mta_layers != ()  # an empty list cannot be written: no layer means no kernels
    pre = (kernels and mta.pre_kernel) or (None, None)
    post = (kernels and mta.post_kernel) or (None, None)
    mixing = mta.head_pre or mta.head_post_linear or mta.head_post_group is not None
    return {
        "use_mta": pre[0] is not None or post[0] is not None or mixing,
        "query_kernel_size": pre[0],
        "key_kernel_size": pre[1],
        "pad_key": mta.pad_key,
        "mta_layers": ",".join(map(str, mta.mta_layers)) if mta.mta_layers else None,
        "after_sm_query_kernel_size": post[0],
        "after_sm_key_kernel_size": post[1],
        "head_kernel_size": mta.head_post_group,
        "group_norm": mta.group_norm,
        "layer_norm_rescale": mta.depth_scale,
        "curse_norm": mta.scale_block_norms,
        "pre_sm_linear_head": mta.head_pre,
        "post_sm_linear_head": mta.head_post_linear,
        "add_gating": mta.gate is not None,
        "gate_1d": mta.gate != "dd",
    }
