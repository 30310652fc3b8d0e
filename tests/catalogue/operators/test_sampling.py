"""Random values come from the distribution that was asked for, and from no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators._distributions import LAWS, Law
from opmark.catalogue.operators.sampling import SAMPLING_OPERATORS
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in SAMPLING_OPERATORS}
DRAWN = [op for op in SAMPLING_OPERATORS if op.name.startswith("random_") and op.name != "random_randint"]
every_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)


def _values(law: Law, **changed: float) -> list[float]:
    return [changed.get(argument.name, argument.default) for argument in law.arguments]


def _observed(op: Operator, values: Any, **given: Any) -> bool:
    """Return whether the values pass as drawn from the distribution."""
    params = op.complete({"shape": list(values.shape), **given})
    try:
        found = op.observe(params, values) if op.observe else None
    except ValueError:
        return False
    return np.array_equal(found, op.reference(params))


MOMENTS = {  # textbook mean and variance for the defaults
    "uniform": (1 / 2, 1 / 12),
    "normal": (0, 1),
    "exponential": (1, 1),
    "gamma": (2, 2),
    "poisson": (4, 4),
    "negative_binomial": (4, 8),
    "generalized_negative_binomial": (2, 4),
}


@every_law
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_mean_and_variance_are_those_of_the_textbook(law: Law, framework: str) -> None:
    op = BY_NAME[f"random_{law.name}"]
    launch = op.implementations_for(framework)[0].build(op.complete({"shape": [400, 500], "dtype": "float64"}))
    values = np.asarray(launch())
    mean, variance = MOMENTS[law.name]
    assert values.mean() == pytest.approx(mean, abs=0.05)
    assert values.var() == pytest.approx(variance, rel=0.05)


@every_law
@pytest.mark.parametrize("index", [0, 1])
def test_a_wrong_parameter_is_found(law: Law, index: int) -> None:
    """The parameter is a fifth larger, or by a fifth of the spread if it is zero."""
    if index >= len(law.arguments):
        pytest.skip("it has one parameter")
    op = BY_NAME[f"random_{law.name}"]
    draw = np.random.default_rng(5)
    right = law.numpy(draw, (200, 500), *_values(law)).astype(float)
    assert _observed(op, right)
    name = law.arguments[index].name
    other = _values(law, **{name: law.arguments[index].default * 1.2 or 0.2})
    assert not _observed(op, law.numpy(draw, (200, 500), *other).astype(float))


@pytest.mark.parametrize("op", DRAWN, ids=lambda op: op.name)
def test_a_constant_is_found(op: Operator) -> None:
    for constant in (0.0, 1.0, 4.0):
        assert not _observed(op, np.full((100, 100), constant))


def test_a_distribution_of_the_same_mean_and_variance_is_found() -> None:
    draw = np.random.default_rng(0)
    assert not _observed(BY_NAME["random_normal"], draw.uniform(-(3**0.5), 3**0.5, (100, 100)))
    assert not _observed(BY_NAME["random_exponential"], np.abs(draw.normal(0, (np.pi / 2) ** 0.5, (100, 100))))


def test_counts_are_whole_numbers() -> None:
    counts = np.random.default_rng(0).poisson(4, (100, 100)).astype(float)
    assert _observed(BY_NAME["random_poisson"], counts)
    assert not _observed(BY_NAME["random_poisson"], counts + 0.25)


def test_each_of_several_distributions_is_looked_at() -> None:
    """The values fit all distributions together, but none of them alone."""
    op = BY_NAME["sample_normal"]
    params = op.complete({"distributions": 2, "draws": 5000})
    tensors = {"mean": np.array([-1.0, 1.0]), "std": np.array([0.5, 0.5])}
    values = np.random.default_rng(0).normal(tensors["mean"], tensors["std"], (5000, 2))
    assert op.observe
    expected = op.reference(params, **tensors)
    np.testing.assert_array_equal(op.observe(params, values, **tensors), expected)
    assert not np.array_equal(op.observe(params, values[:, ::-1], **tensors), expected)


def test_categories_are_drawn_in_proportion_to_their_weights() -> None:
    op = BY_NAME["multinomial"]
    params = op.complete({"rows": 1, "categories": 4, "draws": 20000})
    weights = np.array([[1.0, 2.0, 3.0, 4.0]])
    draw = np.random.default_rng(0)
    assert op.observe
    right = draw.choice(4, (1, 20000), p=weights[0] / 10)
    np.testing.assert_array_equal(op.observe(params, right, weights=weights), op.reference(params, weights=weights))
    equal = draw.integers(0, 4, (1, 20000))
    assert not np.array_equal(op.observe(params, equal, weights=weights), op.reference(params, weights=weights))


@pytest.mark.parametrize(
    ("name", "given", "cost"),
    [
        ("random_normal", {"shape": [10, 20], "dtype": "bfloat16"}, Cost(0, 0, 400)),
        ("sample_gamma", {"distributions": 3, "draws": 100}, Cost(0, 2 * 3 * 4, 300 * 4)),
        ("random_randint", {"shape": [10, 20], "dtype": "int64"}, Cost(0, 0, 1600)),
        ("bernoulli", {"shape": [10, 20]}, Cost(0, 800, 800)),
        # Weights in, indices of 8 bytes out.
        ("multinomial", {"rows": 2, "categories": 5, "draws": 64, "dtype": "float16"}, Cost(0, 20, 1024)),
    ],
)
def test_cost_by_hand(name: str, given: dict[str, Any], cost: Cost) -> None:
    assert BY_NAME[name].cost(BY_NAME[name].complete(given)) == cost


@pytest.mark.parametrize(
    ("name", "given", "blamed"),
    [
        ("random_uniform", {"shape": [100], "low": 1.0, "high": 1.0}, "high"),
        ("random_uniform", {"shape": [10]}, "shape"),
        ("random_normal", {"shape": [100], "std": 0.0}, "std"),
        ("random_gamma", {"shape": [100], "alpha": -1.0}, "alpha"),
        ("random_poisson", {"shape": [100], "rate": 0.01}, "rate"),
        ("random_poisson", {"shape": [100], "rate": 200.0, "dtype": "bfloat16"}, "rate"),
        ("random_negative_binomial", {"shape": [100], "prob": 1.0}, "prob"),
        ("random_generalized_negative_binomial", {"shape": [100], "alpha": 0.0}, "alpha"),
        ("random_randint", {"shape": [100], "low": 5, "high": 6}, "high"),
        ("random_randint", {"shape": [100], "high": 200, "dtype": "int8"}, "high"),
        ("random_randint", {"shape": [100], "low": -1, "dtype": "uint8"}, "low"),
        ("multinomial", {"rows": 1, "categories": 1, "draws": 100}, "categories"),
        ("sample_normal", {"distributions": 5, "draws": 3}, "draws"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, given: dict[str, Any], blamed: str) -> None:
    op = BY_NAME[name]
    with pytest.raises(InvalidParameter, match=f"parameter `{blamed}` must"):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("exponential", "random_exponential"),
        ("sample_multinomial", "multinomial"),
        ("randn", "random_normal"),
        ("randint", "random_randint"),
    ],
)
def test_names_of_other_systems_are_known(alias: str, name: str) -> None:
    assert operator(alias).name == name
