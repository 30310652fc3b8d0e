"""store_kv_cache: new tokens in their places, nothing else changed, and only that counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators._attention import Sequences
from opmark.catalogue.operators.kv_cache import STORE
from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin.registry import operator
from opmark.schema import Cost
from opmark.worker.verify.outputs import check_outputs

HEADS: dict[str, Any] = {"q_heads": 3, "kv_heads": 2, "head_dim": 2}
DIFFERENT = {**HEADS, "batch": 3, "q_lens": [3, 1, 2], "cache_lens": [2, 0, 3]}
VARIANTS = [
    DIFFERENT,
    {**DIFFERENT, "block_size": 4},
    {**DIFFERENT, "block_size": 4, "cache_dtype": "int8"},
    {**DIFFERENT, "store_mode": "k", "cache_dtype": "int8"},
    {**DIFFERENT, "store_mode": "v"},
    {**HEADS, "batch": 2, "q_len": 3, "cache_len": 2},
]
every_variant = pytest.mark.parametrize("given", VARIANTS, ids=str)
FRAMEWORKS = ("numpy", "torch")


def _tensors(params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.tensor(spec, i) for i, (name, spec) in enumerate(STORE.inputs(params).items())}


def _new_places(params: dict[str, Any], table: Any) -> set[tuple[int, int]]:
    rows, places = Sequences.of(params).positions()
    block = params["block_size"]
    pairs = zip(rows, places, strict=True)
    return {(int(table[row, at // block]), at % block) if block else (row, at) for row, at in pairs}


@every_variant
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_exactly_the_new_places_are_written(given: dict[str, Any], framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    params = STORE.complete(given)
    tensors = _tensors(params, live)
    table = live.to_numpy(tensors["block_table"]) if params["block_size"] else None
    before = {name: np.array(live.to_numpy(tensors[name])) for name in ("k_cache", "v_cache")}
    (implementation,) = STORE.implementations_for(framework)
    outputs = implementation.build(params, **tensors)()
    for name, output in zip(("k", "v"), outputs, strict=True):
        assert output is tensors[f"{name}_cache"]
        changed = (live.to_numpy(output) != before[f"{name}_cache"]).any(axis=(1, 3))
        found = {(int(row), int(at)) for row, at in np.argwhere(changed)}
        assert found == (_new_places(params, table) if params["store_mode"] in ("both", name) else set())


@every_variant
def test_the_queries_are_not_read(given: dict[str, Any], bytes_read: Any) -> None:
    params = STORE.complete(given)
    names = [name for name in STORE.inputs(params) if name not in ("block_table", "k_cache", "v_cache")]
    pages = Sequences.of(params).new_pages if params["block_size"] else 0
    assert STORE.cost(params).bytes_read == bytes_read(STORE, params, *names) + 4 * pages


def test_cost_by_hand() -> None:
    """6 tokens of 2 heads of 2 elements, keys and values: 48 elements, and steps for 4 elements of each."""
    params = STORE.complete({**DIFFERENT, "dtype": "bfloat16"})
    assert STORE.cost(params) == Cost(0, 96, 96)
    assert STORE.cost({**params, "store_mode": "v"}) == Cost(0, 48, 48)
    assert STORE.cost({**params, "cache_dtype": "int8"}) == Cost(48, 96 + 2 * 16, 48)
    # Pages of 4: tokens 2 to 4 of the first sequence lie in two of them, 0 in one, 3 and 4 in two.
    assert STORE.cost({**params, "block_size": 4}) == Cost(0, 96 + 5 * 4, 96)


def test_half_a_step_is_right_and_a_step_is_wrong(numpy_cpu: Any) -> None:
    params = STORE.complete({**DIFFERENT, "cache_dtype": "int8"})
    tensors = _tensors(params, numpy_cpu)
    arrays = {name: np.array(numpy_cpu.to_numpy(tensor)) for name, tensor in tensors.items()}
    (implementation,) = STORE.implementations_for("numpy")
    k, v = implementation.build(params, **tensors)()
    check_outputs(STORE, params, (k, v), arrays)
    v[0, 0, 2, 0] += 1
    with pytest.raises(WrongResult, match="output 1"):
        check_outputs(STORE, params, (k, v), arrays)


def test_lengths_of_too_few_sequences_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="parameter `q_lens` must be a list of batch=3 numbers"):
        STORE.check_rules(STORE.complete({**DIFFERENT, "q_lens": [1, 2]}))


def test_the_paged_one_is_the_same_operator() -> None:
    assert operator("store_paged_kv_cache") is STORE
