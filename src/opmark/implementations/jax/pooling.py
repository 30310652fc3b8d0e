"""Sliding, global and adaptive pools, and the inverse of a max pool."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.implementations.jax._modules import jnp, lax, row
from opmark.schema import Implementation, Params

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


IMPLEMENTATIONS = {
    **{f"{name}_pool{dims}d": row(call, _WINDOW)
       for dims in (1, 2, 3) for name, call in (("max", _max), ("avg", _avg), ("sum", _sum), ("lp", _lp))},
    **{f"global_{name}_pool{dims}d": _global(call)
       for dims in (1, 2, 3) for name, call in (("max", "max"), ("avg", "mean"), ("sum", "sum"))},
    **{f"adaptive_max_pool{dims}d": _adaptive(lambda x, axis: jnp.max(x, axis=axis)) for dims in (1, 2, 3)},
    **{f"adaptive_avg_pool{dims}d": _adaptive(lambda x, axis: jnp.mean(x, axis=axis)) for dims in (1, 2, 3)},
    **{f"max_unpool{dims}d": row(_unpool, "jax.numpy.put_along_axis") for dims in (1, 2, 3)},
}  # fmt: skip
