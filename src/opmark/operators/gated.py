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
    """Two elements in and so much work for one out."""

    def cost(p: Params) -> Cost:
        out, size = prod(p["shape"]) // 2, sizeof(p["dtype"])
        return Cost(flops * out, 2 * out * size, out * size)

    return cost


def _backward_cost(flops: int) -> Callable[[Params], Cost]:
    """x and the gradient in, the gradient of x out."""

    def cost(p: Params) -> Cost:
        out, size = prod(p["shape"]) // 2, sizeof(p["dtype"])
        return Cost(flops * out, 3 * out * size, 2 * out * size)

    return cost


def _gated(activate: Callable[[Any], Any]) -> Callable[..., Any]:
    def reference(p: Params, x: Any) -> Any:
        gate, value = halves(x)
        return activate(gate) * value

    return reference


def torch_gated(activation: str) -> Callable[[Any], Any]:
    """The same with torch's function of that name."""
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


# The gate is the second half here and the first half in the three below: so do torch's glu, and the fused kernels of
# language models (`silu_and_mul`). Flops an output: those of the activation and of the product; backwards those of the
# activation's gradient, and of a product or two for each half.
GLU = _row(
    "glu", "first half times sigmoid of the second half",
    lambda p, x: halves(x)[0] * sigmoid(halves(x)[1]), calls("torch.nn.functional.glu", "x"), 4, 8, ("GLU",),
)  # fmt: skip
# ByteMicroPerf's first generation has a `swiglu` that is silu(x) x, of one tensor: not a gated unit, and not this.
SWIGLU = _row(
    "swiglu", "silu of the first half (gate) times the second half (value)",
    lambda p, x: swiglu(x), _in_torch("silu"), 4, 11, ("SwiGLU", "silu_and_mul"),
)  # fmt: skip
GEGLU = _row(
    "geglu", "gelu of the first half (gate) times the second half (value)",
    _gated(gelu), _in_torch("gelu"), 6, 12, ("GEGLU", "gelu_and_mul"),
)  # fmt: skip
REGLU = _row(
    "reglu", "relu of the first half (gate) times the second half (value)",
    _gated(lambda x: np.maximum(x, 0)), _in_torch("relu"), 1, 2, ("ReGLU",), direction=away_from((0.0,)),
)  # fmt: skip

OPERATORS = (GLU, SWIGLU, GEGLU, REGLU)
"""Found by the registry."""
