"""Routing of tokens to experts: loads that follow from the parameters, and data that agrees with them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators import _moe as routing
from opmark.catalogue.operators.moe import SWIGLU
from opmark.errors import InvalidParameter


def _every_case() -> Iterator[dict[str, Any]]:
    for tokens, experts, topk, ep_size, how in product((1, 5, 16), (1, 4, 12), (1, 3), (1, 2, 4),
                                                     ("balanced", "zipf", "local")):  # fmt: skip
        if topk <= (experts // ep_size if how == "local" else experts) and experts % ep_size == 0:
            for rank in range(ep_size):
                yield {"num_tokens": tokens, "num_experts": experts, "topk": topk, "ep_size": ep_size,
                       "ep_rank": rank, "routing": how}  # fmt: skip


CASES = list(_every_case())


def _chosen(p: dict[str, Any], seed: int = 0) -> Any:
    make = routing.choices_spec(p).make
    assert make
    return make(np.random.default_rng(seed))


def _mine(p: dict[str, Any], chosen: Any) -> Any:
    here = routing.local_experts(p)
    return (chosen >= here.start) & (chosen < here.stop)


@pytest.mark.parametrize("p", CASES, ids=str)
def test_data_has_the_loads_that_were_counted_on(p: dict[str, Any]) -> None:
    chosen = _chosen(p)
    assert all(len(set(row)) == p["topk"] for row in chosen.tolist())
    loads = np.bincount(chosen.reshape(-1), minlength=p["num_experts"])[routing.local_experts(p)]
    assert tuple(loads) == routing.loads(p)
    assert routing.busy_experts(p) == (loads > 0).sum()
    assert routing.dispatched_rows(p) == _mine(p, chosen).sum()
    assert routing.distinct_tokens(p) == _mine(p, chosen).any(axis=1).sum()


@pytest.mark.parametrize("p", [p for p in CASES if routing.dispatched_rows(p)], ids=str)
def test_rows_lie_by_expert_and_then_by_token(p: dict[str, Any]) -> None:
    chosen, spec = _chosen(p), routing.ids_spec(p)
    assert spec.make
    ids = spec.make(np.random.default_rng(0))
    here = routing.local_experts(p)
    expected = [token for expert in range(here.start, here.stop) for token in np.nonzero((chosen == expert).any(1))[0]]
    assert ids.tolist() == expected
    assert len(routing.expert_of_rows(p)) == len(ids)


def test_which_token_goes_where_is_drawn() -> None:
    p = {"num_tokens": 16, "num_experts": 8, "topk": 2, "ep_size": 1, "ep_rank": 0, "routing": "balanced"}
    assert (_chosen(p, 0) != _chosen(p, 1)).any()


def test_balanced_loads_differ_by_one_at_most() -> None:
    p = {"num_tokens": 7, "num_experts": 4, "topk": 3, "ep_size": 1, "ep_rank": 0, "routing": "balanced"}
    assert routing.loads(p) == (6, 5, 5, 5)


def test_the_favourite_gets_twice_what_the_second_gets_but_no_token_twice() -> None:
    p = {"num_tokens": 600, "num_experts": 8, "topk": 1, "ep_size": 1, "ep_rank": 0, "routing": "zipf"}
    first, second, third, *_ = routing.loads(p)
    assert first / second == pytest.approx(2, rel=0.02)
    assert first / third == pytest.approx(3, rel=0.02)
    assert max(routing.loads({**p, "topk": 5})) == 600


def test_favourites_are_dealt_out_to_the_ranks() -> None:
    p = {"num_tokens": 64, "num_experts": 8, "topk": 1, "ep_size": 2, "ep_rank": 0, "routing": "zipf"}
    assert max(routing.loads(p)) > max(routing.loads({**p, "ep_rank": 1})) > sorted(routing.loads(p))[-2]


GIVEN: dict[str, Any] = {"num_tokens": 2, "num_experts": 8, "topk": 2, "hidden_size": 4}


@pytest.mark.parametrize(
    ("change", "param", "detail"),
    [
        ({"topk": 9}, "topk", "num_experts=8"),
        ({"ep_size": 3}, "ep_size", "divide num_experts=8"),
        ({"ep_size": 2, "ep_rank": 2}, "ep_rank", "ep_size=2"),
        ({"ep_size": 8, "ep_rank": 5}, "ep_rank", "rank 5 gets none"),
    ],
)
def test_what_cannot_be_routed_is_refused(change: dict[str, Any], param: str, detail: str) -> None:
    with pytest.raises(InvalidParameter, match=f"parameter `{param}` must .*{detail}"):
        SWIGLU.check_rules(SWIGLU.complete({**GIVEN, **change}))
