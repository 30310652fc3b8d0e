"""quantize and dequantize with given scales, and products of 8-bit matrices."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, numpy, torch
from opmark.catalogue.operators._elementwise import PRESETS, SHAPE
from opmark.catalogue.operators._quantization import (
    LARGEST,
    NARROW,
    QUANTIZED,
    STEPS,
    Exact8,
    Rounded8,
    accept_either_neighbour,
    domain,
    multiply,
    quantized,
    weight_dtype,
)
from opmark.catalogue.operators.llm_norm import ENOUGH_TOKENS, HIDDEN, TOKENS, tokens
from opmark.plugin import Launch, Operator, ParamRule, Params
from opmark.plugin.param import choice, dtype, flag, integer, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import sizeof

LOWEST, HIGHEST = -128, LARGEST["int8"]
PARAMS = (
    SHAPE,
    choice("per", "one scale for the whole tensor, or one per channel along the last axis",
           ("channel", "tensor"), "channel"),
    integer("zero_point", "the integer that stands for zero", 0),
    QUANTIZED,
    dtype("float32", "float16", "bfloat16"),
)  # fmt: skip
LIMITS = {kind: (LOWEST if kind == "int8" else -largest, largest) for kind, largest in LARGEST.items()}
RULES = (
    ParamRule("zero_point", "be 0 for {quantized_dtype} (got {zero_point})",
         lambda p: quantized(p) == "int8" or not p["zero_point"]),
    ParamRule("zero_point", "be a number of 8 bits, -128 to 127 (got {zero_point})",
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
    return np.clip(x / scale + p["zero_point"], *LIMITS[quantized(p)])


def _numpy_quantize(p: Params, x: Any, scale: Any) -> Launch:
    def launch() -> Any:
        return np.clip(np.rint(x / scale) + p["zero_point"], LOWEST, HIGHEST).astype(np.int8)

    return launch


def _torch_quantize(p: Params, x: Any, scale: Any) -> Launch:
    import torch

    zero, kind = p["zero_point"], getattr(torch, quantized(p))
    low, high = LIMITS[quantized(p)]
    if quantized(p) != "int8":
        return lambda: (x / scale).clamp(low, high).to(kind)

    def launch() -> Any:
        numbers = torch.round(x / scale)
        return (numbers + zero if zero else numbers).clamp(low, high).to(kind)

    return launch


QUANTIZE = Operator(
    name="quantize",
    summary="x / scale + zero_point, rounded to int8, or to a float8",
    category="quantization",
    params=PARAMS,
    inputs=_quantize_inputs,
    cost=lambda p: Cost(_flops(p), nbytes(_quantize_inputs(p).values()), prod(p["shape"])),
    reference=_numbers,
    presets=PRESETS,
    rules=RULES,
    implementations=(numpy(_numpy_quantize), torch(_torch_quantize)),
    result_dtype=quantized,
    tolerance=Rounded8(),
    observe=accept_either_neighbour(_numbers, kind=quantized),
    aliases=("quantize_per_tensor", "quantize_per_channel", "QuantizeLinear", "quantize_v2"),
)


def _dequantize_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": TensorSpec(tuple(p["shape"]), quantized(p), LOWEST, HIGHEST + 1), "scale": _scale(p)}


def _dequantize(p: Params, x: Any, scale: Any) -> Any:
    return (x.astype(scale.dtype) - scale.dtype.type(p["zero_point"])) * scale


def _torch_dequantize(p: Params, x: Any, scale: Any) -> Launch:
    import torch

    kind, zero = getattr(torch, p["dtype"]), p["zero_point"]
    if x.is_floating_point():  # torch multiplies int8 by a float, but no float8
        return lambda: (x.float() * scale).to(kind)
    return lambda: ((x.float() - zero if zero else x) * scale).to(kind)


DEQUANTIZE = Operator(
    name="dequantize",
    summary="(x - zero_point) scale, from int8 or a float8",
    category="quantization",
    params=PARAMS,
    inputs=_dequantize_inputs,
    cost=lambda p: Cost(_flops(p), nbytes(_dequantize_inputs(p).values()), prod(p["shape"]) * sizeof(p["dtype"])),
    reference=_dequantize,
    tolerance=Rounded8(),
    presets=PRESETS,
    rules=RULES,
    implementations=(formula(_dequantize), torch(_torch_dequantize)),
    aliases=("DequantizeLinear",),
)

QUANTIZATION_OPERATORS = (QUANTIZE, DEQUANTIZE)


# Products of 8-bit matrices: quant_matmul, quant_group_gemm_reduce_sum.

SCALES = (0.005, 0.01)
OUT = dtype("bfloat16", "float16", "float32", default="bfloat16", name="out_dtype", doc="element type of the result")
WEIGHTS_MNK = (size("M", "rows of x"), size("N", "rows of the weight"), size("K", "columns of x and weight"))
SIZES = (HIDDEN, size("new_hidden_size", "elements of a token in the result"))


def out_dtype(p: Params) -> str:
    return str(p["out_dtype"])


def _inputs(p: Params) -> dict[str, TensorSpec]:
    t, k, n = tokens(p), p["hidden_size"], p["new_hidden_size"]
    bias = {"bias": TensorSpec((n,), "float32")} if p["has_bias"] else {}
    return {
        "x": TensorSpec((t, k), p["dtype"], *domain(p["dtype"])),
        "x_scale": TensorSpec((t,), "float32", *SCALES),
        "weight": TensorSpec((n, k), weight_dtype(p), *domain(p["dtype"])),
        "w_scale": TensorSpec((n,), "float32", *SCALES),
        **bias,
    }


def _cost(p: Params) -> Cost:
    """Count products and sums; scales and bias are by convention not counted."""
    written = tokens(p) * p["new_hidden_size"]
    return Cost(2 * written * p["hidden_size"], nbytes(_inputs(p).values()), written * sizeof(out_dtype(p)))


def _quant_matmul(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any, bias: Any = 0) -> Any:
    """Compute in float64, where sums of products of 8-bit numbers are exact."""
    return x.astype(np.float64) @ weight.astype(np.float64).T * x_scale[:, None] * w_scale + bias


def _torch(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any, bias: Any = None) -> Launch:
    wide = {**p, "out_dtype": "float32"} if bias is not None else p
    product = multiply(wide, x, weight)
    if bias is None:
        return partial(product, x, x_scale, weight, w_scale)
    import torch

    out = getattr(torch, out_dtype(p))
    return lambda: (product(x, x_scale, weight, w_scale) + bias).to(out)


QUANT_MATMUL = Operator(
    name="quant_matmul",
    summary="x weight' of 8-bit numbers, with a scale per token and a scale per column",
    category="gemm",
    params=(*TOKENS, *SIZES, flag("has_bias", "add a vector in float32"), NARROW, OUT),
    inputs=_inputs,
    cost=_cost,
    reference=_quant_matmul,
    tolerance=Exact8(),
    result_dtype=out_dtype,
    presets={
        "small": {"num_tokens": 64, "hidden_size": 256, "new_hidden_size": 128},
        "typical": {"num_tokens": 256, "hidden_size": 1024, "new_hidden_size": 1024},
        "large": {"num_tokens": 8192, "hidden_size": 8192, "new_hidden_size": 8192},
    },
    rules=(ENOUGH_TOKENS,),
    implementations=(formula(_quant_matmul, out_dtype), torch(_torch)),
    aliases=("moe_quant_matmul", "int8_matmul", "scaled_mm"),
)


def _group_inputs(p: Params) -> dict[str, TensorSpec]:
    groups, t, k, n = p["sp_size"], tokens(p), p["hidden_size"], p["new_hidden_size"]
    return {
        "x": TensorSpec((groups, t, k), p["dtype"], *domain(p["dtype"])),
        "x_scale": TensorSpec((groups, t), "float32", *SCALES),
        "weight": TensorSpec((groups, n, k), weight_dtype(p), *domain(p["dtype"])),
        "w_scale": TensorSpec((groups, n), "float32", *SCALES),
    }


def _group_cost(p: Params) -> Cost:
    written = tokens(p) * p["new_hidden_size"]
    flops = 2 * p["sp_size"] * written * p["hidden_size"]
    return Cost(flops, nbytes(_group_inputs(p).values()), written * sizeof(out_dtype(p)))


def _group_sum(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Any:
    products = x.astype(np.float64) @ np.swapaxes(weight.astype(np.float64), 1, 2)
    return (products * x_scale[..., None] * w_scale[:, None]).sum(axis=0)


def _torch_group(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Launch:
    import torch

    product = multiply({**p, "out_dtype": "float32"}, x[0], weight[0])
    out, groups = getattr(torch, out_dtype(p)), [(x[i], x_scale[i], weight[i], w_scale[i]) for i in range(len(x))]

    def launch() -> Any:
        total = product(*groups[0])
        for group in groups[1:]:
            total += product(*group)
        return total.to(out, copy=False)

    return launch


QUANT_GROUP_GEMM_REDUCE_SUM = Operator(
    name="quant_group_gemm_reduce_sum",
    summary="the sum over groups of x weight' of 8-bit numbers, each with a scale per token and a scale per column",
    category="gemm",
    params=(
        size("num_tokens", "tokens of all ranks"),
        size("sp_size", "groups that are added up; each has num_tokens / sp_size tokens"),
        *SIZES,
        NARROW,
        OUT,
    ),
    inputs=_group_inputs,
    cost=_group_cost,
    reference=_group_sum,
    tolerance=Exact8(),
    result_dtype=out_dtype,
    presets={
        "small": {"num_tokens": 64, "sp_size": 4, "hidden_size": 128, "new_hidden_size": 64},
        "typical": {"num_tokens": 512, "sp_size": 4, "hidden_size": 512, "new_hidden_size": 512},
        "large": {"num_tokens": 32768, "sp_size": 8, "hidden_size": 4096, "new_hidden_size": 4096},
    },
    rules=(ENOUGH_TOKENS,),
    implementations=(formula(_group_sum, out_dtype), torch(_torch_group)),
)

# Several products: quant_batched_matmul of equal sizes, quant_grouped_gemm of different heights.


def _batched_inputs(p: Params) -> dict[str, TensorSpec]:
    b, m, n, k = p["B"], p["M"], p["N"], p["K"]
    return {
        "x": TensorSpec((b, m, k), p["dtype"], *domain(p["dtype"])),
        "x_scale": TensorSpec((b, m), "float32", *SCALES),
        "weight": TensorSpec((b, n, k), weight_dtype(p), *domain(p["dtype"])),
        "w_scale": TensorSpec((b, n), "float32", *SCALES),
    }


def _batched_cost(p: Params) -> Cost:
    written = p["B"] * p["M"] * p["N"]
    return Cost(2 * written * p["K"], nbytes(_batched_inputs(p).values()), written * sizeof(out_dtype(p)))


def _batched_product(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Any:
    products = x.astype(np.float64) @ np.swapaxes(weight.astype(np.float64), 1, 2)
    return products * x_scale[..., None] * w_scale[:, None]


def _torch_batched(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Launch:
    """Compute one product after the other, as torch has no batched one of 8-bit numbers."""
    import torch

    product = multiply(p, x[0], weight[0])
    groups = [(x[i], x_scale[i], weight[i], w_scale[i]) for i in range(len(x))]
    return lambda: torch.stack([product(*group) for group in groups])


QUANT_BATCHED_MATMUL = Operator(
    name="quant_batched_matmul",
    summary="B independent x[M,K] weight[N,K]ᵀ of 8-bit numbers, each with a scale per row and a scale per column",
    category="gemm",
    params=(size("B", "number of products"), *WEIGHTS_MNK, NARROW, OUT),
    inputs=_batched_inputs,
    cost=_batched_cost,
    reference=_batched_product,
    tolerance=Exact8(),
    result_dtype=out_dtype,
    presets={
        "small": {"B": 8, "M": 64, "N": 64, "K": 64},
        "typical": {"B": 32, "M": 256, "N": 256, "K": 128},
        "large": {"B": 64, "M": 1024, "N": 1024, "K": 256},
    },
    implementations=(formula(_batched_product, out_dtype), torch(_torch_batched, name="loop")),
    aliases=("int8_bmm",),
)


def _grouped_inputs(p: Params) -> dict[str, TensorSpec]:
    n, k, span = p["N"], p["K"], domain(p["dtype"])
    left = {f"x{i}": TensorSpec((m, k), p["dtype"], *span) for i, m in enumerate(p["M"])}
    scales = {f"x_scale{i}": TensorSpec((m,), "float32", *SCALES) for i, m in enumerate(p["M"])}
    right = {f"weight{i}": TensorSpec((n, k), weight_dtype(p), *span) for i in range(len(p["M"]))}
    return left | scales | right | {f"w_scale{i}": TensorSpec((n,), "float32", *SCALES) for i in range(len(p["M"]))}


def _grouped_cost(p: Params) -> Cost:
    written = sum(p["M"]) * p["N"]
    return Cost(2 * written * p["K"], nbytes(_grouped_inputs(p).values()), written * sizeof(out_dtype(p)))


def _each(p: Params, inputs: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(inputs[f"{name}{i}"] for name in ("x", "x_scale", "weight", "w_scale")) for i in range(len(p["M"]))]


def _grouped_products(p: Params, **inputs: Any) -> Any:
    return tuple(_quant_matmul(p, *group) for group in _each(p, inputs))


def _torch_grouped(p: Params, **inputs: Any) -> Launch:
    groups = _each(p, inputs)
    jobs = [(multiply(p, group[0], group[2]), group) for group in groups]
    return lambda: tuple([product(*group) for product, group in jobs])


def _numpy_grouped(p: Params, **inputs: Any) -> Launch:
    groups = _each(p, inputs)
    return lambda: tuple(_quant_matmul(p, *group).astype(out_dtype(p)) for group in groups)


QUANT_GROUPED_GEMM = Operator(
    name="quant_grouped_gemm",
    summary="independent x_i[M_i,K] weight_i[N,K]ᵀ of 8-bit numbers, each with a scale per row and a scale per column",
    category="gemm",
    params=(shape("M", "rows of each product, as in 512x256x64"), *WEIGHTS_MNK[1:], NARROW, OUT),
    inputs=_grouped_inputs,
    cost=_grouped_cost,
    reference=_grouped_products,
    tolerance=Exact8(),
    result_dtype=out_dtype,
    presets={
        "small": {"M": [64, 32, 16, 8], "N": 64, "K": 64},
        "typical": {"M": [512, 256, 128, 64], "N": 512, "K": 512},
        "large": {"M": [4096, 2048, 1024, 512, 512, 256, 128, 64], "N": 4096, "K": 4096},
    },
    implementations=(numpy(_numpy_grouped), torch(_torch_grouped)),
)

QUANT_GEMM_OPERATORS = (QUANT_MATMUL, QUANT_GROUP_GEMM_REDUCE_SUM, QUANT_BATCHED_MATMUL, QUANT_GROUPED_GEMM)


OPERATORS = (
    *QUANTIZATION_OPERATORS,
    *QUANT_GEMM_OPERATORS,
)
