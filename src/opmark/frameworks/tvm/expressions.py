"""Operators of the catalogue as TVM tensor expressions. Schedules find a stage by its name: `pad`, `acc`, `out`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.frameworks.tvm.knobs import window_sizes
from opmark.frameworks.tvm.library import te, tirx, topi
from opmark.plugin import Configuration, Params
from opmark.schema.tensor import is_float

Tensors = list[Any]
"""The inputs in the order of the operator's, then the output."""


def wide(dtype: str) -> str:
    """Return the element type that sums are kept in: 16 bits would lose too many digits."""
    return "float32" if dtype == "float16" else dtype


def _acc(shape: Any, term: Callable[..., Any], axes: Any, dtype: str) -> Any:
    """Return sums of terms, in the element type of the result; `acc` is the stage that adds."""
    total = te.compute(shape, lambda *at: te.sum(term(*at), axis=axes), name="acc")
    return total if dtype == wide(dtype) else te.compute(shape, lambda *at: total(*at).astype(dtype), name="out")


def matmul(p: Params, _: Configuration) -> Tensors:
    m, n, k, dtype = p["M"], p["N"], p["K"], p["dtype"]
    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    along, to = te.reduce_axis((0, k), "k"), wide(dtype)
    return [a, b, _acc((m, n), lambda i, j: a[i, along].astype(to) * b[along, j].astype(to), along, dtype)]


def batched_matmul(p: Params, _: Configuration) -> Tensors:
    batch, m, n, k, dtype = p["B"], p["M"], p["N"], p["K"], p["dtype"]
    a, b = te.placeholder((batch, m, k), dtype, "a"), te.placeholder((batch, k, n), dtype, "b")
    along, to = te.reduce_axis((0, k), "k"), wide(dtype)

    def term(i: Any, row: Any, column: Any) -> Any:
        return a[i, row, along].astype(to) * b[i, along, column].astype(to)

    return [a, b, _acc((batch, m, n), term, along, dtype)]


def _padded(x: Any, by: int, value: Any) -> Any:
    return topi.nn.pad(x, (0, 0, by, by), (0, 0, by, by), value, name="pad") if by else x


