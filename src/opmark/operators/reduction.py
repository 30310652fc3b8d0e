"""Fewer elements out than in: reduce_sum, topk."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls
from opmark.schema import Cost, Implementation, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, flag, integer, shape, size

INDEX_BYTES = sizeof("int64")


def _sum_cost(p: Params) -> Cost:
    n, nbytes = prod(p["shape"]), sizeof(p["dtype"])
    return Cost(n, n * nbytes, n // p["shape"][p["axis"]] * nbytes)


def _numpy_sum(p: Params, x: Any) -> Launch:
    """With at least 24 bits: NumPy would add up float16 in float16 along all axes but the last."""
    wide = np.promote_types(x.dtype, np.float32)
    if wide == x.dtype:
        return partial(np.sum, x, axis=p["axis"])
    return lambda: np.sum(x, axis=p["axis"], dtype=wide).astype(x.dtype)


REDUCE_SUM = Operator(
    name="reduce_sum",
    summary="sum along an axis",
    category="reduction",
    params=(shape("shape", "shape of x"), integer("axis", "axis that is summed", -1), dtype(*FLOATS)),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
    cost=_sum_cost,
    reference=lambda p, x: x.sum(axis=p["axis"]),
    tolerance=Tolerance(
        terms=lambda p: int(p["shape"][p["axis"]]),
        magnitude=lambda p: (p["shape"][p["axis"]] / 3) ** 0.5,
    ),
    presets={
        "small": {"shape": [256, 256]},
        "typical": {"shape": [2048, 2048]},
        "large": {"shape": [8192, 8192]},
    },
    rules=(Rule("axis", "name an axis of shape {shape} (got {axis})",
                lambda p: -len(p["shape"]) <= p["axis"] < len(p["shape"])),),
    gradients=("x",),
    # Backwards nothing is computed: frameworks return a view of the incoming gradient, so there is no cost to state.
    implementations=(Implementation("numpy", _numpy_sum), calls("torch.sum", "x", dim="axis")),
    aliases=("sum",),
)  # fmt: skip


def _topk_cost(p: Params) -> Cost:
    """Comparisons are no floating-point work worth counting; the data has to be read once."""
    n, nbytes = prod(p["shape"]), sizeof(p["dtype"])
    found = n // p["shape"][-1] * p["k"]
    return Cost(0, n * nbytes, found * (nbytes + INDEX_BYTES))


def _topk_backward(p: Params) -> Cost:
    n, nbytes = prod(p["shape"]), sizeof(p["dtype"])
    found = n // p["shape"][-1] * p["k"]
    return Cost(0, found * (nbytes + INDEX_BYTES), n * nbytes)


def _topk_reference(p: Params, x: Any) -> Any:
    values = np.sort(x, axis=-1)
    return values[..., : -p["k"] - 1 : -1] if p["largest"] else values[..., : p["k"]]


def _topk_observe(p: Params, outputs: Any, x: Any) -> Any:
    """Equal values may be found in any order, so indices are judged by what they point at."""
    values, indices = outputs
    return values, np.take_along_axis(x, indices, axis=-1)


def _numpy_topk(p: Params, x: Any) -> Launch:
    k, n = p["k"], x.shape[-1]

    def launch() -> Any:
        if p["largest"]:
            found = np.argpartition(x, n - k, axis=-1)[..., n - k :]
        else:
            found = np.argpartition(x, k - 1, axis=-1)[..., :k]
        values = np.take_along_axis(x, found, axis=-1)
        order = np.argsort(-values if p["largest"] else values, axis=-1)
        return np.take_along_axis(values, order, axis=-1), np.take_along_axis(found, order, axis=-1)

    return launch


def _keeping_order(p: Params, name: str, generator: Any, x: Any) -> Any:
    """Larger elements move further, equal ones together: none overtakes another, and each goes its own way."""
    row = (*x.shape[:-1], 1)
    return generator.choice((-1.0, 1.0), size=row) * np.exp(generator.uniform(0.5, 2.0, size=row) * x)


TOPK = Operator(
    name="topk",
    summary="the k largest (or smallest) elements of each row, sorted, and where they are",
    category="sorting",
    params=(
        shape("shape", "shape of x; the last axis is searched"),
        size("k", "how many to find"),
        flag("largest", "the largest ones; false for the smallest", default=True),
        dtype(*FLOATS),
    ),
    inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"])},
    cost=_topk_cost,
    backward_cost=_topk_backward,
    reference=lambda p, x: (_topk_reference(p, x),) * 2,
    observe=_topk_observe,
    presets={
        "small": {"shape": [64, 256], "k": 8},
        "typical": {"shape": [1024, 1024], "k": 16},
        "large": {"shape": [4096, 8192], "k": 64},
    },
    rules=(Rule("k", "be at most the length of the last axis of {shape} (got {k})",
                lambda p: p["k"] <= p["shape"][-1]),),
    gradients=("x",),
    direction=_keeping_order,
    implementations=(
        Implementation("numpy", _numpy_topk),
        calls("torch.topk", "x", k="k", largest="largest"),
    ),
)  # fmt: skip

OPERATORS = (REDUCE_SUM, TOPK)
