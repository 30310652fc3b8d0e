"""Routing of tokens to experts. The parameters determine the load of each expert, so that the cost is exact.

Each token goes to `topk` different experts. How many tokens an expert gets does not depend on data; which tokens is
random. Each rank of an expert-parallel group holds num_experts / ep_size neighbouring experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.plugin import ParamRule, Params
from opmark.plugin.param import choice, integer, size
from opmark.schema import TensorSpec

ROUTING_PARAMS = (
    size("num_tokens", "tokens of all ranks"),
    size("num_experts", "experts of all ranks"),
    size("topk", "experts per token"),
    size("ep_size", "ranks that share the experts; one rank's work is measured", 1),
    integer("ep_rank", "the rank that is measured", 0, kind="count"),
    choice("routing", "balanced: equally many tokens for each expert; zipf: the n-th favourite gets 1/n of what the "
           "first gets; favourites are distributed over the ranks in turn; local: all experts of a token are on one "
           "rank, which has its share of the tokens", ("balanced", "zipf", "local"), "balanced"),
)  # fmt: skip


def _has_work(p: Params) -> bool:
    return not _sizes_fit(p) or dispatched_rows(p) > 0


def _sizes_fit(p: Params) -> bool:
    return all(rule.holds(p) for rule in _SIZES_FIT)


_SIZES_FIT = (
    ParamRule("topk", "be at most num_experts={num_experts} (got {topk})", lambda p: p["topk"] <= p["num_experts"]),
    ParamRule("ep_size", "divide num_experts={num_experts} (got {ep_size})",
         lambda p: p["num_experts"] % p["ep_size"] == 0),
    ParamRule("ep_rank", "be less than ep_size={ep_size} (got {ep_rank})", lambda p: p["ep_rank"] < p["ep_size"]),
    ParamRule("topk", "be at most the experts of a rank where routing is local (got {topk}, with "
         "num_experts={num_experts} and ep_size={ep_size})",
         lambda p: p["routing"] != "local" or p["topk"] * p["ep_size"] <= p["num_experts"]),
)  # fmt: skip
ROUTING_RULES = (
    *_SIZES_FIT,
    ParamRule("ep_rank", "be a rank with tokens; with num_tokens={num_tokens} and topk={topk}, rank {ep_rank} gets "
         "none", _has_work),
)  # fmt: skip


@lru_cache(maxsize=64)
def _loads(tokens: int, experts: int, topk: int, ep_size: int, routing: str) -> tuple[int, ...]:
    """Return the tokens of each expert: tokens x topk in all, at most `tokens` each."""
    total, each = tokens * topk, experts // ep_size
    if routing == "local":
        by_rank = (topk * _tokens_of_rank(tokens, ep_size, rank) for rank in range(ep_size))
        return tuple(rows // each + (i < rows % each) for rows in by_rank for i in range(each))
    if routing == "balanced":
        by_favour = [total // experts + (i < total % experts) for i in range(experts)]
    else:
        by_favour = _shares(total, tokens, [1 / (i + 1) for i in range(experts)])
    loads = [0] * experts
    for favour, load in enumerate(by_favour):
        loads[favour % ep_size * each + favour // ep_size] = load
    return tuple(loads)


def _tokens_of_rank(tokens: int, ranks: int, rank: int) -> int:
    """Return a rank's share of the tokens; the last ranks have one more where they cannot be divided equally."""
    return tokens // ranks + (rank >= ranks - tokens % ranks)


def _shares(total: int, most: int, weights: Sequence[float]) -> list[int]:
    """Divide `total` by decreasing weights into integers of at most `most`."""
    shares: list[int] = []
    left, weight = total, sum(weights)
    for i, own in enumerate(weights):
        after = len(weights) - i - 1
        fair = int(left * own / weight + 0.5) if after else left
        share = max(min(fair, most, left), left - after * most)
        shares.append(share)
        left, weight = left - share, weight - own
    return shares


