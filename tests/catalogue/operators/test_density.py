"""Densities are those of SciPy's distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from opmark.catalogue.operators.density import DIRICHLET, OPERATORS
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name.removeprefix("random_pdf_"): op for op in OPERATORS}

SCIPY: dict[str, Any] = {
    "normal": lambda x, mean, std: stats.norm.pdf(x, mean, std),
    "exponential": lambda x, rate: stats.expon.pdf(x, scale=1 / rate),
    "gamma": lambda x, alpha, rate: stats.gamma.pdf(x, alpha, scale=1 / rate),
    "poisson": lambda x, rate: stats.poisson.pmf(x, rate),
    "negative_binomial": lambda x, k, prob: stats.nbinom.pmf(x, k, prob),
    "generalized_negative_binomial": lambda x, mu, alpha: stats.nbinom.pmf(x, 1 / alpha, 1 / (1 + mu * alpha)),
    "uniform": lambda x, low, high: stats.uniform.pdf(x, low, high - low),
}


def _inputs(op: Operator, params: dict[str, Any]) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        name: spec.make(draw) if spec.make else draw.uniform(spec.low, spec.high, spec.shape)
        for name, spec in op.inputs(params).items()
    }


@pytest.mark.parametrize("name", SCIPY)
@pytest.mark.parametrize("log", [False, True])
def test_the_reference_is_the_density_of_scipy(name: str, log: bool) -> None:
    op = BY_NAME[name]
    params = op.complete({"distributions": 7, "points": 50, "log": log, "dtype": "float64"})
    inputs = _inputs(op, params)
    expected = SCIPY[name](*inputs.values())
    np.testing.assert_allclose(op.reference(params, **inputs), np.log(expected) if log else expected, rtol=1e-11)


def test_the_reference_of_dirichlet_is_the_density_of_scipy() -> None:
    params = DIRICHLET.complete({"distributions": 3, "points": 4, "categories": 5, "log": False, "dtype": "float64"})
    inputs = _inputs(DIRICHLET, params)
    found = DIRICHLET.reference(params, **inputs)
    for row, point in np.ndindex(3, 4):
        expected = stats.dirichlet.pdf(inputs["sample"][row, point], inputs["alpha"][row, 0])
        assert found[row, point] == pytest.approx(expected, rel=1e-11)


def test_every_distribution_is_compared() -> None:
    assert {*SCIPY, "dirichlet"} == set(BY_NAME)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_counts_and_edges_have_no_gradient_but_parameters_do(op: Operator) -> None:
    smooth = op.name.removeprefix("random_pdf_") in ("normal", "exponential", "gamma", "dirichlet")
    assert ("sample" in op.gradients) == smooth
    params = op.complete(op.preset("small"))
    assert {"sample", *op.gradients} == set(op.inputs(params))


def test_cost_by_hand() -> None:
    op = BY_NAME["normal"]
    params = {"distributions": 2, "points": 5, "log": True, "dtype": "float32"}
    # For each of 10 points: difference, quotient, square, half and two differences; for each of 2 distributions: a
    # logarithm and a sum. 10 points and 2 x 2 parameters are read.
    assert op.cost(params) == Cost(6 * 10 + 2 * 2, 14 * 4, 10 * 4)
    assert op.cost({**params, "log": False}).flops == 6 * 10 + 2 * 2 + 10
    # Back also the incoming gradient is read; points and parameters have one.
    assert op.backward_cost
    assert op.backward_cost(params) == Cost(6 * 10 * 3 + 2 * 10, 24 * 4, 14 * 4)
    # 10 points of 3 numbers, 2 x 3 parameters.
    cost = DIRICHLET.cost({**params, "categories": 3})
    assert cost == Cost(4 * 30 + 3 * 6 + 2 * 10, 36 * 4, 10 * 4)


def test_the_logarithm_survives_where_the_density_does_not() -> None:
    params = DIRICHLET.complete({"distributions": 1, "points": 1, "categories": 1000, "dtype": "float64"})
    inputs = _inputs(DIRICHLET, params)
    assert params["log"]
    assert np.isfinite(DIRICHLET.reference(params, **inputs)).all()


def test_a_density_is_found_by_its_short_name() -> None:
    assert operator("pdf_normal").name == "random_pdf_normal"
