"""t(S) = alpha + S / beta: recovered where it holds, and its deviation told where it does not."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opmark.analysis.fits import Fit, NoFit, fit

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
    assert found.fixed == pytest.approx(alpha, rel=1e-6, abs=1e-9 * SIZES[0] / beta)
    if SIZES[-1] / beta > 1e-6 * alpha:
        assert found.slope == pytest.approx(1 / beta, rel=1e-4)


@given(st.floats(1e-7, 1e-2), st.floats(1e6, 1e12))
def test_only_what_the_sizes_can_tell_is_told(alpha: float, beta: float) -> None:
    half = alpha * beta
    assume(min(abs(half / bound - 1) for bound in (SIZES[-1], SIZES[0] / 10)) > 1e-3)
    found = fit(SIZES, times(alpha, beta))
    assert isinstance(found, Fit)
    assert found.beta == (pytest.approx(beta, rel=1e-4) if half < SIZES[-1] else None)
    assert found.alpha == (pytest.approx(alpha, rel=1e-4) if half > SIZES[0] / 10 else None)
    assert (found.half_size is None) == (found.alpha is None or found.beta is None)


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
    ours = sum(math.log(found.time(s) / t) ** 2 for s, t in zip(SIZES, measured, strict=True))
    true = sum(math.log((alpha + s / beta) / t) ** 2 for s, t in zip(SIZES, measured, strict=True))
    assert ours <= true * (1 + 1e-8) + 1e-15
    assert found.fixed == pytest.approx(alpha, rel=0.35)
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
    assert found.fixed >= 0
    assert found.slope >= 0
    assert found.alpha in (None, found.fixed)
    assert found.beta is None or found.beta <= 2 * max(s / t for s, t in points) * (1 + 1e-9)
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
    assert found.time(10**9) == found.alpha == found.fixed > 0


def test_the_same_time_for_all_sizes_is_a_latency() -> None:
    found = fit([8, 16, 32], [1e-5] * 3)
    assert found == Fit(pytest.approx(1e-5), 0.0, 8, 32, pytest.approx(3.2e6), pytest.approx(0, abs=1e-12), 8)
    assert isinstance(found, Fit)
    assert (found.alpha, found.beta) == (pytest.approx(1e-5), None)


def test_a_negative_latency_is_none() -> None:
    """Twice the size takes four times as long: the best line from zero on, and it is far off."""
    found = fit([100, 200, 400], [1.0, 4.0, 16.0])
    assert isinstance(found, Fit)
    assert (found.fixed, found.alpha) == (0, None)
    # 1, 2 and 4 seconds for 100 bytes: their geometric mean is 2, twice the first and half of the last
    assert found.beta == pytest.approx(50)
    assert (found.worst, found.worst_at) == (pytest.approx(1), 100)
    assert found.off


KILO = 1 << 10


def test_where_the_latency_is_most_of_the_time_there_is_no_bandwidth() -> None:
    """Up to 512K at 2.2 GB/s: 22 GB/s would fit, and so would twice or half of it."""
    noise = (0.08, -0.05, 0.03, -0.07, 0.02, -0.04, 0.06, -0.08, 0.04, 0.01)
    sizes = [KILO << k for k in range(10)]
    found = fit(sizes, [(0.215e-3 + s / 22.1e9) * (1 + part) for s, part in zip(sizes, noise, strict=True)])
    assert isinstance(found, Fit)
    assert found.hardly_grows
    assert (found.beta, found.half_size) == (None, None)
    assert found.alpha == pytest.approx(0.215e-3, rel=0.05)
    assert not found.off


OUTLIER = [3.81e-3, 3.85e-3, 3.47e-3, 4.27e-3, 3.25e-3, 2.11e-3, 9.60e-3]
"""1K to 4M in steps of 4; one is far too short."""


def test_one_time_that_is_too_short_does_not_decide() -> None:
    """With weights 1/t^2 the shortest counted most, and made it 6.6 GB/s of at most 0.5 that were reached."""
    sizes = [KILO << 2 * k for k in range(7)]
    found = fit(sizes, OUTLIER)
    assert isinstance(found, Fit)
    assert found.fastest < 1 / found.slope < 3 * found.fastest
    assert found.far_beyond
    assert found.beta is None
    assert found.alpha == pytest.approx(3.5e-3, rel=0.1)
    assert found.worst_at == KILO**2


def test_with_a_larger_size_the_bandwidth_is_told_in_spite_of_it() -> None:
    sizes = [KILO << 2 * k for k in range(8)]
    found = fit(sizes, [*OUTLIER, 33e-3])
    assert isinstance(found, Fit)
    assert found.beta is not None
    assert found.fastest < found.beta < 1.5 * found.fastest


def test_sizes_that_are_all_large_do_not_tell_the_latency() -> None:
    found = fit([1 << 24, 1 << 25, 1 << 26], [s / 1e9 + 1e-6 for s in (1 << 24, 1 << 25, 1 << 26)])
    assert isinstance(found, Fit)
    assert (found.alpha, found.half_size) == (None, None)
    assert found.beta == pytest.approx(1e9)


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
