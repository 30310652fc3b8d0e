"""Student's distribution against SciPy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr, stdtrit

from opmark.stats.interval import quantile, tail

pytestmark = pytest.mark.verdicts

FREEDOMS = st.one_of(st.integers(1, 200), st.floats(1.0, 2000.0))


@given(st.floats(1e-3, 300.0), FREEDOMS)
def test_the_tail_is_that_of_scipy(t: float, freedom: float) -> None:
    expected = float(stdtr(freedom, -t))
    if expected > 1e-280:
        assert tail(t, freedom) == pytest.approx(expected, rel=1e-9)
    assert tail(-t, freedom) == pytest.approx(1.0 - expected, rel=1e-12)


@given(st.floats(1e-9, 1 - 1e-9), FREEDOMS)
def test_the_quantile_is_that_of_scipy(probability: float, freedom: float) -> None:
    assert quantile(probability, freedom) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-8, abs=1e-9)


@given(st.floats(1e-6, 0.999999), FREEDOMS)
def test_one_is_the_inverse_of_the_other(probability: float, freedom: float) -> None:
    assert tail(quantile(probability, freedom), freedom) == pytest.approx(1.0 - probability, rel=1e-7)


def test_the_ends() -> None:
    assert tail(0.0, 5) == 0.5
    assert tail(math.inf, 5) == 0.0
    assert tail(-math.inf, 5) == 1.0
    assert quantile(0.5, 7) == 0.0