def all_loads(p: Params) -> tuple[int, ...]:
    return _loads(p["num_tokens"], p["num_experts"], p["topk"], p["ep_size"], p["routing"])


def local_experts(p: Params) -> slice:
    """Return the experts of this rank."""
    each = p["num_experts"] // p["ep_size"]
    return slice(p["ep_rank"] * each, (p["ep_rank"] + 1) * each)


def loads(p: Params) -> tuple[int, ...]:
    """Return the tokens of each expert of this rank."""
    return all_loads(p)[local_experts(p)]


def experts(p: Params) -> int:
    """Return the number of experts of this rank."""
    return len(loads(p))


def dispatched_rows(p: Params) -> int:
    """Return the rows that this rank computes: a token counts once for each of its experts here."""
    return sum(loads(p))


def rows_before(p: Params) -> int:
    """Return the rows of the experts of lower ranks."""
    return sum(all_loads(p)[: local_experts(p).start])


def busy_experts(p: Params) -> int:
    """Return the number of experts of this rank that have tokens; the weights of others are not read."""
    return sum(load > 0 for load in loads(p))


def spans(p: Params) -> list[tuple[int, slice]]:
    """Return (expert of this rank, its rows) for each expert with tokens; rows are in the order of experts."""
    found, start = [], 0
    for expert, load in enumerate(loads(p)):
        if load:
            found.append((expert, slice(start, start + load)))
        start += load
    return found


def distinct_tokens(p: Params) -> int:
    """Return the number of tokens with an expert on this rank. Rows of neighbouring experts go to one token after the
    other (see `_by_slots`), so that no token comes twice before each has come once."""
    if p["routing"] == "local":
        return _tokens_of_rank(p["num_tokens"], p["ep_size"], p["ep_rank"])
    return int(min(p["num_tokens"], dispatched_rows(p)))


def _by_slots(p: Params) -> Any:
    """Return experts[token, choice]: the experts' rows are dealt to the tokens in turn, those of a rank to its own
    tokens where routing is local. An expert has at most as many rows as there are tokens, so that no token gets an
    expert twice."""
    slots = np.repeat(np.arange(p["num_experts"]), all_loads(p))
    if p["routing"] != "local":
        return slots.reshape(p["topk"], p["num_tokens"]).T
    shares = [_tokens_of_rank(p["num_tokens"], p["ep_size"], rank) for rank in range(p["ep_size"])]
    by_rank = np.split(slots, np.cumsum(shares)[:-1] * p["topk"])
    return np.concatenate([rows.reshape(p["topk"], -1).T for rows in by_rank])


def _draw_choices(p: Params, generator: Any) -> Any:
    """Shuffle the tokens, and the choices of each token."""
    return generator.permuted(generator.permutation(_by_slots(p)), axis=1)


def choices_spec(p: Params) -> TensorSpec:
    """Return the spec of experts[token, choice]."""
    return TensorSpec((p["num_tokens"], p["topk"]), "int32", 0, max(2, p["num_experts"]), partial(_draw_choices, p))


def _token_ids(p: Params, generator: Any) -> Any:
    """Return the token of each row of this rank, in rising order within an expert."""
    chosen = _draw_choices(p, generator)
    order = np.argsort(chosen.reshape(-1), kind="stable") // p["topk"]
    return order[rows_before(p) : rows_before(p) + dispatched_rows(p)]


def ids_spec(p: Params) -> TensorSpec:
    """Return the spec of the token of each row of this rank."""
    return TensorSpec((dispatched_rows(p),), "int32", 0, max(2, p["num_tokens"]), partial(_token_ids, p))


def expert_of_rows(p: Params) -> Any:
    return _repeat_indices(loads(p))


@lru_cache(maxsize=16)
def _repeat_indices(counts: tuple[int, ...]) -> Any:
    """Cached: a launch that needs it should not be timed computing it."""
    return np.repeat(np.arange(len(counts)), counts)
