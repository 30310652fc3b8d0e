"""Share of the roofline: never half a roofline, never above 1 for what is slower than it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.analysis.metrics import PeakShare, peak_share
from opmark.schema import Cost
from opmark.schema.machine import MEMORY, Level, Peaks

PEAKS = Peaks(
    "Fast 9000", "made up", {"float32": 1e13, "float16": 4e13}, [Level("L2", 4e12, 1 << 20), Level(MEMORY, 1e12)]
)
COSTS = st.builds(Cost, st.integers(0, 10**15), st.integers(0, 10**10), st.integers(1, 10**10))
TIMES = st.floats(1e-9, 1e3)


def least(cost: Cost, dtype: str, *, cold: bool) -> float:
    """What the chip needs at least, in words of its own."""
    nbytes = cost.bytes_read + cost.bytes_written
    beyond = nbytes if cold else max(0, nbytes - (1 << 20))
    return max(0 if cold else nbytes / 4e12, beyond / 1e12, cost.flops / PEAKS.flops[dtype])


def test_moving_data_is_held_against_the_memory() -> None:
    cost = Cost(flops=0, bytes_read=3 * 10**9, bytes_written=10**9)
    assert peak_share(cost, 8e-3, "float32", PEAKS, cold=True) == PeakShare(0.5, MEMORY)


def test_products_in_tf32_are_held_against_the_peak_of_tf32() -> None:
    """A datasheet has a figure of its own for them; without one there is no share."""
    cost, peaks = Cost(10**12, 0, 1), replace(PEAKS, flops={**PEAKS.flops, "tfloat32": 2e13})
    assert peak_share(cost, 0.1, "tfloat32", peaks, cold=True) == PeakShare(0.5, "compute")
    assert peak_share(cost, 0.1, "tfloat32", PEAKS, cold=True) is None


def test_warm_data_is_held_against_the_cache_that_it_is_in() -> None:
    cost = Cost(flops=0, bytes_read=500_000, bytes_written=500_000)
    warm, cold = (peak_share(cost, 1e-6, "float32", PEAKS, cold=cold) for cold in (False, True))
    assert warm == PeakShare(0.25, "L2")
    assert cold == PeakShare(1.0, MEMORY)


def test_a_share_does_not_jump_between_two_sizes() -> None:
    """A copy at a fifth of the speed of memory, in steps of 1 %, from a cache to 16 times of it."""
    shares = []
    nbytes = 1 << 19
    while nbytes < 16 << 20:
        found = peak_share(Cost(0, nbytes, nbytes), 2 * nbytes / 2e11, "float32", PEAKS, cold=False)
        assert found is not None
        shares.append(found.share)
        nbytes = int(nbytes * 1.01)
    assert shares[0] == pytest.approx(0.05)
    assert shares[-1] == pytest.approx(0.2, rel=0.05)
    assert max(abs(later - earlier) for earlier, later in pairwise(shares)) < 0.002


def test_arithmetic_is_held_against_the_peak_of_its_element_type() -> None:
    cost = Cost(flops=10**12, bytes_read=10**6, bytes_written=0)
    assert peak_share(cost, 0.2, "float32", PEAKS, cold=True) == PeakShare(0.5, "compute")
    assert peak_share(cost, 0.2, "float16", PEAKS, cold=True) == PeakShare(0.125, "compute")


@given(COSTS, st.sampled_from(["float32", "float16"]), st.booleans(), st.floats(1.0, 1e6))
def test_what_takes_longer_than_the_roofline_never_attains_more_than_it(
    cost: Cost, dtype: str, cold: bool, longer: float
) -> None:
    seconds = longer * least(cost, dtype, cold=cold)
    found = peak_share(cost, seconds, dtype, PEAKS, cold=cold)
    assert found is not None
    assert 0 < found.share <= 1 + 1e-12
    assert found.share == pytest.approx(1 / longer)
    assert found.bound in ("compute", "L2", MEMORY)


@given(COSTS, TIMES, st.floats(1.0, 1e3))
def test_twice_the_time_is_half_the_share_and_the_same_bound(cost: Cost, seconds: float, times: float) -> None:
    one = peak_share(cost, seconds, "float32", PEAKS, cold=False)
    other = peak_share(cost, times * seconds, "float32", PEAKS, cold=False)
    assert one is not None
    assert other is not None
    assert other.bound == one.bound
    assert other.share * times == pytest.approx(one.share)


@given(COSTS, TIMES)
def test_cold_is_never_held_against_a_faster_place_than_warm(cost: Cost, seconds: float) -> None:
    warm, cold = (peak_share(cost, seconds, "float32", PEAKS, cold=cold) for cold in (False, True))
    assert warm is not None
    assert cold is not None
    assert cold.share >= warm.share


def test_without_a_cost_there_is_no_share() -> None:
    assert peak_share(None, 1.0, "float32", PEAKS, cold=True) is None


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_has_no_share(seconds: float) -> None:
    assert peak_share(Cost(10, 10, 10), seconds, "float32", PEAKS, cold=True) is None


def test_no_work_has_no_share() -> None:
    assert peak_share(Cost(0, 0, 0), 1.0, "float32", PEAKS, cold=True) is None


def test_without_the_memory_there_is_no_share_even_of_arithmetic() -> None:
    cacheless = Peaks("Fast 9000", "made up", {"float32": 1e13}, [])
    assert peak_share(Cost(10**12, 8, 8), 1.0, "float32", cacheless, cold=True) is None


def test_without_the_peak_of_its_element_type_arithmetic_has_no_share() -> None:
    assert peak_share(Cost(10**6, 100, 100), 1.0, "float64", PEAKS, cold=True) is None


def test_without_that_peak_what_hardly_computes_is_held_against_the_memory() -> None:
    cost = Cost(flops=2000, bytes_read=600, bytes_written=400)
    assert peak_share(cost, 1e-8, "int32", PEAKS, cold=True) == PeakShare(pytest.approx(0.1), MEMORY)
    assert peak_share(Cost(2001, 600, 400), 1e-8, "int32", PEAKS, cold=True) is None


QUIET = Peaks("Fast 9000", "made up", {"float32": 1e13}, [Level("L2", None, 1 << 20), Level(MEMORY, 1e12)])
"""Nobody tells how fast its cache is."""


def test_moving_data_in_a_cache_of_unknown_speed_has_no_share() -> None:
    cost = Cost(flops=0, bytes_read=500_000, bytes_written=500_000)
    assert peak_share(cost, 1e-6, "float32", QUIET, cold=False) is None
    assert peak_share(cost, 1e-6, "float32", QUIET, cold=True) == PeakShare(1.0, MEMORY)


def test_what_even_the_memory_would_not_slow_down_is_held_against_the_peak() -> None:
    cost = Cost(flops=10**8, bytes_read=10**6, bytes_written=0)
    assert peak_share(cost, 1e-4, "float32", QUIET, cold=False) == PeakShare(0.1, "compute")


@given(COSTS, TIMES)
def test_an_unknown_speed_never_gives_more_than_a_known_one_and_never_a_wrong_bound(cost: Cost, seconds: float) -> None:
    quiet, known = (peak_share(cost, seconds, "float32", peaks, cold=False) for peaks in (QUIET, PEAKS))
    assert known is not None
    assert quiet is None or quiet == known


def test_without_any_memory_nothing_is_said_of_a_cache_of_unknown_speed() -> None:
    sram = Peaks("Fast 9000", "made up", {"float32": 1e13}, [Level("SRAM", None, 1 << 30)])
    assert peak_share(Cost(10**12, 8, 8), 1.0, "float32", sram, cold=False) is None
