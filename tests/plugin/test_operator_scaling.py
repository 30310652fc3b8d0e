"""Resizing a case: within the rules and near the target, or None."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from math import log, prod
from typing import Any

import pytest
from each_case import each_case
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.plugin import Operator, ParamRule
from opmark.plugin.operator import count_elements, resize, resize_to_elements, rules_allow, size_places
from opmark.plugin.param import dtype, integer, shape, size
from opmark.plugin.registry import catalogue, operator
from opmark.schema import Cost, TensorSpec

SIZES = {"size", "bytes", "shape", "count", "counts"}
TARGETS = [10**power for power in range(3, 9)]


def toy(*rules: ParamRule, cost: Callable[[Mapping[str, Any]], Cost] | None = None) -> Operator:
    """Return an operator with a vector of n and a matrix as inputs and a vector of n as output."""
    return Operator(
        name="toy",
        summary="for tests",
        category="test",
        params=(
            size("n", "elements"),
            shape("shape", "of the matrix"),
            integer("groups", "parts", 1, kind="count"),
            dtype("float32"),
        ),
        inputs=lambda p: {"x": TensorSpec((p["n"],), p["dtype"]), "y": TensorSpec(tuple(p["shape"]), p["dtype"])},
        cost=cost or (lambda p: Cost(p["n"], 4 * (p["n"] + prod(p["shape"])), 4 * p["n"])),
        reference=lambda p, x, y: x,
        presets={"typical": {"n": 64, "shape": [8, 8]}},
        implementations=(),
        rules=rules,
    )


def start(op: Operator, **given: Any) -> dict[str, Any]:
    return op.complete({**op.preset("typical"), **given})


# What there is to change


def test_elements_are_those_that_go_in_and_come_out() -> None:
    op = toy()
    assert count_elements(op, start(op)) == 64 + 64 + 64
    assert count_elements(op, start(op, n=10, shape=[3, 5])) == 10 + 15 + 10


def test_sizes_and_every_side_of_a_shape_are_places_and_a_count_of_one_is_not() -> None:
    op = toy()
    assert size_places(op, start(op)) == {("n", None): 64, ("shape", 0): 8, ("shape", 1): 8}
    assert size_places(op, start(op, groups=2)) == {
        ("n", None): 64,
        ("shape", 0): 8,
        ("shape", 1): 8,
        ("groups", None): 2,
    }


def test_element_types_flags_and_numbers_are_no_places() -> None:
    op = operator("layer_norm")
    found = {name for name, _ in size_places(op, op.complete(op.preset("typical")))}
    assert found == {param.name for param in op.params if param.kind in ("size", "shape")}


def test_only_what_is_named_is_resized_and_the_original_stays() -> None:
    op = toy()
    params = start(op)
    before = copy.deepcopy(params)
    assert resize(params, [("n", None), ("shape", 1)], lambda n: 2 * n) == {**before, "n": 128, "shape": [8, 16]}
    assert resize(params, [("shape", 0), ("shape", 1)], lambda n: n + 1)["shape"] == [9, 9]
    assert resize(params, [], lambda n: 0) == before
    assert params == before


def test_what_a_rule_forbids_is_not_allowed() -> None:
    op = toy(ParamRule("n", "be even", lambda p: p["n"] % 2 == 0))
    assert rules_allow(op, start(op, n=2))
    assert not rules_allow(op, start(op, n=3))


# In another size


def near(op: Operator, params: Mapping[str, Any], target: int) -> bool:
    return 0.25 <= target / count_elements(op, dict(params)) <= 4


def test_a_size_that_fits_already_stays() -> None:
    op = toy()
    assert resize_to_elements(op, start(op), 192) == start(op)


@given(st.integers(10, 10**9), st.lists(st.integers(1, 300), min_size=1, max_size=4))
@settings(deadline=None)
def test_without_rules_every_number_of_elements_is_met_within_a_factor_of_two(target: int, sides: list[int]) -> None:
    op = operator("exp")
    found = resize_to_elements(op, op.complete({"shape": sides}), target)
    assert found is not None
    assert len(found["shape"]) == len(sides)
    assert 0.5 <= target / count_elements(op, found) <= 2


@given(st.integers(1, 10**9), st.integers(1, 5000), st.lists(st.integers(1, 300), min_size=1, max_size=4))
@settings(deadline=None)
def test_what_is_found_is_never_further_away_than_the_start(target: int, n: int, sides: list[int]) -> None:
    op = toy()
    params = start(op, n=n, shape=sides)
    found = resize_to_elements(op, params, target)
    if found is not None:
        assert near(op, found, target)
        assert abs(log(target / count_elements(op, found))) <= abs(log(target / count_elements(op, params)))
    else:
        assert not near(op, params, target)


@given(st.integers(1, 10**9), st.integers(1, 200), st.integers(1, 3))
@settings(deadline=None)
def test_whatever_is_found_keeps_the_rules_and_is_near(target: int, n: int, divisor: int) -> None:
    op = toy(
        ParamRule("n", "be at most the first side", lambda p: p["n"] <= p["shape"][0]),
        ParamRule("shape", "be square", lambda p: len(set(p["shape"])) == 1),
        ParamRule("n", "be a multiple", lambda p: p["n"] % divisor == 0),
    )
    params = start(op, n=n * divisor, shape=[4 * n * divisor] * 2)
    before = copy.deepcopy(params)
    found = resize_to_elements(op, params, target)
    assert params == before
    if found is not None:
        op.check_rules(found)
        assert near(op, found, target)
        assert found["shape"][0] == found["shape"][1]


def test_sizes_that_a_rule_ties_together_go_together() -> None:
    op = toy(ParamRule("shape", "be square", lambda p: len(set(p["shape"])) == 1))
    found = resize_to_elements(op, start(op, n=1), 10**6)
    assert found is not None
    assert found["shape"][0] == found["shape"][1] > 8


@pytest.mark.parametrize("target", [1, 10**6])
def test_an_operator_that_does_not_come_in_a_size_is_none(target: int) -> None:
    op = toy(ParamRule("n", "stay", lambda p: p["n"] == 64), ParamRule("shape", "stay", lambda p: p["shape"] == [8, 8]))
    assert resize_to_elements(op, start(op), target) is None
    assert resize_to_elements(op, start(op), 200) == start(op)


def test_what_would_compute_for_ever_is_none() -> None:
    op = toy(cost=lambda p: Cost(p["n"] ** 3, 4 * p["n"], 4 * p["n"]))
    stuck = ParamRule("shape", "stay", lambda p: p["shape"] == [8, 8])
    op = toy(stuck, cost=op.cost)
    assert resize_to_elements(op, start(op), 10**4) is not None
    assert resize_to_elements(op, start(op), 10**8) is None


def test_a_cost_without_operations_is_no_obstacle() -> None:
    op = toy(cost=lambda p: Cost(None, 4 * p["n"], 4 * p["n"]))
    assert resize_to_elements(op, start(op), 10**8) is not None


def test_the_smaller_side_grows_and_the_larger_one_shrinks_first() -> None:
    op = operator("exp")
    tall = op.complete({"shape": [1024, 16]})
    assert resize_to_elements(op, tall, 2 * 1024 * 64) == {**tall, "shape": [1024, 64]}
    assert resize_to_elements(op, tall, 2 * 256 * 16) == {**tall, "shape": [256, 16]}


# The catalogue


SWEPT = [op.name for op in catalogue().values() if "typical" in op.presets]


def test_every_operator_in_every_size_keeps_its_rules_and_all_that_is_no_size() -> None:
    with each_case() as case:
        for name in SWEPT:
            with case(name):
                check_every_size_keeps_the_rules_and_all_that_is_no_size(operator(name))


def check_every_size_keeps_the_rules_and_all_that_is_no_size(op: Operator) -> None:
    typical = op.complete(op.preset("typical"))
    before = copy.deepcopy(typical)
    for target in TARGETS:
        found = resize_to_elements(op, typical, target)
        assert typical == before
        if found is None:
            continue
        given = {name: op.param(name).check(value) for name, value in found.items() if value is not None}
        assert op.complete(given) == found
        op.check_rules(found)
        assert near(op, found, target)
        assert {p.name: found.get(p.name) for p in op.params if p.kind not in SIZES} == {
            p.name: typical.get(p.name) for p in op.params if p.kind not in SIZES
        }


@pytest.mark.parametrize("name", ["exp", "add", "matmul", "softmax", "layer_norm", "conv2d", "reduce_sum", "embedding"])
def test_the_usual_operators_come_in_every_size(name: str) -> None:
    op = operator(name)
    assert all(resize_to_elements(op, op.complete(op.preset("typical")), target) for target in TARGETS[1:-1])
