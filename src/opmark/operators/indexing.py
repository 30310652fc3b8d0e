"""Operators that pick rows by index: embedding."""

from __future__ import annotations

from typing import Any

from opmark.operators._build import calls
from opmark.schema import Cost, Implementation, Launch, Operator, Params, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, size


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "weight": TensorSpec((p["rows"], p["dim"]), p["dtype"]),
        "indices": TensorSpec((p["indices"],), "int64", 0, p["rows"]),
    }


def _cost(p: Params) -> Cost:
    """Only the rows that are asked for are read, each as often as it is asked for."""
    picked = p["indices"] * p["dim"] * sizeof(p["dtype"])
    return Cost(0, picked + p["indices"] * sizeof("int64"), picked)


def _backward_cost(p: Params) -> Cost:
    """A dense gradient: all of the table is written, and what is picked is added up."""
    nbytes = sizeof(p["dtype"])
    picked = p["indices"] * p["dim"]
    return Cost(picked, picked * nbytes + p["indices"] * sizeof("int64"), p["rows"] * p["dim"] * nbytes)


def _numpy(p: Params, weight: Any, indices: Any) -> Launch:
    return lambda: weight[indices]


EMBEDDING = Operator(
    name="embedding",
    summary="rows of a table, by index",
    category="indexing",
    params=(
        size("rows", "rows of the table"),
        size("dim", "elements of a row"),
        size("indices", "number of rows that are looked up"),
        dtype(*FLOATS),
    ),
    inputs=_inputs,
    cost=_cost,
    backward_cost=_backward_cost,
    reference=lambda p, weight, indices: weight[indices],
    # Exact forwards; backwards as many gradients are added up as one row was asked for.
    tolerance=Tolerance(terms=lambda p: 1 + int(p["indices"]) // int(p["rows"])),
    presets={
        "small": {"rows": 1000, "dim": 64, "indices": 256},
        "typical": {"rows": 50000, "dim": 512, "indices": 4096},
        "large": {"rows": 200000, "dim": 1024, "indices": 32768},
    },
    gradients=("weight",),
    implementations=(
        Implementation("numpy", _numpy),
        calls("torch.nn.functional.embedding", "indices", "weight"),
    ),
)

OPERATORS = (EMBEDDING,)
