"""quantize and dequantize with given scales."""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, numpy, torch
from opmark.operators._pointwise import PRESETS, SHAPE
from opmark.operators._rounded import STEPS, accept_either_neighbour
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import sizeof
from opmark.schema.param import choice, dtype, integer

LOWEST, HIGHEST = -128, 127
PARAMS = (
    SHAPE,
    choice("per", "one scale for the whole tensor, or one per channel along the last axis",
           ("channel", "tensor"), "channel"),
    integer("zero_point", "the integer that stands for zero", 0),
    dtype("float32", "float16", "bfloat16"),
)  # fmt: skip
RULES = (
    Rule("zero_point", "be a number of 8 bits, -128 to 127 (got {zero_point})",
         lambda p: LOWEST <= p["zero_point"] <= HIGHEST),
)  # fmt: skip


def _scale(p: Params) -> TensorSpec:
    return TensorSpec((p["shape"][-1] if p["per"] == "channel" else 1,), "float32", *STEPS)


def _flops(p: Params) -> int:
    """Count a product or quotient per element, and a sum if zero_point is not 0."""
    return prod(p["shape"]) * (2 if p["zero_point"] else 1)


def _quantize_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": TensorSpec(tuple(p["shape"]), p["dtype"]), "scale": _scale(p)}


def _numbers(p: Params, x: Any, scale: Any) -> Any:
    """Return the numbers before rounding."""
    return np.clip(x / scale + p["zero_point"], LOWEST, HIGHEST)


def _numpy_quantize(p: Params, x: Any, scale: Any) -> Launch:
    def launch() -> Any:
        return np.clip(np.rint(x / scale) + p["zero_point"], LOWEST, HIGHEST).astype(np.int8)

    return launch


def _torch_quantize(p: Params, x: Any, scale: Any) -> Launch:
    import torch

    zero = p["zero_point"]

    def launch() -> Any:
        numbers = torch.round(x / scale)
        return (numbers + zero if zero else numbers).clamp(LOWEST, HIGHEST).to(torch.int8)

    return launch


QUANTIZE = Operator(
    name="quantize",
    summary="x / scale + zero_point, rounded to int8",
    category="quantization",
    params=PARAMS,
    inputs=_quantize_inputs,
    cost=lambda p: Cost(_flops(p), nbytes(_quantize_inputs(p).values()), prod(p["shape"])),
    reference=_numbers,
    presets=PRESETS,
    rules=RULES,
    implementations=(numpy(_numpy_quantize), torch(_torch_quantize)),
    result_dtype=lambda _: "int8",
    observe=accept_either_neighbour(_numbers),
    aliases=("quantize_per_tensor", "quantize_per_channel", "QuantizeLinear", "quantize_v2"),
)


def _dequantize_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": TensorSpec(tuple(p["shape"]), "int8", LOWEST, HIGHEST + 1), "scale": _scale(p)}


def _dequantize(p: Params, x: Any, scale: Any) -> Any:
    return (x.astype(scale.dtype) - scale.dtype.type(p["zero_point"])) * scale


def _torch_dequantize(p: Params, x: Any, scale: Any) -> Launch:
    import torch

    kind, zero = getattr(torch, p["dtype"]), p["zero_point"]
    return lambda: ((x.float() - zero if zero else x) * scale).to(kind)


DEQUANTIZE = Operator(
    name="dequantize",
    summary="(x - zero_point) scale, from int8",
    category="quantization",
    params=PARAMS,
    inputs=_dequantize_inputs,
    cost=lambda p: Cost(_flops(p), nbytes(_dequantize_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
    reference=_dequantize,
    presets=PRESETS,
    rules=RULES,
    implementations=(formula(_dequantize), torch(_torch_dequantize)),
    aliases=("DequantizeLinear",),
)

OPERATORS = (QUANTIZE, DEQUANTIZE)
