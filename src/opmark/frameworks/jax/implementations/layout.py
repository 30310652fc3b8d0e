"""Reshaping, moving, splitting and joining. Views of other frameworks are copies here: JAX arrays share no memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opmark.frameworks.implementation import calls
from opmark.frameworks.jax.implementations._modules import jnp, lax, nn, row
from opmark.plugin import Function, Implementation, Params, TensorSlot

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _order(p: Params) -> tuple[int, ...]:
    return tuple(p["axes"]) or tuple(range(len(p["shape"])))[::-1]


def _permute(p: Params, x: Any) -> Any:
    return jnp.transpose(x, _order(p))


def _pad(p: Params, x: Any) -> Any:
    widths = list(zip(p["before"], p["after"], strict=True))
    widths = [(0, 0)] * (x.ndim - len(widths)) + widths
    more = {"constant_values": p["value"]} if p["mode"] == "constant" else {}
    return jnp.pad(x, widths, _PAD_MODES[p["mode"]], **more)


def _to_space(p: Params, x: Any) -> Any:
    (n, c, h, w), b = x.shape, p["block"]
    left = c // (b * b)
    if p["order"] == "crd":
        apart, axes = x.reshape(n, left, b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        apart, axes = x.reshape(n, b, b, left, h, w), (0, 3, 4, 1, 5, 2)
    return apart.transpose(axes).reshape(n, left, h * b, w * b)


def _to_depth(p: Params, x: Any) -> Any:
    (n, c, h, w), b = x.shape, p["block"]
    axes = (0, 1, 3, 5, 2, 4) if p["order"] == "crd" else (0, 3, 5, 1, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(axes).reshape(n, c * b * b, h // b, w // b)


def _channel_shuffle(p: Params, x: Any) -> Any:
    n, c, *image = x.shape
    return jnp.swapaxes(x.reshape(n, p["groups"], c // p["groups"], *image), 1, 2).reshape(x.shape)


def _slice(x: Any, axis: int, begin: int, end: int, step: int = 1) -> Any:
    return lax.slice_in_dim(x, begin, end, step, axis % x.ndim)


def _unfold(p: Params, x: Any) -> Any:
    """Gather windows by the indices of their elements."""
    axis, length = p["axis"] % x.ndim, p["length"]
    starts = jnp.arange(0, x.shape[axis] - length + 1, p["step"])
    windows = jnp.take(x, starts[:, None] + jnp.arange(length), axis=axis)
    return jnp.moveaxis(windows, axis + 1, -1)


def _as_strided(p: Params, x: Any) -> Any:
    places = jnp.asarray(p["offset"])
    for n, stride in zip(p["size"], p["strides"], strict=True):
        places = places[..., None] + stride * jnp.arange(n)
    return x.reshape(-1)[places]


def _chunk(p: Params, x: Any) -> Any:
    length = x.shape[p["axis"]]
    share = -(-length // p["parts"])
    return tuple(jnp.split(x, list(range(share, length, share)), axis=p["axis"]))


def _split(p: Params, x: Any) -> Any:
    return tuple(jnp.split(x, p["parts"], axis=p["axis"]))


def _diag_embed(p: Params, x: Any) -> Any:
    k, edge = p["k"], x.shape[-1] + abs(p["k"])
    rows = jnp.arange(x.shape[-1]) + max(-k, 0)
    return jnp.zeros((*x.shape[:-1], edge, edge), x.dtype).at[..., rows, rows + k].set(x)


def _triangle(function: Callable[..., Any]) -> Implementation:
    """Make an implementation from function(p, x, rows, columns). Indices are arguments: as constants they would bloat
    the program."""

    def build(p: Params, x: Any) -> Function:
        rows, columns = (jnp.triu_indices if p["upper"] else jnp.tril_indices)(p["n"])
        return Function(partial(function, p), (x, TensorSlot(rows), TensorSlot(columns)))

    return Implementation("jax", build)


def _extract_triangle(p: Params, x: Any, rows: Any, columns: Any) -> Any:
    return x[:, rows, columns]


def _make_triangle(p: Params, x: Any, rows: Any, columns: Any) -> Any:
    return jnp.zeros((p["batch"], p["n"], p["n"]), x.dtype).at[:, rows, columns].set(x)


def _diagonal(p: Params, x: Any) -> Any:
    return jnp.diagonal(x, p["k"], -2, -1)


def _call_with_list(name: str) -> Any:
    return row(lambda p, **tensors: getattr(jnp, name)([*tensors.values()], axis=p["axis"]), f"jax.numpy.{name}")


def _join(p: Params, **blocks: Any) -> Any:
    from jax.scipy.linalg import block_diag

    return block_diag(*blocks.values())


IMPLEMENTATIONS = {
    "transpose": row(_permute, "jax.numpy.transpose"),
    "permute": row(_permute, "jax.numpy.transpose"),
    "flip": calls("jax.numpy.flip", "x", axis="axis"),
    "roll": calls("jax.numpy.roll", "x", shift="shift", axis="axis"),
    "rot90": calls("jax.numpy.rot90", "x", k="k", fixed={"axes": (-2, -1)}),
    "tile": calls("jax.numpy.tile", "x", reps="reps"),
    "repeat": calls("jax.numpy.repeat", "x", repeats="repeats", axis="axis"),
    "broadcast_copy": calls("jax.numpy.broadcast_to", "x", shape="target"),
    "broadcast_to": calls("jax.numpy.broadcast_to", "x", shape="target"),
    "depth_to_space": row(_to_space),
    "space_to_depth": row(_to_depth),
    "channel_shuffle": row(_channel_shuffle),
    "shape_array": row(lambda p, x: jnp.array(x.shape, "int64")),
    "size_array": row(lambda p, x: jnp.array([x.size], "int64")),
    "pad": row(_pad, "jax.numpy.pad"),
    "reshape": row(lambda p, x: jnp.reshape(x, p["target"]), "jax.numpy.reshape"),
    "flatten": row(lambda p, x: jnp.reshape(x, (x.shape[0], -1)), "jax.numpy.reshape"),
    "expand_dims": calls("jax.numpy.expand_dims", "x", axis="axis"),
    "squeeze": calls("jax.numpy.squeeze", "x", axis="axis"),
    "swapaxes": calls("jax.numpy.swapaxes", "x", axis1="axis1", axis2="axis2"),
    "slice": row(lambda p, x: _slice(x, p["axis"], p["begin"], p["end"], p["step"]), "jax.lax.slice_in_dim"),
    "narrow": row(lambda p, x: _slice(x, p["axis"], p["start"], p["start"] + p["length"]), "jax.lax.slice_in_dim"),
    "select": row(lambda p, x: lax.index_in_dim(x, p["index"], p["axis"] % x.ndim, keepdims=False),
                  "jax.lax.index_in_dim"),
    "diagonal": row(_diagonal, "jax.numpy.diagonal"),
    "diag": row(_diagonal, "jax.numpy.diagonal"),
    "unfold": row(_unfold),
    "as_strided": row(_as_strided),
    "diag_embed": row(_diag_embed),
    "triu": calls("jax.numpy.triu", "x", k="k"),
    "tril": calls("jax.numpy.tril", "x", k="k"),
    "extract_triangle": _triangle(_extract_triangle),
    "make_triangle": _triangle(_make_triangle),
    "concat": _call_with_list("concatenate"),
    "stack": _call_with_list("stack"),
    "block_diag": row(_join, "jax.scipy.linalg.block_diag"),
    "split": row(_split, "jax.numpy.split"),
    "split_copy": row(_split, "jax.numpy.split"),
    "chunk": row(_chunk, "jax.numpy.split"),
    "unbind": row(lambda p, x: tuple(jnp.unstack(x, axis=p["axis"])), "jax.numpy.unstack"),
    "meshgrid": row(lambda p, x, y: tuple(jnp.meshgrid(x, y, indexing="ij")), "jax.numpy.meshgrid"),
    "one_hot": row(lambda p, index: nn.one_hot(index, p["depth"], dtype="int64"), "jax.nn.one_hot"),
}  # fmt: skip
