"""Random order: randperm, shuffle."""

from __future__ import annotations

from functools import partial
from math import prod, sqrt
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import numpy as in_numpy
from opmark.operators._build import torch as in_torch
from opmark.operators._drawn import alternation, generator, refuse_outside, snap
from opmark.operators._fresh import fresh
from opmark.operators.sampling import LEAST, SLACK, at_least
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, INTS, is_float, sizeof
from opmark.schema.param import dtype, shape, size


def _correlations(found: Any, start: Any) -> Any:
    """Return the correlation of new positions with old ones, and of neighbours: zero after shuffling."""
    n = start.size
    if n < 3:
        return np.zeros(2)
    centred = found - found.mean()
    spread = float(np.sqrt(np.square(centred).sum() * np.square(start - start.mean()).sum())) or 1.0
    kept = float((centred * (start - start.mean())).sum()) / spread
    return np.array([snap(kept, 0.0, 1 / sqrt(n)), alternation(centred < np.median(centred), 0.5) - 0.5])


def _randperm_observe(p: Params, output: Any) -> Any:
    n = p["elements"]
    refuse_outside(output, (n,), 0, n - 1, 0.0)
    return np.sort(output).astype(np.float64), _correlations(output.astype(np.float64), np.arange(n))


def _numpy_randperm(p: Params) -> Launch:
    drawing = generator()
    return lambda: drawing.permutation(p["elements"]).astype(p["dtype"], copy=False)


def _torch_randperm(p: Params) -> Launch:
    import torch

    return partial(torch.randperm, p["elements"], **fresh(p))


RANDPERM = Operator(
    name="randperm",
    summary="the integers from 0 to elements - 1 in random order",
    category="random",
    params=(size("elements", "how many"), dtype("int64", "int32", default="int64")),
    inputs=lambda p: {},
    cost=lambda p: Cost(0, 0, p["elements"] * sizeof(p["dtype"])),
    reference=lambda p: (np.arange(p["elements"], dtype=np.float64), np.zeros(2)),
    observe=_randperm_observe,
    presets={"small": {"elements": 10000}, "typical": {"elements": 1 << 20}, "large": {"elements": 1 << 24}},
    rules=(at_least("elements"),),
    implementations=(in_numpy(_numpy_randperm), in_torch(_torch_randperm, "torch.randperm")),
    result="random",
    aliases=("permutation", "random_permutation"),
)


def _keys(x: Any) -> Any:
    """Return a number per row that identifies it, summed in an order that does not depend on the row's position."""
    weights = np.cos(np.arange(1, x[0].size + 1))
    return (x.reshape(len(x), -1) * weights).sum(axis=1)


def _shuffle_observe(p: Params, output: Any, x: Any) -> Any:
    refuse_outside(output, x.shape, x.min(), x.max(), SLACK.get(p["dtype"], 0.0))
    before, after = _keys(x.astype(np.float64)), _keys(output.astype(np.float64))
    return np.sort(after), _correlations(after, before)


def _numpy_shuffle(p: Params, x: Any) -> Launch:
    return partial(generator().permutation, x)


def _torch_shuffle(p: Params, x: Any) -> Launch:
    import torch

    return lambda: x[torch.randperm(len(x), device=x.device)]


def _shuffle_cost(p: Params) -> Cost:
    nbytes = prod(p["shape"]) * sizeof(p["dtype"])
    return Cost(0, nbytes, nbytes)


def _shuffle_inputs(p: Params) -> dict[str, TensorSpec]:
    domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, 100)
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"], *domain)}


SHUFFLE = Operator(
    name="shuffle",
    summary="the rows of x in random order",
    category="random",
    params=(shape("shape", "shape of x; its first axis is shuffled"), dtype(*FLOATS, *INTS)),
    inputs=_shuffle_inputs,
    cost=_shuffle_cost,
    reference=lambda p, x: (np.sort(_keys(x.astype(np.float64))), np.zeros(2)),
    observe=_shuffle_observe,
    presets={"small": {"shape": [1024, 64]}, "typical": {"shape": [16384, 256]}, "large": {"shape": [65536, 1024]}},
    rules=(Rule("shape", f"have at least {LEAST} rows, so that no two calls give the same (got {{shape}})",
                lambda p: bool(p["shape"][0] >= LEAST)),),
    tolerance=Tolerance(factor=1e-3),  # rows are only moved, not rounded
    implementations=(in_numpy(_numpy_shuffle), in_torch(_torch_shuffle)),
    result="random",
    aliases=("random_shuffle",),
)  # fmt: skip

OPERATORS = (RANDPERM, SHUFFLE)
