"""Convolutions, transposed convolutions, im2col and upsampling, all with channels first."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.implementations.jax._modules import jnp, lax, row
from opmark.schema import Params

_CONV = "jax.lax.conv_general_dilated"


def conv(p: Params, x: Any, weight: Any) -> Any:
    """Compute a convolution; missing parameters have their defaults, a depthwise one has as many groups as channels."""
    dims, pad = x.ndim - 2, p.get("padding", 0)
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=(p.get("stride", 1),) * dims,
        padding=((pad, pad),) * dims,
        rhs_dilation=(p.get("dilation", 1),) * dims,
        feature_group_count=x.shape[1] // weight.shape[1],
    )


def _conv_transpose(p: Params, x: Any, weight: Any) -> Any:
    """Compute a convolution of the dilated image, as jax.lax.conv_transpose does, which has no groups."""
    dims, groups, (_, out, *kernel) = x.ndim - 2, p["groups"], weight.shape
    apart = weight.reshape(groups, p["in_channels"] // groups, out, *kernel)
    turned = jnp.flip(jnp.swapaxes(apart, 1, 2), range(3, 3 + dims)).reshape(groups * out, -1, *kernel)
    reach = [p["dilation"] * (k - 1) - p["padding"] for k in kernel]
    return lax.conv_general_dilated(
        x,
        turned,
        window_strides=(1,) * dims,
        padding=[(n, n + p["output_padding"]) for n in reach],
        lhs_dilation=(p["stride"],) * dims,
        rhs_dilation=(p["dilation"],) * dims,
        feature_group_count=groups,
    )


def _columns(p: Params, x: Any) -> Any:
    dims, pad = x.ndim - 2, p["padding"]
    patches = lax.conv_general_dilated_patches(
        x,
        filter_shape=tuple(p["kernel"]),
        window_strides=(p["stride"],) * dims,
        padding=((pad, pad),) * dims,
        rhs_dilation=(p["dilation"],) * dims,
    )
    return patches.reshape(*patches.shape[:2], -1)


def _image(p: Params, x: Any) -> Any:
    """Compute the transpose of `_columns`, which is linear."""
    from jax import linear_transpose

    image = jnp.zeros((p["batch"], p["channels"], *p["image"]), x.dtype)
    (found,) = linear_transpose(lambda image: _columns(p, image), image)(x)
    return found


def _correlation(p: Params, x: Any, y: Any) -> Any:
    """Compute a product of images and a mean for each displacement."""
    first, step, kernel, pad = p["max_displacement"], p["stride"], p["kernel"], p["padding"]
    around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    x, y = jnp.pad(x, around), jnp.pad(y, around)
    height, width = (n - 2 * first for n in x.shape[2:])
    each = p["displacement_stride"]
    shifts = [each * i for i in range(-(first // each), first // each + 1)]
    base = x[:, :, first : first + height, first : first + width]
    moved = [(down, across) for down in shifts for across in shifts]
    found = [
        (base * y[:, :, first + down : first + down + height, first + across : first + across + width]).mean(1)
        for down, across in moved
    ]
    stacked = jnp.stack(found, axis=1)
    if kernel == step == 1:
        return stacked
    window = (1, 1, kernel, kernel)
    return lax.reduce_window(stacked, 0.0, lax.add, window, (1, 1, step, step), "VALID") / prod(window)


def _nearest(p: Params, x: Any) -> Any:
    from jax.image import resize

    return resize(x, (*x.shape[:2], *p["out"]), "nearest")


def _linear(p: Params, x: Any) -> Any:
    from jax.image import resize, scale_and_translate

    shape, dims = (*x.shape[:2], *p["out"]), range(2, x.ndim)
    if not p["align_corners"]:
        return resize(x, shape, "linear", antialias=False)
    if any(n < 2 for n in (*p["image"], *p["out"])):
        raise Unsupported("corners can be aligned only if every axis has at least two pixels")
    scale = jnp.array([(out - 1) / (n - 1) for n, out in zip(p["image"], p["out"], strict=True)])
    return scale_and_translate(x, shape, tuple(dims), scale, 0.5 - 0.5 * scale, "linear", antialias=False)


_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")

IMPLEMENTATIONS = {
    **{name: row(conv, _CONV) for name in ("conv1d", "conv2d", "conv3d", "grouped_conv2d", "depthwise_conv2d",
                                           "pointwise_conv2d")},
    **{f"conv_transpose{dims}d": row(_conv_transpose, _CONV) for dims in (1, 2, 3)},
    "im2col": row(_columns, "jax.lax.conv_general_dilated_patches"),
    "col2im": row(_image),
    "correlation": row(_correlation),
    **{f"upsample_nearest{dims}d": row(_nearest, "jax.image.resize") for dims in (1, 2, 3)},
    **{name: row(_linear, "jax.image.resize") for name in _LINEAR},
}  # fmt: skip
