"""A mixture of experts with 8-bit numbers: moe_quant_group_gemm, moe_quant_group_gemm_combine."""

from __future__ import annotations

from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, torch
from opmark.operators._narrow_gemm import FP8, Exact8, domain, multiply
from opmark.operators._routing import ROUTING_PARAMS, ROUTING_RULES, busy_experts, dispatched_rows, experts, spans
from opmark.operators.llm_norm import HIDDEN
from opmark.operators.moe import NEW_HIDDEN, gemm_presets
from opmark.operators.moe_routing import (
    COMBINE_PARAMS,
    COMBINE_RULES,
    combine_flops,
    combine_inputs,
    combine_rows,
    torch_combine_rows,
)
from opmark.operators.quant_gemm import OUT, SCALES, out_dtype
from opmark.schema import Cost, Launch, Operator, Params, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.dtype import sizeof
from opmark.schema.param import dtype

NARROW = dtype("int8", FP8, default="int8")


def _inputs(p: Params) -> dict[str, TensorSpec]:
    d, e, k, n = dispatched_rows(p), experts(p), p["hidden_size"], p["new_hidden_size"]
    return {
        "x": TensorSpec((d, k), p["dtype"], *domain(p["dtype"])),
        "x_scale": TensorSpec((d,), "float32", *SCALES),
        "weight": TensorSpec((e, n, k), p["dtype"], *domain(p["dtype"])),
        "w_scale": TensorSpec((e, n), "float32", *SCALES),
    }


def _read(p: Params) -> int:
    """Return the bytes of rows, and of weights and scales of the experts that have rows."""
    d, k, n = dispatched_rows(p), p["hidden_size"], p["new_hidden_size"]
    scales = d + busy_experts(p) * n
    return int((d * k + busy_experts(p) * n * k) * sizeof(p["dtype"]) + scales * sizeof("float32"))


def _products(p: Params) -> int:
    return int(2 * dispatched_rows(p) * p["hidden_size"] * p["new_hidden_size"])


def _cost(p: Params) -> Cost:
    return Cost(_products(p), _read(p), dispatched_rows(p) * p["new_hidden_size"] * sizeof(out_dtype(p)))


def _group_gemm(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Any:
    parts = [
        x[rows].astype(np.float64) @ weight[expert].astype(np.float64).T * x_scale[rows, None] * w_scale[expert]
        for expert, rows in spans(p)
    ]
    return np.concatenate(parts)


def _torch(p: Params, x: Any, x_scale: Any, weight: Any, w_scale: Any) -> Launch:
    import torch

    jobs = [(x[rows], x_scale[rows], weight[expert], w_scale[expert]) for expert, rows in spans(p)]
    product = multiply(p, jobs[0][0], jobs[0][2])
    return lambda: torch.cat([product(*job) for job in jobs])


GROUP_GEMM = Operator(
    name="moe_quant_group_gemm",
    summary="x weight' of 8-bit numbers for the rows of each expert, with a scale per row and a scale per column",
    category="moe",
    params=(*ROUTING_PARAMS, HIDDEN, NEW_HIDDEN, NARROW, OUT),
    inputs=_inputs,
    cost=_cost,
    reference=_group_gemm,
    tolerance=Exact8(),
    result_dtype=out_dtype,
    presets=gemm_presets(),
    rules=ROUTING_RULES,
    partial=True,
    implementations=(formula(_group_gemm, out_dtype), torch(_torch)),
    aliases=("quant_group_gemm",),
)


def _combine_inputs(p: Params) -> dict[str, TensorSpec]:
    return {**_inputs(p), **combine_inputs(p, p["new_hidden_size"], out_dtype(p))}


def _combine_cost(p: Params) -> Cost:
    """Every token is written, even one without an expert on this rank."""
    n = p["new_hidden_size"]
    read = _read(p) + nbytes(combine_inputs(p, n, out_dtype(p)).values())
    return Cost(_products(p) + combine_flops(p, n), read, p["num_tokens"] * n * sizeof(out_dtype(p)))


def _combine(p: Params, ids: Any, weights: Any, residual: Any, **gemm: Any) -> Any:
    return combine_rows(p, _group_gemm(p, **gemm), ids, weights, residual)


def _torch_combine(p: Params, ids: Any, weights: Any, residual: Any, **gemm: Any) -> Launch:
    import torch

    product, out = _torch({**p, "out_dtype": "float32"}, **gemm), getattr(torch, out_dtype(p))
    return lambda: torch_combine_rows(p, product(), ids, weights, residual, torch.float32).to(out)


COMBINE = Operator(
    name="moe_quant_group_gemm_combine",
    summary="moe_quant_group_gemm, then rows back to their tokens, weighted and added up, with a residual",
    category="moe",
    params=(*ROUTING_PARAMS, *COMBINE_PARAMS, HIDDEN, NEW_HIDDEN, NARROW, OUT),
    inputs=_combine_inputs,
    cost=_combine_cost,
    reference=_combine,
    tolerance=Exact8(),
    result_dtype=out_dtype,
    presets=gemm_presets(),
    rules=(*ROUTING_RULES, *COMBINE_RULES),
    partial=True,
    implementations=(formula(_combine, out_dtype), torch(_torch_combine)),
)

OPERATORS = (GROUP_GEMM, COMBINE)
