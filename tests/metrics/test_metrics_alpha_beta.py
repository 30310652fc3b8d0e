"""t(S) = alpha + S / beta: recovered where it holds, and its deviation told where it does not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.metrics.alpha_beta import Fit, NoFit, fit

SIZES = [1 << k for k in range(3, 27)]


def times(alpha: float, beta: float, sizes: list[int] = SIZES) -> list[float]:
    return [alpha + size / beta for size in sizes]


def test_a_line_through_three_sizes_is_found() -> None:
    """10 µs, and 1 GB/s: 1000 bytes take a microsecond more, 10000 ten more."""
    found = fit([1000, 10_000, 100_000], [11e-6, 20e-6, 110e-6])
    assert isinstance(found, Fit)
    assert found.alpha == pytest.approx(1e-5)
    assert found.beta == pytest.approx(1e9)
    assert found.half_size == pytest.approx(10_000)
    assert found.worst < 1e-12
    assert found.time(found.half_size or 0) == pytest.approx(2e-5)
    assert not found.off


@given(st.floats(1e-7, 1e-2), st.floats(1e6, 1e12))
def test_exact_data_is_recovered(alpha: float, beta: float) -> None:
    """As far as numbers have digits: what one of both adds to a time has to be seen in it."""
    found = fit(SIZES, times(alpha, beta))
    assert isinstance(found, Fit)
    assert found.worst < 1e-9
    assert found.alpha == pytest.approx(alpha, rel=1e-6, abs=1e-9 * SIZES[0] / beta)
    if SIZES[-1] / beta > 1e-6 * alpha:
        assert found.beta == pytest.approx(beta, rel=1e-4)


@given(
    st.floats(1e-6, 1e-4),
    st.floats(1e8, 1e11),
    st.lists(st.floats(-0.1, 0.1), min_size=len(SIZES), max_size=len(SIZES)),
)
def test_noise_stays_within_its_bounds(alpha: float, beta: float, noise: list[float]) -> None:
    """No line is nearer in the sum of squares, so none of its parts is far from the true line's."""
    measured = [t * (1 + part) for t, part in zip(times(alpha, beta), noise, strict=True)]
    found = fit(SIZES, measured)
    assert isinstance(found, Fit)
    ours = sum(((found.time(s) - t) / t) ** 2 for s, t in zip(SIZES, measured, strict=True))
    true = sum(((alpha + s / beta - t) / t) ** 2 for s, t in zip(SIZES, measured, strict=True))
    assert ours <= true * (1 + 1e-9) + 1e-15
    assert found.alpha == pytest.approx(alpha, rel=0.35)
    assert found.worst <= 1.0


@given(
    st.lists(st.tuples(st.integers(1, 10**10), st.floats(1e-9, 1e3)), min_size=3, max_size=30, unique_by=lambda p: p[0])
)
def test_whatever_the_times_neither_part_is_negative_and_the_worst_is_the_worst(
    points: list[tuple[int, float]],
) -> None:
    sizes, seconds = [size for size, _ in points], [t for _, t in points]
    found = fit(sizes, seconds)
    assert isinstance(found, Fit)
    assert found.alpha >= 0
    assert found.beta is None or found.beta > 0
    deviations = {s: abs(found.time(s) - t) / t for s, t in points}
    assert found.worst == pytest.approx(max(deviations.values()), rel=1e-6, abs=1e-9)
    assert found.worst_at in sizes


def test_a_small_message_counts_as_much_as_a_large_one() -> None:
    """By absolute errors, the large time alone would decide, and the latency would be lost in it."""
    sizes, seconds = [8, 16, 32, 1 << 29, 1 << 30], [1e-5, 1e-5, 1e-5, 0.5, 1.3]
    found = fit(sizes, seconds)
    assert isinstance(found, Fit)
    assert found.alpha == pytest.approx(1e-5, rel=0.01)


def test_a_time_that_falls_with_the_size_has_no_bandwidth() -> None:
    found = fit([1, 10, 100], [3.0, 2.0, 1.0])
    assert isinstance(found, Fit)
    assert found.beta is None
    assert found.half_size is None
    assert found.time(10**9) == found.alpha > 0


def test_the_same_time_for_all_sizes_is_a_latency() -> None:
    assert fit([8, 16, 32], [1e-5] * 3) == Fit(pytest.approx(1e-5), None, pytest.approx(0, abs=1e-12), 8)


def test_a_negative_latency_is_none() -> None:
    """Twice the size takes four times as long: the best line from zero on, and it is far off."""
    found = fit([100, 200, 400], [1.0, 4.0, 16.0])
    assert isinstance(found, Fit)
    assert found.alpha == 0
    # b = sum(S/t) / sum((S/t)^2) = (100 + 50 + 25) / (10000 + 2500 + 625) = 1/75; 100/75 is a third above 1
    assert found.beta == pytest.approx(75)
    assert (found.worst, found.worst_at) == (pytest.approx(2 / 3), 400)
    assert found.off


def test_a_change_of_protocol_is_off() -> None:
    found = fit([8, 1024, 65_536, 131_072], [1e-5, 1e-5, 1e-3, 1e-3])
    assert isinstance(found, Fit)
    assert found.off


@pytest.mark.parametrize(
    ("sizes", "seconds", "reason"),
    [
        ([], [], "0 of at least 3 sizes"),
        ([8, 16], [1.0, 2.0], "2 of at least 3 sizes"),
        ([8, 8, 8, 16], [1.0, 1.1, 1.2, 2.0], "2 of at least 3 sizes"),
        ([8, 16, 32], [0.0, 1.0, 2.0], "not above 0"),
        ([8, 16, 32], [1.0, -1.0, 2.0], "not above 0"),
        ([8, 16, 32], [1.0, math.inf, 2.0], "not above 0"),
        ([8, 16, 32], [1.0, math.nan, 2.0], "not above 0"),
    ],
)
def test_what_cannot_be_fitted_says_why(sizes: list[int], seconds: list[float], reason: str) -> None:
    found = fit(sizes, seconds)
    assert isinstance(found, NoFit)
    assert reason in found.reason
