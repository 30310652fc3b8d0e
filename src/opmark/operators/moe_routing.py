"""Routing in a mixture of experts: scores, scattering of tokens to the experts, and gathering them again."""

from __future__ import annotations

from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._build import formula, numpy, torch
from opmark.operators._rounded import accept_either_neighbour, exact_rows, numpy_rows, torch_rows
from opmark.operators._routing import (
    ROUTING_PARAMS,
    ROUTING_RULES,
    busy_experts,
    choices_spec,
    dispatched_rows,
    distinct_tokens,
    experts,
    ids_spec,
    local_experts,
    rows_before,
)
from opmark.operators.llm_norm import ENOUGH_TOKENS, HIDDEN, TOKENS, tokens
from opmark.schema import Cost, Launch, Operator, Params, Rule, TensorSpec, Tolerance
from opmark.schema.cost import nbytes
from opmark.schema.dtype import sizeof
from opmark.schema.operator import sum_of_products
from opmark.schema.param import dtype, integer, real, size

FOUR = sizeof("float32")
EXPERTS = size("num_experts", "experts of all ranks")


def _gating_inputs(p: Params) -> dict[str, TensorSpec]:
    """Return the inputs; ByteMicroPerf keeps the weights of a gate in float32 for every token dtype."""
    hidden = p["hidden_size"]
    return {
        "x": TensorSpec((tokens(p), hidden), p["dtype"]),
        "weight": TensorSpec((p["num_experts"], hidden), "float32"),
    }


def _gating_cost(p: Params) -> Cost:
    logits = tokens(p) * p["num_experts"]
    return Cost(2 * logits * p["hidden_size"], nbytes(_gating_inputs(p).values()), logits * FOUR)


def _torch_gating(p: Params, x: Any, weight: Any) -> Launch:
    from torch.nn.functional import linear

    return lambda: linear(x.float(), weight)


def _gating(p: Params, x: Any, weight: Any) -> Any:
    return x @ weight.T


GATING = Operator(
    name="moe_gating_gemm",
    summary="a float32 score of each token for each expert",
    category="moe",
    params=(*TOKENS, HIDDEN, EXPERTS, dtype("float32", "float16", "bfloat16")),
    inputs=_gating_inputs,
    cost=_gating_cost,
    reference=_gating,
    tolerance=sum_of_products(lambda p: int(p["hidden_size"])),
    result_dtype=lambda _: "float32",
    presets={
        "small": {"num_tokens": 64, "hidden_size": 256, "num_experts": 16},
        "typical": {"num_tokens": 512, "hidden_size": 2048, "num_experts": 64},
        "large": {"num_tokens": 16384, "hidden_size": 4096, "num_experts": 128},
    },
    rules=(ENOUGH_TOKENS,),
    implementations=(formula(_gating, lambda _: "float32"), torch(_torch_gating, "torch.nn.functional.linear")),
)


def _scatter_inputs(p: Params) -> dict[str, TensorSpec]:
    return {
        "x": TensorSpec((p["num_tokens"], p["hidden_size"]), p["dtype"]),
        "smooth": TensorSpec((p["num_experts"], p["hidden_size"]), "float32", 0.5, 1.5),
        "chosen": choices_spec(p),
        "weights": TensorSpec((p["num_tokens"], p["topk"]), "float32", 0.0, 1.0),
    }


def _scatter_cost(p: Params) -> Cost:
    """Every choice is read; tokens, factors and weights only if their expert is on this rank."""
    d, e, hidden = dispatched_rows(p), experts(p), p["hidden_size"]
    read = distinct_tokens(p) * hidden * sizeof(p["dtype"]) + (busy_experts(p) * hidden + d) * FOUR
    choices = choices_spec(p).nbytes
    return Cost(2 * d * hidden, read + choices, d * hidden + (3 * d + 2 * e + 1) * FOUR)


def _rows(p: Params, chosen: Any) -> Any:
    """Return the choices that belong to this rank, by expert and then by token."""
    return np.argsort(chosen.reshape(-1), kind="stable")[rows_before(p) : rows_before(p) + dispatched_rows(p)]


def _scatter_reference(p: Params, quantise: Any, x: Any, smooth: Any, chosen: Any, weights: Any) -> Any:
    rows = _rows(p, chosen)
    token = rows // p["topk"]
    here = chosen.reshape(-1)[rows]
    counts = np.bincount(here - local_experts(p).start, minlength=experts(p))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return *quantise(x[token] * smooth[here]), token, weights.reshape(-1)[rows], counts, offsets


def _scatter(p: Params, **arrays: Any) -> Any:
    return _scatter_reference(p, exact_rows, **arrays)


def _numpy_scatter(p: Params, x: Any, **rest: Any) -> Launch:
    def launch() -> Any:
        numbers, scale, token, weights, counts, offsets = _scatter_reference(
            p, numpy_rows, x.astype(np.float32), **rest
        )
        return numbers, scale, token.astype(np.int32), weights, counts.astype(np.int32), offsets.astype(np.int32)

    return launch


def _torch_scatter(p: Params, x: Any, smooth: Any, chosen: Any, weights: Any) -> Launch:
    import torch

    start, here = rows_before(p), local_experts(p)
    mine = slice(start, start + dispatched_rows(p))
    edges = torch.arange(here.start, here.stop + 1, dtype=chosen.dtype, device=chosen.device)

    def launch() -> Any:
        by_expert, order = torch.sort(chosen.reshape(-1), stable=True)
        rows = order[mine]
        token = rows // p["topk"]
        numbers, scale = torch_rows(x.index_select(0, token).float() * smooth.index_select(0, by_expert[mine]))
        offsets = torch.searchsorted(by_expert, edges, out_int32=True) - start
        return numbers, scale, token.int(), weights.reshape(-1)[rows], offsets.diff(), offsets

    return launch


