"""Determinants, inverses, systems of equations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators import linalg
from opmark.catalogue.operators.linalg import (  # fmt: skip
    CHOLESKY,
    CHOLESKY_INVERSE,
    DET,
    EIGVALSH,
    INVERSE,
    MATRIX_POWER,
    SLOGDET,
    SOLVE,
    SYRK,
    TRIANGULAR_SOLVE,
    TRMM,
)
from opmark.plugin import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Cost

sizes = pytest.mark.parametrize("n", range(1, 9))

COSTS = [
    # 3 x 3: factors take 13 operations (3 quotients, 5 products, 5 differences), the determinant 2 products more.
    (DET, {"batch": 2, "n": 3}, Cost(30, 72, 8), Cost(2 * (32 + 9), 88, 72)),
    (INVERSE, {"n": 3}, Cost(45, 36, 36), Cost(108, 108, 36)),
    # A triangular system with 2 right sides: 9 operations each; 6 elements of the triangle and 6 of b in. Back: the
    # triangle, 6 elements of the solution and 6 of its gradient in, all of both gradients out.
    (TRIANGULAR_SOLVE, {"n": 3, "k": 2}, Cost(18, 48, 24), Cost(42, 72, 60)),
    (TRMM, {"n": 3, "k": 2}, Cost(18, 48, 24), Cost(42, 72, 60)),
    # Half of a symmetric matrix in, a matrix out: 3 roots, 3 quotients, 4 products, 4 differences. Back: the triangles
    # of the factor and of its gradient in.
    (CHOLESKY, {"n": 3}, Cost(14, 24, 36), Cost(81, 48, 36)),
    # Back: the factor, half of the result, and all of its gradient in.
    (CHOLESKY_INVERSE, {"n": 3}, Cost(25, 24, 36), Cost(171, 84, 36)),
    # Half of a symmetric matrix in. Back: 9 elements of eigenvectors and 3 of the gradient in.
    (EIGVALSH, {"n": 3}, Cost(36, 24, 12), Cost(63, 48, 36)),
    (SOLVE, {"n": 3, "k": 2}, Cost(13 + 30, 60, 24), Cost(66, 108, 60)),
    # Six different results of 2 products and 2 sums.
    (SYRK, {"n": 3, "k": 2}, Cost(24, 24, 36), Cost(45, 96, 24)),
    # The fifth power: square, square, once more.
    (MATRIX_POWER, {"n": 3}, Cost(162, 36, 36), Cost(324, 108, 36)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@sizes
def test_factors_take_as_many_operations_as_the_textbook_s_loops(n: int) -> None:
    """Gauss: a quotient for each row below, a product and a difference for each element right of it."""
    gauss = sum((n - 1 - k) + 2 * (n - 1 - k) ** 2 for k in range(n))
    assert linalg.getrf(n) == gauss
    # Cholesky: a root, quotients below it, a product and a difference for each element of the triangle that is left.
    cholesky = sum(1 + (n - 1 - k) + (n - 1 - k) * (n - k) for k in range(n))
    assert linalg.potrf(n) == cholesky


@sizes
def test_formulas_are_whole_numbers(n: int) -> None:
    """Their integer division loses nothing."""
    x = Fraction(n)
    assert linalg.getrf(n) == 2 * x**3 / 3 - x**2 / 2 - x / 6
    assert linalg.getri(n) == 4 * x**3 / 3 - x**2 + 5 * x / 3
    assert linalg.potrf(n) == x**3 / 3 + x**2 / 2 + x / 6
    assert linalg.potri(n) == 2 * x**3 / 3 + x**2 / 2 + 5 * x / 6


@pytest.mark.parametrize(("power", "due"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (7, 4), (8, 3), (15, 6)])
def test_a_power_is_made_of_squares(power: int, due: int) -> None:
    assert linalg.products(power) == due


@pytest.mark.parametrize(
    "op", [op for op in linalg.OPERATORS if op not in linalg.DECOMPOSITION_OPERATORS], ids=lambda op: op.name
)
@pytest.mark.parametrize("n", [1, 2, 7, 64, 200])
def test_matrices_are_far_from_singular(op: Operator, n: int, numpy_cpu: Any) -> None:
    given = {"batch": 4, "n": n, "dtype": "float64"} | ({"k": 1} if "k" in op.by_name else {})
    spec = op.inputs(op.complete(given))["a"]
    if spec.make is None:
        pytest.skip("no factor of it is taken")
    matrices = numpy_cpu.tensor(spec, 0)
    assert np.linalg.cond(matrices).max() < 10
    assert np.abs(matrices).max() <= 4


def test_determinants_have_either_sign(numpy_cpu: Any) -> None:
    spec = SLOGDET.inputs(SLOGDET.complete({"batch": 64, "n": 5}))["a"]
    signs, _ = SLOGDET.reference({}, a=numpy_cpu.tensor(spec, 0))
    assert set(signs) == {-1.0, 1.0}


def test_the_other_half_of_a_triangular_matrix_is_not_looked_at() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.uniform(1, 2, (1, 4, 4)), generator.uniform(-1, 1, (1, 4, 2))
    params = TRMM.complete({"n": 4, "k": 2, "upper": True, "dtype": "float64"})
    for op in (TRMM, TRIANGULAR_SOLVE):
        np.testing.assert_allclose(op.reference(params, a=a, b=b), op.reference(params, a=np.triu(a), b=b))
        (implementation,) = op.implementations_for("torch")
        found = implementation.build(params, a=torch.from_numpy(a), b=torch.from_numpy(b))()
        np.testing.assert_allclose(found, op.reference(params, a=np.triu(a), b=b))


def test_the_inverse_from_a_factor_is_the_inverse_of_the_matrix(numpy_cpu: Any) -> None:
    a = numpy_cpu.tensor(CHOLESKY.inputs(CHOLESKY.complete({"n": 5, "dtype": "float64"}))["a"], 0)
    factor = CHOLESKY.reference({}, a=a)
    np.testing.assert_allclose(CHOLESKY_INVERSE.reference({}, a=factor) @ a, [np.eye(5)], atol=1e-12)


@pytest.mark.parametrize(
    ("alias", "op"),
    [
        ("linalg_det", DET), ("linalg_slogdet", SLOGDET), ("linalg_inverse", INVERSE), ("linalg_potrf", CHOLESKY),
        ("linalg_potri", CHOLESKY_INVERSE), ("linalg_trmm", TRMM), ("linalg_trsm", TRIANGULAR_SOLVE),
        ("linalg_syrk", SYRK),
    ],
)  # fmt: skip
def test_the_names_of_other_systems_are_found(alias: str, op: Operator) -> None:
    assert find_operator(alias) is op
