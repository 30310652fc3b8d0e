"""Comparisons, logical and bitwise operators: known values, and data for which the answer is not always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.binary import BITWISE, COMPARISON, LOGIC_OPERATORS, LOGICAL, TESTS
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in LOGIC_OPERATORS}
ZERO, ONE, TWO = 0.0, 1.0, 2.0

# For (1, 2), (2, 2), (2, 1).
COMPARED = {
    "equal": [False, True, False],
    "not_equal": [True, False, True],
    "greater": [False, False, True],
    "greater_equal": [False, True, True],
    "less": [True, False, False],
    "less_equal": [True, True, False],
}
# For (0, 0), (0, 2), (1, 2).
DECIDED = {"logical_and": [False, False, True], "logical_or": [False, True, True], "logical_xor": [False, True, False]}
BITS = [
    ("bitwise_and", 0b1100, 0b1010, 0b1000), ("bitwise_or", 0b1100, 0b1010, 0b1110),
    ("bitwise_xor", 0b1100, 0b1010, 0b0110), ("bitwise_left_shift", 3, 2, 12), ("bitwise_right_shift", 13, 2, 3),
]  # fmt: skip

ELSEWHERE = [
    "broadcast_equal", "broadcast_not_equal", "broadcast_greater", "broadcast_greater_equal", "broadcast_lesser",
    "broadcast_lesser_equal", "broadcast_logical_and", "broadcast_logical_or", "broadcast_logical_xor",
    "logical_not", "Lesser", "LesserEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "LogicalAnd",
    "LogicalOr", "LogicalXor", "LogicalNot", "lesser", "eq", "ne", "gt", "ge", "lt", "le",
]  # fmt: skip


@pytest.mark.parametrize("op", COMPARISON, ids=lambda op: op.name)
def test_what_a_comparison_says(op: Operator) -> None:
    found = op.reference({}, x=np.array([ONE, TWO, TWO]), y=np.array([TWO, TWO, ONE]))
    assert found.tolist() == COMPARED[op.name]


@pytest.mark.parametrize("name", DECIDED)
def test_what_a_logical_operator_says(name: str) -> None:
    found = BY_NAME[name].reference({}, x=np.array([ZERO, ZERO, ONE]), y=np.array([ZERO, TWO, TWO]))
    assert found.tolist() == DECIDED[name]


def test_what_is_zero_is_not_true() -> None:
    assert BY_NAME["logical_not"].reference({}, x=np.array([ZERO, ONE, -TWO])).tolist() == [True, False, False]


@pytest.mark.parametrize(("name", "x", "y", "expected"), BITS)
def test_bits(name: str, x: int, y: int, expected: int) -> None:
    assert BY_NAME[name].reference({}, x=np.array([x]), y=np.array([y])).tolist() == [expected]


def test_the_bits_that_a_number_does_not_have() -> None:
    op = BY_NAME["bitwise_not"]
    assert op.reference({}, x=np.array([0, 5], np.uint8)).tolist() == [255, 250]
    assert op.reference({}, x=np.array([0, 5], np.int8)).tolist() == [-1, -6]


def test_numbers_that_are_none() -> None:
    special = np.array([1.0, np.nan, np.inf, -np.inf])
    found = {op.name: op.reference({}, x=special).tolist() for op in TESTS}
    assert found == {
        "isnan": [False, True, False, False],
        "isinf": [False, False, True, True],
        "isfinite": [True, False, False, False],
    }


@pytest.mark.parametrize("op", [*COMPARISON, *LOGICAL], ids=lambda op: op.name)
def test_both_answers_are_frequent(op: Operator, torch_cpu: Any) -> None:
    for dtype in op.param("dtype").choices:
        params = op.complete({"shape": [4000], "dtype": dtype})
        specs = op.inputs(params).items()
        arrays = {name: torch_cpu.to_numpy(torch_cpu.tensor(spec, seed)) for seed, (name, spec) in enumerate(specs)}
        assert 0.04 < op.reference(params, **arrays).mean() < 0.96


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_other_systems_are_known(name: str) -> None:
    assert operator(name) in LOGIC_OPERATORS


@pytest.mark.parametrize("op", [*COMPARISON, *LOGICAL[:-1]], ids=lambda op: op.name)
def test_an_answer_takes_a_byte_an_element(op: Operator) -> None:
    params = op.complete({"shape": [2, 3], "dtype": "float64"})
    assert op.cost(params) == Cost(0, 96, 6)
    assert op.cost({**params, "y": "row"}) == Cost(0, 72, 6)
    assert op.result_dtype(params) == "bool"
    assert op.why_no_phase(params, "backward")


@pytest.mark.parametrize("op", BITWISE, ids=lambda op: op.name)
def test_bits_are_those_of_whole_numbers(op: Operator) -> None:
    assert op.param("dtype").default == "int32"
    assert "float32" not in op.param("dtype").choices


def test_a_shift_stays_in_the_smallest_type() -> None:
    op = BY_NAME["bitwise_left_shift"]
    specs = op.inputs(op.complete({"shape": [3], "dtype": "int8"}))
    assert (int(specs["x"].high) - 1) << (int(specs["y"].high) - 1) <= 127