SCATTER = Operator(
    name="moe_scatter_dynamic_quant",
    summary="tokens by expert, times a factor per element, in int8 with a scale per token; and their indices",
    category="moe",
    params=(*ROUTING_PARAMS, HIDDEN, dtype("float32", "float16", "bfloat16")),
    inputs=_scatter_inputs,
    cost=_scatter_cost,
    reference=_scatter,
    result_dtype=lambda _: "int8",
    observe=accept_either_neighbour(_scatter),
    presets={
        "small": {"num_tokens": 64, "num_experts": 8, "topk": 2, "hidden_size": 128},
        "typical": {"num_tokens": 512, "num_experts": 32, "topk": 4, "ep_size": 2, "hidden_size": 1024},
        "large": {"num_tokens": 16384, "num_experts": 128, "topk": 8, "ep_size": 8, "hidden_size": 4096},
    },
    rules=ROUTING_RULES,
    partial=True,
    implementations=(numpy(_numpy_scatter), torch(_torch_scatter)),
    aliases=("scatter_dynamic_quant",),
)

COMBINE_PARAMS = (
    size("sp_size", "ranks that share the residual; each adds its part", 1),
    integer("sp_rank", "the rank that is measured", 0, kind="count"),
    real("res_scale", "factor of the residual", 1.0),
)
COMBINE_RULES = (
    ENOUGH_TOKENS,
    Rule("sp_rank", "be less than sp_size={sp_size} (got {sp_rank})", lambda p: p["sp_rank"] < p["sp_size"]),
)


def residual_rows(p: Params) -> slice:
    return slice(p["sp_rank"] * tokens(p), (p["sp_rank"] + 1) * tokens(p))


def combine_inputs(p: Params, width: int, kind: str) -> dict[str, TensorSpec]:
    """Return the inputs for bringing rows back to their tokens."""
    return {
        "ids": ids_spec(p),
        "weights": TensorSpec((dispatched_rows(p),), "float32", 0.1, 1.0),
        "residual": TensorSpec((tokens(p), width), kind),
    }


def combine_rows(p: Params, rows: Any, ids: Any, weights: Any, residual: Any) -> Any:
    result = np.zeros((p["num_tokens"], rows.shape[1]), rows.dtype)
    result[residual_rows(p)] = residual * rows.dtype.type(p["res_scale"])
    np.add.at(result, ids, rows * weights[:, None])
    return result


def torch_combine_rows(p: Params, rows: Any, ids: Any, weights: Any, residual: Any, kind: Any) -> Any:
    """Combine rows, adding up in `kind`: float32 keeps digits that 16 bits would lose."""
    import torch

    result = torch.zeros(p["num_tokens"], rows.shape[1], dtype=kind, device=rows.device)
    torch.mul(residual, p["res_scale"], out=result[residual_rows(p)])
    return result.index_add_(0, ids, (rows * weights.unsqueeze(1)).to(kind))


def _gather_inputs(p: Params) -> dict[str, TensorSpec]:
    rows = TensorSpec((dispatched_rows(p), p["hidden_size"]), p["dtype"])
    return {"x": rows, **combine_inputs(p, p["hidden_size"], p["dtype"])}


def combine_flops(p: Params, width: int) -> int:
    """Count a product and a sum per element of each row, and a product per element of the residual."""
    return int((2 * dispatched_rows(p) + tokens(p)) * width)


def _gather_cost(p: Params) -> Cost:
    written = p["num_tokens"] * p["hidden_size"] * sizeof(p["dtype"])
    return Cost(combine_flops(p, p["hidden_size"]), nbytes(_gather_inputs(p).values()), written)


def _torch_gather(p: Params, x: Any, ids: Any, weights: Any, residual: Any) -> Launch:
    return lambda: torch_combine_rows(p, x, ids, weights, residual, x.dtype)


def _gather(p: Params, x: Any, ids: Any, weights: Any, residual: Any) -> Any:
    return combine_rows(p, x, ids, weights, residual)


GATHER = Operator(
    name="moe_gather",
    summary="rows of the experts back to their tokens, weighted and added up, with a residual",
    category="moe",
    params=(*ROUTING_PARAMS, *COMBINE_PARAMS, HIDDEN, dtype("float32", "float16", "bfloat16")),
    inputs=_gather_inputs,
    cost=_gather_cost,
    reference=_gather,
    # Rows are added up one by one in the type of the result.
    tolerance=Tolerance(terms=lambda p: 64 * (int(p["topk"]) + 1)),
    presets={
        "small": {"num_tokens": 64, "num_experts": 8, "topk": 2, "hidden_size": 128},
        "typical": {"num_tokens": 512, "num_experts": 32, "topk": 4, "ep_size": 2, "hidden_size": 1024},
        "large": {"num_tokens": 16384, "num_experts": 128, "topk": 8, "ep_size": 8, "hidden_size": 4096},
    },
    rules=(*ROUTING_RULES, *COMBINE_RULES),
    implementations=(formula(_gather), torch(_torch_gather, "torch.Tensor.index_add_")),
    aliases=("moe_combine",),
)

OPERATORS = (GATING, SCATTER, GATHER)
