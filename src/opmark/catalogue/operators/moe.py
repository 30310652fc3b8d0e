"""Computation of the experts of a mixture of experts, also with 8-bit numbers. Rows are in the order of the experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, swiglu, torch
from opmark.catalogue.operators._moe import (
    ROUTING_PARAMS,
    ROUTING_RULES,
    busy_experts,
    dispatched_rows,
    expert_of_rows,
    experts,
    loads,
    spans,
)
from opmark.catalogue.operators._quantization import NARROW, Exact8, domain, multiply, weight_dtype
from opmark.catalogue.operators.activation import torch_gated
from opmark.catalogue.operators.dynamic_quantization import GATED, RowSource, dynamic_quant, smooth
from opmark.catalogue.operators.llm_norm import HIDDEN
from opmark.catalogue.operators.moe_routing import (
    COMBINE_PARAMS,
    COMBINE_RULES,
    combine_flops,
    combine_inputs,
    combine_rows,
    torch_combine_rows,
)
from opmark.catalogue.operators.quantization import OUT, SCALES, out_dtype
from opmark.errors import Unsupported
from opmark.plugin import Launch, Operator, Params, Tolerance
from opmark.plugin.operator import sum_of_products
from opmark.plugin.param import dtype, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof

# Element types that torch's grouped product takes.
GROUPED = ("float32", "float16", "bfloat16")
NEW_HIDDEN = size("new_hidden_size", "elements of a token in the result")
MOE = {
    "small": {"num_tokens": 64, "num_experts": 8, "topk": 2},
    "typical": {"num_tokens": 512, "num_experts": 16, "topk": 2},
    "large": {"num_tokens": 16384, "num_experts": 128, "topk": 8, "ep_size": 8},
}


def gemm_presets() -> dict[str, dict[str, Any]]:
    widths = {"small": (128, 64), "typical": (512, 512), "large": (4096, 1536)}
    return {name: {**MOE[name], "hidden_size": k, "new_hidden_size": n} for name, (k, n) in widths.items()}


def _gemm_inputs(p: Params) -> dict[str, TensorSpec]:
    k, n = p["hidden_size"], p["new_hidden_size"]
    return {
        "x": TensorSpec((dispatched_rows(p), k), p["dtype"]),
        "weight": TensorSpec((experts(p), n, k), p["dtype"]),
    }


def _gemm_cost(p: Params) -> Cost:
    d, k, n, nbytes = dispatched_rows(p), p["hidden_size"], p["new_hidden_size"], sizeof(p["dtype"])
    return Cost(2 * d * k * n, (d * k + busy_experts(p) * n * k) * nbytes, d * n * nbytes)


def _by_expert(p: Params, x: Any, weight: Any) -> Any:
    return np.concatenate([x[rows] @ weight[expert].T for expert, rows in spans(p)])


def _loop(p: Params, weight: Any) -> Callable[[Any], Any]:
    """Return a function that computes a product for each expert with tokens, into one tensor."""
    import torch

    experts = [(rows, weight[expert].t()) for expert, rows in spans(p)]

    def product(x: Any) -> Any:
        result = x.new_empty(len(x), weight.shape[1])
        for rows, columns in experts:
            torch.mm(x[rows], columns, out=result[rows])
        return result

    return product


def _grouped(p: Params, x: Any, *weights: Any) -> Any:
    """Return torch's single call for all experts as a function of rows and weights. It is tried here; Unsupported if
    torch does not take these operands."""
    import torch

    function = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if function is None:
        raise Unsupported(f"torch {torch.__version__} has no grouped_mm")
    ends = np.cumsum(loads(p)).astype(np.int32)
    offsets = torch.from_numpy(ends).to(x.device)

    def product(rows: Any, weight: Any) -> Any:
        return function(rows, weight.transpose(1, 2), offs=offsets)

    try:
        for weight in weights:
            product(x.new_zeros(len(x), weight.shape[2]), weight)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise Unsupported(f"torch's grouped_mm does not take these matrices here: {reason}") from None
    return product


def _torch_grouped(p: Params, x: Any, weight: Any) -> Launch:
    product = _grouped(p, x, weight)
    return lambda: product(x, weight)


GROUP_GEMM = Operator(
    name="moe_group_gemm",
    summary="x weight' for the rows of each expert",
    category="moe",
    params=(*ROUTING_PARAMS, HIDDEN, NEW_HIDDEN, dtype(*GROUPED)),
    inputs=_gemm_inputs,
    cost=_gemm_cost,
    reference=_by_expert,
    tolerance=sum_of_products(lambda p: int(p["hidden_size"])),
    presets=gemm_presets(),
    rules=ROUTING_RULES,
    partial=True,
    implementations=(
        formula(_by_expert),
        torch(lambda p, x, weight: partial(_loop(p, weight), x), name="loop"),
        torch(_torch_grouped, "torch.nn.functional.grouped_mm", "grouped_mm"),
    ),
    aliases=("grouped_mm",),
)


def _mlp_inputs(p: Params) -> dict[str, TensorSpec]:
    hidden, inner = p["hidden_size"], p["intermediate_size"]
    # Small weights, as in models: sums of products stay in the range where silu is not yet linear.
    return {
        "x": TensorSpec((dispatched_rows(p), hidden), p["dtype"]),
        "gate_up": TensorSpec((experts(p), 2 * inner, hidden), p["dtype"], -(hidden**-0.5), hidden**-0.5),
        "down": TensorSpec((experts(p), hidden, inner), p["dtype"]),
    }


def _mlp_cost(p: Params) -> Cost:
    """Count three matrices per expert, and silu 3 and a product 1 between them."""
    d, hidden, inner, nbytes = dispatched_rows(p), p["hidden_size"], p["intermediate_size"], sizeof(p["dtype"])
    read = d * hidden + busy_experts(p) * 3 * inner * hidden
    return Cost(6 * d * hidden * inner + 4 * d * inner, read * nbytes, d * hidden * nbytes)


def _mlp(p: Params, x: Any, gate_up: Any, down: Any) -> Any:
    return _by_expert(p, swiglu(_by_expert(p, x, gate_up)), down)


def _torch_mlp(p: Params, x: Any, gate_up: Any, down: Any) -> Launch:
    first, gated, second = _loop(p, gate_up), torch_gated("silu"), _loop(p, down)
    return lambda: second(gated(first(x)))


def _torch_mlp_grouped(p: Params, x: Any, gate_up: Any, down: Any) -> Launch:
    product, gated = _grouped(p, x, gate_up, down), torch_gated("silu")
    return lambda: product(gated(product(x, gate_up)), down)


MLP = Operator(
    name="moe_mlp",
    summary="each expert's (silu(x gate') * (x up')) down' for its rows",
    category="moe",
    params=(*ROUTING_PARAMS, HIDDEN, size("intermediate_size", "elements between the products"), dtype(*GROUPED)),
    inputs=_mlp_inputs,
    cost=_mlp_cost,
    reference=_mlp,
    # The factors of the last products are themselves rounded sums of products.
    tolerance=Tolerance(terms=lambda p: int(p["hidden_size"] + p["intermediate_size"])),
    presets={
        "small": {**MOE["small"], "hidden_size": 64, "intermediate_size": 32},
        "typical": {**MOE["typical"], "hidden_size": 256, "intermediate_size": 256},
        "large": {**MOE["large"], "hidden_size": 4096, "intermediate_size": 1536},
    },
    rules=ROUTING_RULES,
    partial=True,
    implementations=(
        formula(_mlp),
        torch(_torch_mlp, name="loop"),
        torch(_torch_mlp_grouped, "torch.nn.functional.grouped_mm", "grouped_mm"),
    ),
)


def _halves(p: Params) -> TensorSpec:
    return TensorSpec((dispatched_rows(p), 2 * p["hidden_size"]), p["dtype"])


def _swiglu_cost(p: Params) -> Cost:
    """Count silu 3 and a product 1 per element."""
    n = dispatched_rows(p) * p["hidden_size"]
    return Cost(4 * n, _halves(p).nbytes, n * sizeof(p["dtype"]))


def _swiglu(p: Params, x: Any) -> Any:
    return swiglu(x)


SWIGLU_PRESETS = {
    "small": {**MOE["small"], "hidden_size": 128},
    "typical": {**MOE["typical"], "hidden_size": 512},
    "large": {**MOE["large"], "hidden_size": 1536},
}

SWIGLU = Operator(
    name="moe_swiglu",
    summary="silu of one half of a row times the other, for the rows of this rank's experts",
    category="moe",
    params=(*ROUTING_PARAMS, GATED, dtype(*FLOATS)),
    inputs=lambda p: {"x": _halves(p)},
    cost=_swiglu_cost,
    reference=_swiglu,
    presets=SWIGLU_PRESETS,
    rules=ROUTING_RULES,
    implementations=(formula(_swiglu), torch(lambda p, x: partial(torch_gated("silu"), x))),
)


def _smoothed_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"x": _halves(p), "smooth": smooth(experts(p), p["hidden_size"])}


def _torch_smoothed(p: Params, x: Any, smooth: Any, expert: Any, gated: Any) -> Any:
    return (gated(x) * smooth.index_select(0, expert),)


def _prepare_factors(p: Params, tensors: Any) -> dict[str, Any]:
    import torch

    expert = torch.tensor(expert_of_rows(p), device=tensors["x"].device)
    return {"expert": expert, "gated": torch_gated("silu")}


SWIGLU_DYNAMIC_QUANT = dynamic_quant(
    "moe_swiglu_dynamic_quant",
    "silu of one half of a row times the other and a factor of its expert, in int8 or a float8 with a scale per row",
    (*ROUTING_PARAMS, GATED),
    RowSource(
        inputs=_smoothed_inputs,
        values=lambda p, x, smooth: (swiglu(x) * smooth[expert_of_rows(p)],),
        torch_values=_torch_smoothed,
        prepare=_prepare_factors,
        rows=lambda p: (dispatched_rows(p), p["hidden_size"]),
        flops=lambda _: 5,
        read=lambda p: _halves(p).nbytes + busy_experts(p) * p["hidden_size"] * sizeof("float32"),
    ),
    SWIGLU_PRESETS,
    "moe",
    rules=ROUTING_RULES,
    partial=True,
)

MOE_OPERATORS = (GROUP_GEMM, MLP, SWIGLU, SWIGLU_DYNAMIC_QUANT)


# A mixture of experts with 8-bit numbers: moe_quant_group_gemm, moe_quant_group_gemm_combine.


def _inputs(p: Params) -> dict[str, TensorSpec]:
    d, e, k, n = dispatched_rows(p), experts(p), p["hidden_size"], p["new_hidden_size"]
    return {
        "x": TensorSpec((d, k), p["dtype"], *domain(p["dtype"])),
        "x_scale": TensorSpec((d,), "float32", *SCALES),
        "weight": TensorSpec((e, n, k), weight_dtype(p), *domain(p["dtype"])),
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


QUANTIZED_GROUP_GEMM = Operator(
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


OPERATORS = (
    *MOE_OPERATORS,
    QUANTIZED_GROUP_GEMM,
    COMBINE,
)
