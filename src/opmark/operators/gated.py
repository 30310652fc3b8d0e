"""Gated linear units: one half of a row, activated, times the other half."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import calls, formula, torch
from opmark.operators._formulas import gelu, halves, sigmoid, swiglu
from opmark.operators._pointwise import away_from
from opmark.schema import Cost, Implementation, Operator, Params, Rule, TensorSpec
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, shape


def _cost(flops: int) -> Callable[[Params], Cost]:
    """Return a cost function: two elements are read and `flops` computed per output element."""

    def cost(p: Params) -> Cost:
        out, size = prod(p["shape"]) // 2, sizeof(p["dtype"])
        return Cost(flops * out, 2 * out * size, out * size)

    return cost


def _backward_cost(flops: int) -> Callable[[Params], Cost]:
    """Return a cost function: x and the incoming gradient are read, the gradient of x is written."""

    def cost(p: Params) -> Cost:
        out, size = prod(p["shape"]) // 2, sizeof(p["dtype"])
        return Cost(flops * out, 3 * out * size, 2 * out * size)

    return cost


def _gate_reference(activate: Callable[[Any], Any]) -> Callable[..., Any]:
    def reference(p: Params, x: Any) -> Any:
        gate, value = halves(x)
        return activate(gate) * value

    return reference


def torch_gated(activation: str) -> Callable[[Any], Any]:
    """Return a gated unit with torch's activation of that name."""
    from torch.nn import functional

    activate = getattr(functional, activation)

    def call(x: Any) -> Any:
        gate, value = x.chunk(2, dim=-1)
        return activate(gate) * value

    return call


def _in_torch(activation: str) -> Implementation:
    return torch(lambda p, x: partial(torch_gated(activation), x))


def _row(name: str, summary: str, reference: Any, torch: Implementation, flops: int, backward_flops: int,
         aliases: tuple[str, ...], **more: Any) -> Operator:  # fmt: skip
    return Operator(
        name=name,
        summary=summary,
        category="activation",
        params=(shape("shape", "shape of x; its last axis holds two halves, the result is one half as long"),
                dtype(*FLOATS)),
        inputs=lambda p: {"x": TensorSpec(tuple(p["shape"]), p["dtype"], -3.0, 3.0)},
        cost=_cost(flops),
        backward_cost=_backward_cost(backward_flops),
        reference=reference,
        presets={
            "small": {"shape": [64, 512]},
            "typical": {"shape": [1024, 2048]},
            "large": {"shape": [8192, 8192]},
        },
        rules=(Rule("shape", "have an even last axis (got {shape})", lambda p: p["shape"][-1] % 2 == 0),),
        gradients=("x",),
        implementations=(formula(reference), torch),
        aliases=aliases,
        **more,
    )  # fmt: skip


# The gate is the second half in glu, as in torch, and the first half in the other three, as in the fused kernels of
# language models (`silu_and_mul`). Flops per output are those of the activation and of the product; backwards those of
# the activation's gradient, and of one or two products for each half.
GLU = _row(
    "glu", "first half times sigmoid of the second half",
    lambda p, x: halves(x)[0] * sigmoid(halves(x)[1]), calls("torch.nn.functional.glu", "x"), 4, 8, ("GLU",),
)  # fmt: skip
# The `swiglu` of ByteMicroPerf's first generation is silu(x) x of one tensor, so it is not this operator.
SWIGLU = _row(
    "swiglu", "silu of the first half (gate) times the second half (value)",
    lambda p, x: swiglu(x), _in_torch("silu"), 4, 11, ("SwiGLU", "silu_and_mul"),
)  # fmt: skip
GEGLU = _row(
    "geglu", "gelu of the first half (gate) times the second half (value)",
    _gate_reference(gelu), _in_torch("gelu"), 6, 12, ("GEGLU", "gelu_and_mul"),
)  # fmt: skip
REGLU = _row(
    "reglu", "relu of the first half (gate) times the second half (value)",
    _gate_reference(lambda x: np.maximum(x, 0)), _in_torch("relu"), 1, 2, ("ReGLU",), direction=away_from((0.0,)),
)  # fmt: skip

OPERATORS = (GLU, SWIGLU, GEGLU, REGLU)
"""Found by the registry."""
