"""Decompositions and least squares."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.linalg import (
    DECOMPOSITION_OPERATORS,
    EIGVALSH,
    LQ,
    LSTSQ,
    QR,
    SVDVALS,
    gebrd,
    geqrf,
    orgqr,
    sytrd,
)
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Cost


def _matrices(op: Operator, live: Any, **given: Any) -> Any:
    return live.tensor(op.inputs(op.complete({"dtype": "float64", **given}))["a"], 0)


@pytest.mark.parametrize("m", [1, 4, 9, 32])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_formulas_are_whole_numbers(m: int, n: int) -> None:
    """Integer division loses nothing if the sum divides, and rounds the leading terms otherwise."""
    x = Fraction(n)
    assert geqrf(m, n) == 2 * m * x**2 - 2 * x**3 / 3 + m * x + x**2 + 14 * x / 3
    assert orgqr(m, n) == 2 * m * x**2 - 2 * x**3 / 3 + 2 * x**2 - m * x - 4 * x / 3
    assert abs(gebrd(m, n) - (4 * m * x**2 - 4 * x**3 / 3)) < 1
    assert abs(sytrd(n) - 4 * x**3 / 3) < 1


def test_cost_by_hand() -> None:
    params = QR.complete({"batch": 2, "m": 4, "n": 3})
    # 72 - 18 + 12 + 9 + 14 for the factors, 72 - 18 + 18 - 12 - 4 for q; q has 12 elements, r 9.
    assert QR.cost(params) == Cost(2 * (89 + 56), 96, 168)
    assert QR.phase_cost(params, "backward") == Cost(2 * (180 + 27), 96 + 2 * 168, 96)
    # One half of a symmetric matrix says it all: 6 of 9 elements.
    assert EIGVALSH.cost(EIGVALSH.complete({"n": 3})) == Cost(36, 24, 12)
    assert SVDVALS.cost(SVDVALS.complete({"m": 4, "n": 3})) == Cost(144 - 36, 48, 12)


@pytest.mark.parametrize("op", [op for op in DECOMPOSITION_OPERATORS if op.rules], ids=lambda op: op.name)
def test_fewer_rows_than_columns_are_refused_by_name(op: Operator) -> None:
    given = {"m": 3, "n": 4} | ({"k": 1} if "k" in op.by_name else {})
    with pytest.raises(InvalidParameter, match="parameter `m` must be at least n 4"):
        op.check_rules(op.complete(given))


def test_a_matrix_is_lower_triangle_times_orthogonal_rows(numpy_cpu: Any) -> None:
    a = _matrices(LQ, numpy_cpu, batch=2, m=7, n=4)
    q, low = LQ.reference({}, a=a)
    assert (q.shape, low.shape) == ((2, 4, 7), (2, 4, 4))
    np.testing.assert_allclose(low @ q, a, atol=1e-14)
    np.testing.assert_allclose(q @ np.swapaxes(q, -1, -2), [np.eye(4)] * 2, atol=1e-14)
    assert (np.triu(low, 1) == 0).all()


@pytest.mark.parametrize(
    ("op", "given"), [(SVDVALS, {"m": 9, "n": 6}), (EIGVALSH, {"n": 6}), (SVDVALS, {"m": 1, "n": 1})]
)
def test_values_that_are_looked_for_are_well_apart(op: Operator, given: dict[str, int], numpy_cpu: Any) -> None:
    """They lie between 1 and 3, with gaps of at least 0.6 of even spacing: equal values have no derivative."""
    values = np.sort(op.reference({}, a=_matrices(op, numpy_cpu, batch=5, **given)), axis=-1)
    assert (values > 0.999).all()
    assert (values < 3).all()
    assert (np.diff(values, axis=-1) > 0.59 * 2 / given["n"]).all()


def test_other_data_has_other_values(numpy_cpu: Any) -> None:
    """Otherwise a cached result could not be told from a computed one."""
    spec = EIGVALSH.inputs(EIGVALSH.complete({"n": 6}))["a"]
    one, other = (EIGVALSH.reference({}, a=numpy_cpu.tensor(spec, seed)) for seed in (0, 1))
    assert np.abs(one - other).max() > 0.01


def test_what_is_left_of_least_squares_is_at_right_angles_to_the_columns(numpy_cpu: Any) -> None:
    params = LSTSQ.complete({"m": 9, "n": 4, "k": 2, "dtype": "float64"})
    a, b = (numpy_cpu.tensor(spec, i) for i, spec in enumerate(LSTSQ.inputs(params).values()))
    left = a @ LSTSQ.reference(params, a=a, b=b) - b
    np.testing.assert_allclose(np.swapaxes(a, -1, -2) @ left, 0, atol=1e-13)
    assert np.abs(left).max() > 0.01


@pytest.mark.parametrize(("alias", "op"), [("linalg_gelqf", LQ), ("linalg_qr", QR), ("linalg_svdvals", SVDVALS)])
def test_the_names_of_other_systems_are_found(alias: str, op: Operator) -> None:
    assert find_operator(alias) is op
