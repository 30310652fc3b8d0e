"""Exchange of tokens with the ranks of their experts, and back, in a mixture of experts on several devices.

Every rank has `num_tokens` tokens with `topk` experts each. The experts are spread evenly over the ranks of a group,
neighbours together. The parameters determine which token goes where, so the splits are known in advance and exchanging
counts is not measured. A token with two experts on a rank is sent there twice.

The size is the number of bytes that the rank with most rows gets (or, on the way back, sends), its own rows included;
(n-1)/n of them cross a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opmark.interfaces import Exchange, Peers
from opmark.operators import _numpy as np
from opmark.operators._exchange import (
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
from opmark.schema import Cost, Params, Rule, TensorSpec, Tolerance, Traffic
from opmark.schema.dtype import is_float, sizeof
from opmark.schema.param import dtype, size

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
    Rule("topk", "be at most num_experts={num_experts} (got {topk})", lambda p: p["topk"] <= p["num_experts"]),
    Rule(
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


def _rows(p: Params, count: int) -> TensorSpec:
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


OPERATORS = [
    communication(
        "moe_dispatch",
        "each rank's tokens to the ranks of their experts: rows by destination, then all_to_all",
        _dispatch,
        params=(*_SIZES, IMBALANCE, dtype("float32", "float16", "bfloat16", "int8"), RANKS, GROUP),
        rules=_RULES,
        inputs=lambda p: {"x": _rows(p, p["num_tokens"])},
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
            "x": _rows(p, _most_rows(p)),
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
]
