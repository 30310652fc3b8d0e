"""An operator that the catalogue has not, and the chip has."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.schema import Cost, Implementation, Launch, Operator, Params, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import sizeof
from opmark.schema.param import dtype, real, shape


def _inputs(p: Params) -> dict[str, TensorSpec]:
    return {name: TensorSpec(tuple(p["shape"]), p["dtype"]) for name in ("x", "residual")}


def _reference(p: Params, x: Any, residual: Any) -> Any:
    import numpy as np

    return np.maximum(p["scale"] * x + residual, 0)


def _numpy(p: Params, x: Any, residual: Any) -> Launch:
    return lambda: _reference(p, x, residual).astype(p["dtype"], copy=False)


OPERATORS = (
    Operator(
        name="npu_scale_add_relu",
        summary="relu(scale x + residual): the end of a residual block, in one pass",
        category="fused",
        params=(
            shape("shape", "shape of x and residual"),
            real("scale", "factor of x", 0.5),
            dtype("float32", "float16"),
        ),
        inputs=_inputs,
        # A product and a sum; the comparison is not counted.
        cost=lambda p: Cost(2 * prod(p["shape"]), nbytes(_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
        reference=_reference,
        presets={
            "small": {"shape": [64, 256]},
            "typical": {"shape": [1024, 1024]},
            "large": {"shape": [8192, 4096]},
        },
        implementations=(Implementation("numpy", _numpy),),  # what the fused kernel is compared with
    ),
)
