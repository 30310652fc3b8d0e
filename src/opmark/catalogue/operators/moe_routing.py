"""Routing in a mixture of experts: scores, scattering of tokens to the experts and gathering, on one device or between
ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import formula, numpy, torch
from opmark.catalogue.operators._communication import (
    GROUP,
    IMBALANCE,
    RANKS,
    by_rank,
    communication,
    divide,
    exchange,
    group_size,
    others_factor,
    spans,
)
from opmark.catalogue.operators._moe import (
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
from opmark.catalogue.operators._quantization import (
    QUANTIZED,
    Rounded8,
    accept_either_neighbour,
    exact_rows,
    numpy_rows,
    quantized,
    torch_rows,
)
from opmark.catalogue.operators.llm_norm import ENOUGH_TOKENS, HIDDEN, TOKENS, tokens
from opmark.plugin import Exchange, Launch, Operator, ParamRule, Params, Peers, Tolerance
from opmark.plugin.operator import sum_of_products
from opmark.plugin.param import choice, dtype, integer, real, size
from opmark.schema import Cost, TensorSpec, Traffic
from opmark.schema.cost import nbytes
from opmark.schema.tensor import is_float, sizeof

FOUR = sizeof("float32")
EXPERTS = size("num_experts", "experts of all ranks")


def _gate_is_wide(p: Params) -> bool:
    return "float32" in (p["dtype"], p.get("gate_dtype", "float32"))


def _gating_inputs(p: Params) -> dict[str, TensorSpec]:
    hidden = p["hidden_size"]
    return {
        "x": TensorSpec((tokens(p), hidden), p["dtype"]),
        "weight": TensorSpec((p["num_experts"], hidden), "float32" if _gate_is_wide(p) else p["dtype"]),
    }


def _gating_cost(p: Params) -> Cost:
    logits = tokens(p) * p["num_experts"]
    return Cost(2 * logits * p["hidden_size"], nbytes(_gating_inputs(p).values()), logits * FOUR)


def _torch_gating(p: Params, x: Any, weight: Any) -> Launch:
    from torch.nn.functional import linear

    return (lambda: linear(x.float(), weight)) if _gate_is_wide(p) else (lambda: linear(x, weight).float())


def _gating(p: Params, x: Any, weight: Any) -> Any:
    return x @ weight.T


GATING = Operator(
    name="moe_gating_gemm",
    summary="a float32 score of each token for each expert",
    category="moe",
    params=(
        *TOKENS,
        HIDDEN,
        EXPERTS,
        choice(
            "gate_dtype",
            "element type of the weights; same: as dtype, and so is the product before it becomes float32",
            ("float32", "same"),
            "float32",
            later=True,
        ),
        dtype("float32", "float16", "bfloat16"),
    ),
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
    return _scatter_reference(p, lambda rows: exact_rows(rows, quantized(p)), **arrays)


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
        values = x.index_select(0, token).float() * smooth.index_select(0, by_expert[mine])
        numbers, scale = torch_rows(values, quantized(p))
        offsets = torch.searchsorted(by_expert, edges, out_int32=True) - start
        return numbers, scale, token.int(), weights.reshape(-1)[rows], offsets.diff(), offsets

    return launch


SCATTER = Operator(
    name="moe_scatter_dynamic_quant",
    summary="tokens by expert, times a factor per element, in 8 bits with a scale per token; and their indices",
    category="moe",
    params=(*ROUTING_PARAMS, HIDDEN, QUANTIZED, dtype("float32", "float16", "bfloat16")),
    inputs=_scatter_inputs,
    cost=_scatter_cost,
    reference=_scatter,
    result_dtype=quantized,
    further_dtypes=lambda _: ("float32", "int32", "float32", "int32", "int32"),
    tolerance=Rounded8(),
    observe=accept_either_neighbour(_scatter, kind=quantized),
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
    ParamRule("sp_rank", "be less than sp_size={sp_size} (got {sp_rank})", lambda p: p["sp_rank"] < p["sp_size"]),
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


# Exchange of tokens with the ranks of their experts, and back, in a mixture of experts on several devices.

Inputs = Sequence[dict[str, Any]]
Table = tuple[tuple[int, ...], ...]

_SIZES = (
    size("num_tokens", "tokens of each rank"),
    size("hidden_size", "numbers a token"),
    size("num_experts", "experts of all ranks of a group"),
    size("topk", "experts per token"),
)
_PRESETS = {
    name: dict(zip(("num_tokens", "hidden_size", "num_experts", "topk"), sizes, strict=True))
    for name, sizes in (("small", (64, 32, 8, 2)), ("typical", (1024, 2048, 64, 6)), ("large", (2048, 7168, 256, 8)))
}
_RULES = (
    ParamRule("topk", "be at most num_experts={num_experts} (got {topk})", lambda p: p["topk"] <= p["num_experts"]),
    ParamRule(
        "num_experts",
        "be a multiple of the ranks of a group (got {num_experts} with ranks={ranks}, group={group})",
        lambda p: p["ranks"] < 1 or p["num_experts"] % group_size(p) == 0,
    ),
)

# Number of rows from rank to rank


def _loads(p: Params, rank: int) -> tuple[int, ...]:
    """Return the rows that a rank has for each expert; no expert gets a token twice."""
    rows = p["num_tokens"] * p["topk"]
    return divide(rows, p["num_experts"], float(p["imbalance"]), rank, least=0, most=p["num_tokens"])


def sent_rows(p: Params) -> Table:
    """Return the number of rows by [from][to]."""
    return _sent_rows(p["num_tokens"], p["num_experts"], p["topk"], float(p["imbalance"]), group_size(p))


@lru_cache(maxsize=64)
def _sent_rows(tokens: int, experts: int, topk: int, imbalance: float, ranks: int) -> Table:
    p = {"num_tokens": tokens, "num_experts": experts, "topk": topk, "imbalance": imbalance}
    each = experts // ranks
    loads = [_loads(p, rank) for rank in range(ranks)]
    return tuple(tuple(sum(row[to * each : (to + 1) * each]) for to in range(ranks)) for row in loads)


def got_rows(p: Params, rank: int) -> list[int]:
    """Return the number of rows that a rank gets, by the rank that sends them."""
    return [row[rank] for row in sent_rows(p)]


def _most_rows(p: Params) -> int:
    return max(sum(got_rows(p, rank)) for rank in range(group_size(p)))


def order(p: Params, rank: int) -> Any:
    """Return flat indices of [token, choice], sorted by expert: the order in which rows are sent. The rows of an expert
    belong to successive tokens, so that no token gets it twice."""
    slots = np.repeat(np.arange(p["num_experts"]), _loads(p, rank))
    return np.argsort(slots.reshape(p["topk"], p["num_tokens"]).T.reshape(-1), kind="stable")


def _exchanged_rows(p: Params, count: int) -> TensorSpec:
    domain = (-1.0, 1.0) if is_float(p["dtype"]) else (-128, 128)
    return TensorSpec((count, p["hidden_size"]), p["dtype"], *domain)


def _nbytes(p: Params, rows: int) -> int:
    return int(rows * p["hidden_size"] * sizeof(p["dtype"]))


def _traffic(p: Params) -> Traffic:
    moved, n = _nbytes(p, _most_rows(p)), group_size(p)
    return Traffic(moved, moved * others_factor(n), n)


# Dispatch


def _dispatch_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    got = []
    for sender, x in enumerate(by_rank(inputs)):
        part = spans(sent_rows(p)[sender])[rank]
        got.append(x[order(p, sender)[part] // p["topk"]])
    return (np.concatenate(got),)


def _dispatch(p: Params, peers: Peers, x: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    tokens = torch.from_numpy(order(p, peers.rank) // p["topk"]).to(x.device)
    splits = {"output_split_sizes": got_rows(p, peers.rank), "input_split_sizes": list(sent_rows(p)[peers.rank])}
    rows = x.new_empty(len(tokens), p["hidden_size"])
    out = x.new_empty(sum(splits["output_split_sizes"]), p["hidden_size"])

    def begin(later: bool) -> Any:
        torch.index_select(x, 0, tokens, out=rows)
        return dist.all_to_all_single(out, rows, group=peers.group, **splits)

    return exchange(p, begin, lambda: (out,))


# Combine


def _combine_reference(p: Params, rank: int, inputs: Inputs) -> tuple[Any, ...]:
    back = [x[spans(got_rows(p, holder))[rank]] for holder, x in enumerate(by_rank(inputs))]
    placed = np.empty((p["num_tokens"] * p["topk"], p["hidden_size"]))
    placed[order(p, rank)] = np.concatenate(back)
    weighted = placed.reshape(p["num_tokens"], p["topk"], -1) * inputs[rank]["weights"][:, :, None]
    return (weighted.sum(axis=1),)


def _combine(p: Params, peers: Peers, x: Any, weights: Any) -> Exchange:
    import torch
    import torch.distributed as dist

    places = torch.from_numpy(np.argsort(order(p, peers.rank))).to(x.device)
    splits = {"output_split_sizes": list(sent_rows(p)[peers.rank]), "input_split_sizes": got_rows(p, peers.rank)}
    rows = x[: sum(splits["input_split_sizes"])]
    back, chosen = (x.new_empty(len(places), p["hidden_size"]) for _ in range(2))
    by_choice, factors = chosen.view(p["num_tokens"], p["topk"], -1), weights.unsqueeze(2)
    out = x.new_empty(p["num_tokens"], p["hidden_size"])

    def begin(later: bool) -> None:
        dist.all_to_all_single(back, rows, group=peers.group, **splits)
        torch.index_select(back, 0, places, out=chosen)
        torch.sum(by_choice.mul_(factors), 1, out=out)

    return exchange(p, begin, lambda: (out,))


OPERATORS = (
    GATING,
    SCATTER,
    GATHER,
    communication(
        "moe_dispatch",
        "each rank's tokens to the ranks of their experts: rows by destination, then all_to_all",
        _dispatch,
        params=(*_SIZES, IMBALANCE, dtype("float32", "float16", "bfloat16", "int8"), RANKS, GROUP),
        rules=_RULES,
        inputs=lambda p: {"x": _exchanged_rows(p, p["num_tokens"])},
        cost=lambda p: Cost(None, _nbytes(p, p["num_tokens"]), _nbytes(p, _most_rows(p)), _traffic(p)),
        reference=_dispatch_reference,
        presets=_PRESETS,
        aliases=("moe_dispatch_tokens",),
    ),
    communication(
        "moe_all_combine",
        "rows of the experts back to the ranks of their tokens by all_to_all, there weighted and added up",
        _combine,
        params=(*_SIZES, IMBALANCE, dtype("float32", "float16", "bfloat16"), RANKS, GROUP),
        rules=_RULES,
        inputs=lambda p: {
            "x": _exchanged_rows(p, _most_rows(p)),
            "weights": TensorSpec((p["num_tokens"], p["topk"]), p["dtype"], 0.0, 1.0),
        },
        cost=lambda p: Cost(
            None,
            _nbytes(p, _most_rows(p)) + p["num_tokens"] * p["topk"] * sizeof(p["dtype"]),
            _nbytes(p, p["num_tokens"]),
            _traffic(p),
        ),
        reference=_combine_reference,
        tolerance=Tolerance(terms=lambda p: 64 * p["topk"]),
        presets=_PRESETS,
    ),
)