def conv2d(p: Params, _: Configuration) -> Tensors:
    """A convolution of `groups` groups, in the layout of the catalogue."""
    batch, inside, outside, groups, dtype = p["batch"], p["in_channels"], p["out_channels"], p["groups"], p["dtype"]
    stride, dilation, to = p["stride"], p["dilation"], wide(dtype)
    x = te.placeholder((batch, inside, *p["image"]), dtype, "x")
    weight = te.placeholder((outside, inside // groups, *p["kernel"]), dtype, "weight")
    image = _padded(x, p["padding"], tirx.const(0, dtype))
    c = te.reduce_axis((0, inside // groups), "c")
    i, j = (te.reduce_axis((0, n), name) for n, name in zip(p["kernel"], ("i", "j"), strict=True))

    def term(n: Any, channel: Any, row: Any, column: Any) -> Any:
        group = channel // (outside // groups) * (inside // groups) if groups > 1 else 0
        value = image[n, group + c, row * stride + i * dilation, column * stride + j * dilation]
        return value.astype(to) * weight[channel, c, i, j].astype(to)

    return [x, weight, _acc((batch, outside, *window_sizes(p)), term, [c, i, j], dtype)]


def depthwise_conv2d(p: Params, _: Configuration) -> Tensors:
    batch, channels, times, dtype = p["batch"], p["channels"], p["multiplier"], p["dtype"]
    stride, dilation, to = p["stride"], p["dilation"], wide(dtype)
    x = te.placeholder((batch, channels, *p["image"]), dtype, "x")
    weight = te.placeholder((channels * times, 1, *p["kernel"]), dtype, "weight")
    image = _padded(x, p["padding"], tirx.const(0, dtype))
    i, j = (te.reduce_axis((0, n), name) for n, name in zip(p["kernel"], ("i", "j"), strict=True))

    def term(n: Any, channel: Any, row: Any, column: Any) -> Any:
        value = image[n, channel // times, row * stride + i * dilation, column * stride + j * dilation]
        return value.astype(to) * weight[channel, 0, i, j].astype(to)

    return [x, weight, _acc((batch, channels * times, *window_sizes(p)), term, [i, j], dtype)]


# Along an axis.


def softmax(p: Params, configuration: Configuration) -> Tensors:
    shape, dtype = tuple(p["shape"]), p["dtype"]
    to, rows = wide(dtype), tuple(p["shape"][:-1])
    x = te.placeholder(shape, dtype, "x")
    along, again = te.reduce_axis((0, shape[-1]), "k"), te.reduce_axis((0, shape[-1]), "k")
    largest = te.compute(rows, lambda *at: te.max(x(*at, along).astype(to), axis=along), name="largest")
    polynomial = configuration.get("exp") == "polynomial" and to == "float32"
    exp = _polynomial_exp if polynomial else te.exp
    power = te.compute(shape, lambda *at: exp(x(*at).astype(to) - largest(*at[:-1])), name="power")
    total = te.compute(rows, lambda *at: te.sum(power(*at, again), axis=again), name="total")
    return [x, te.compute(shape, lambda *at: (power(*at) / total(*at[:-1])).astype(dtype), name="out")]


def _polynomial_exp(x: Any) -> Any:
    """Return exp of a float32 that is not positive, as 2**n times a polynomial (Cephes): every step is one of a vector,
    where exp of the C library takes one element at a time."""

    def constant(value: float) -> Any:
        return tirx.const(value, "float32")

    x = tirx.max(x, constant(-87.3365))
    n = te.floor(x * constant(1.44269504088896341) + constant(0.5))
    f = x - n * constant(0.693359375) - n * constant(-2.12194440e-4)
    y = constant(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        y = y * f + constant(c)
    y = y * f * f + f + constant(1.0)
    power = tirx.reinterpret("float32", (n.astype("int32") + 127) << 23)
    return y * power


def layer_norm(p: Params, _: Configuration) -> Tensors:
    shape, dtype = tuple(p["shape"]), p["dtype"]
    to, rows, n = wide(dtype), tuple(p["shape"][:-1]), p["shape"][-1]
    x, weight = te.placeholder(shape, dtype, "x"), te.placeholder((n,), dtype, "weight")
    bias = te.placeholder((n,), dtype, "bias") if p.get("bias", True) else None
    along, again = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k")
    count = tirx.const(n, to)
    total = te.compute(rows, lambda *at: te.sum(x(*at, along).astype(to), axis=along), name="total")

    def centred(*at: Any) -> Any:
        return x(*at).astype(to) - total(*at[:-1]) / count

    squares = te.compute(
        rows, lambda *at: te.sum(centred(*at, again) * centred(*at, again), axis=again), name="squares"
    )

    def normalised(*at: Any) -> Any:
        root = te.rsqrt(squares(*at[:-1]) / count + tirx.const(p["eps"], to))
        scaled = centred(*at) * root * weight[at[-1]].astype(to)
        return (scaled + bias[at[-1]].astype(to) if bias is not None else scaled).astype(dtype)

    inputs = [x, weight] if bias is None else [x, weight, bias]
    return [*inputs, te.compute(shape, normalised, name="out")]


def rms_norm(p: Params, _: Configuration) -> Tensors:
    shape, dtype = tuple(p["shape"]), p["dtype"]
    to, rows, n = wide(dtype), tuple(p["shape"][:-1]), p["shape"][-1]
    x, weight = te.placeholder(shape, dtype, "x"), te.placeholder((n,), dtype, "weight")
    along = te.reduce_axis((0, n), "k")
    squares = te.compute(
        rows, lambda *at: te.sum(x(*at, along).astype(to) * x(*at, along).astype(to), axis=along), name="squares"
    )

    def normalised(*at: Any) -> Any:
        root = te.rsqrt(squares(*at[:-1]) / tirx.const(n, to) + tirx.const(p["eps"], to))
        return (x(*at).astype(to) * root * weight[at[-1]].astype(to)).astype(dtype)

    return [x, weight, te.compute(shape, normalised, name="out")]


def reduction(kind: str) -> Callable[[Params, Configuration], Tensors]:
    """Return the expression of a reduction along one axis: `sum`, `mean`, `max` or `min`."""

    def express(p: Params, _: Configuration) -> Tensors:
        shape, dtype = tuple(p["shape"]), p["dtype"]
        axis, n = p["axis"] % len(shape), shape[p["axis"]]
        adds = kind in ("sum", "mean")
        to = (wide(dtype) if is_float(dtype) else "int64") if adds else dtype
        x, along = te.placeholder(shape, dtype, "x"), te.reduce_axis((0, n), "k")
        kept = (*shape[:axis], *((1,) if p["keepdims"] else ()), *shape[axis + 1 :])
        reduce = {"sum": te.sum, "mean": te.sum, "max": te.max, "min": te.min}[kind]

        def term(*at: Any) -> Any:
            after = at[axis + 1 :] if p["keepdims"] else at[axis:]
            return reduce(x(*at[:axis], along, *after).astype(to), axis=along)

        acc = te.compute(kept, term, name="acc")
        result = to if adds and not is_float(dtype) else dtype
        if kind == "mean":
            count = tirx.const(n, to)
            return [x, te.compute(kept, lambda *at: (acc(*at) / count).astype(result), name="out")]
        return [x, te.compute(kept, lambda *at: acc(*at).astype(result), name="out")]

    return express


# Pools.


def pool2d(kind: str) -> Callable[[Params, Configuration], Tensors]:
    """Return the expression of a sliding pool: `max` or `avg`."""

    def express(p: Params, _: Configuration) -> Tensors:
        dtype, stride, dilation, by = p["dtype"], p["stride"], p.get("dilation", 1), p["padding"]
        to = wide(dtype) if kind == "avg" else dtype
        x = te.placeholder((p["batch"], p["channels"], *p["image"]), dtype, "x")
        image = _padded(x, by, tirx.const(0, dtype) if kind == "avg" else tirx.min_value(dtype))
        i, j = (te.reduce_axis((0, n), name) for n, name in zip(p["kernel"], ("i", "j"), strict=True))
        reduce = te.sum if kind == "avg" else te.max

        def term(n: Any, c: Any, row: Any, column: Any) -> Any:
            value = image[n, c, row * stride + i * dilation, column * stride + j * dilation]
            return reduce(value.astype(to), axis=[i, j])

        shape = (p["batch"], p["channels"], *window_sizes(p))
        acc = te.compute(shape, term, name="acc")
        if kind == "max":
            return [x, acc]

        def mean(n: Any, c: Any, row: Any, column: Any) -> Any:
            count = tirx.const(prod(p["kernel"]), to)
            if by and not p["count_include_pad"]:
                covered = [
                    tirx.min(place * stride - by + window, size) - tirx.max(place * stride - by, 0)
                    for place, window, size in zip((row, column), p["kernel"], p["image"], strict=True)
                ]
                count = (covered[0] * covered[1]).astype(to)
            return (acc[n, c, row, column] / count).astype(dtype)

        return [x, te.compute(shape, mean, name="out")]

    return express
