"""Convolutions, pools, im2col, upsampling and sampling between pixels, all with channels first."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.jax.implementations._modules import jnp, lax, row
from opmark.plugin import Implementation, Params

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


# Sliding, global and adaptive pools, and the inverse of a max pool.

_WINDOW = "jax.lax.reduce_window"


def _windows(p: Params, x: Any, start: float, join: Any) -> Any:
    """Combine the values of each window by `join`; padding counts as `start`."""
    dims, pad = x.ndim - 2, p.get("padding", 0)
    return lax.reduce_window(
        x,
        start,
        join,
        window_dimensions=(1, 1, *p["kernel"]),
        window_strides=(1, 1, *(p["stride"],) * dims),
        padding=((0, 0), (0, 0), *((pad, pad),) * dims),
        window_dilation=(1, 1, *(p.get("dilation", 1),) * dims),
    )


def _max(p: Params, x: Any) -> Any:
    return _windows(p, x, -float("inf"), lax.max)


def _sum(p: Params, x: Any) -> Any:
    return _windows(p, x, 0.0, lax.add)


def _avg(p: Params, x: Any) -> Any:
    """Compute means, in which padding counts as zeros or not at all."""
    if p["count_include_pad"]:
        return _sum(p, x) / prod(p["kernel"])
    return _sum(p, x) / _sum(p, jnp.ones((1, 1, *x.shape[2:]), x.dtype))


def _lp(p: Params, x: Any) -> Any:
    power = p["norm_type"]
    return _sum(p, x**power) ** (1 / power)


def _global(name: str) -> Implementation:
    def call(p: Params, x: Any) -> Any:
        return getattr(jnp, name)(x, axis=tuple(range(2, x.ndim)), keepdims=True)

    return row(call, f"jax.numpy.{name}")


def _adaptive(join: Callable[..., Any]) -> Implementation:
    """Make an adaptive pool that goes axis by axis: by a reshape if windows are equal, else window by window."""

    def call(p: Params, x: Any) -> Any:
        for axis, (n, out) in enumerate(zip(p["image"], p["out"], strict=True), 2):
            if n % out == 0:
                x = join(x.reshape(*x.shape[:axis], out, n // out, *x.shape[axis + 1 :]), axis=axis + 1)
                continue
            ends = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
            x = jnp.stack([join(lax.slice_in_dim(x, *end, axis=axis), axis=axis) for end in ends], axis=axis)
        return x

    return row(call)


def _unpool(p: Params, x: Any, indices: Any) -> Any:
    planes = (p["batch"], p["channels"])
    flat = jnp.zeros((*planes, prod(p["image"])), x.dtype)
    values, places = (one.reshape(*planes, -1) for one in (x, indices))
    return jnp.put_along_axis(flat, places, values, axis=-1, inplace=False).reshape(*planes, *p["image"])


# Sampling of images between pixels, and the grids of points.


def _half(n: int, align_corners: bool) -> float:
    """Return the pixels per unit of the grid, which goes from -1 to 1 over the image."""
    return (n - 1) / 2 if align_corners else n / 2


def _pixel(grid: Any, n: int, align_corners: bool) -> Any:
    return grid * _half(n, align_corners) + (n - 1) / 2


def _sample(p: Params, x: Any, grid: Any) -> Any:
    """Sample each image and channel by map_coordinates, which interpolates linearly."""
    from jax import vmap
    from jax.scipy.ndimage import map_coordinates

    height, width = p["image"]
    across, down = (_pixel(grid[..., i], n, p["align_corners"]) for i, n in ((0, width), (1, height)))
    mode = {"zeros": "constant", "border": "nearest"}[p["padding_mode"]]

    def image(channels: Any, rows: Any, columns: Any) -> Any:
        return vmap(lambda one: map_coordinates(one, [rows, columns], order=1, mode=mode))(channels)

    return vmap(image)(x, down, across)


def _affine_grid(p: Params, theta: Any) -> Any:
    axes = [(jnp.arange(n) - (n - 1) / 2) / _half(n, p["align_corners"]) for n in p["out"]]
    down, across = jnp.meshgrid(*axes, indexing="ij")
    points = jnp.stack([across, down, jnp.ones_like(across)], axis=-1).astype(theta.dtype)
    return jnp.einsum("hwk,nck->nhwc", points, theta)


def _warp_grid(p: Params, flow: Any) -> Any:
    height, width = p["image"]
    scale = jnp.array([2 / (width - 1), 2 / (height - 1)]).reshape(1, 2, 1, 1)
    down, across = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    base = jnp.stack([across, down])[None] * scale - 1
    return flow * scale.astype(flow.dtype) + base.astype(flow.dtype)


def _transformer(p: Params, x: Any, theta: Any) -> Any:
    return _sample(p, x, _affine_grid(p, theta))


IMPLEMENTATIONS = {
    **{
        name: row(conv, _CONV)
        for name in ("conv1d", "conv2d", "conv3d", "grouped_conv2d", "depthwise_conv2d", "pointwise_conv2d")
    },
    **{f"conv_transpose{dims}d": row(_conv_transpose, _CONV) for dims in (1, 2, 3)},
    "im2col": row(_columns, "jax.lax.conv_general_dilated_patches"),
    "col2im": row(_image),
    "correlation": row(_correlation),
    **{f"upsample_nearest{dims}d": row(_nearest, "jax.image.resize") for dims in (1, 2, 3)},
    **{name: row(_linear, "jax.image.resize") for name in _LINEAR},
    **{
        f"{name}_pool{dims}d": row(call, _WINDOW)
        for dims in (1, 2, 3)
        for name, call in (("max", _max), ("avg", _avg), ("sum", _sum), ("lp", _lp))
    },
    **{
        f"global_{name}_pool{dims}d": _global(call)
        for dims in (1, 2, 3)
        for name, call in (("max", "max"), ("avg", "mean"), ("sum", "sum"))
    },
    **{f"adaptive_max_pool{dims}d": _adaptive(lambda x, axis: jnp.max(x, axis=axis)) for dims in (1, 2, 3)},
    **{f"adaptive_avg_pool{dims}d": _adaptive(lambda x, axis: jnp.mean(x, axis=axis)) for dims in (1, 2, 3)},
    **{f"max_unpool{dims}d": row(_unpool, "jax.numpy.put_along_axis") for dims in (1, 2, 3)},
    "grid_sample": row(_sample, "jax.scipy.ndimage.map_coordinates"),
    "affine_grid": row(_affine_grid),
    "warp_grid": row(_warp_grid),
    "spatial_transformer": row(_transformer, "jax.scipy.ndimage.map_coordinates"),
}
