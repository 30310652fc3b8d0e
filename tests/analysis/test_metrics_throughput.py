"""Work over time, and nothing where there is nothing to say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.analysis.metrics import Rates, rates
from opmark.schema import Cost


def test_rates_by_hand():
    assert rates(Cost(flops=600, bytes_read=100, bytes_written=50), 2.0) == Rates(75.0, 300.0)


def test_an_unknown_cost_has_no_rate():
    assert rates(None, 1.0) == Rates(None, None)


def test_no_floating_point_work_has_no_rate_of_it():
    assert rates(Cost(0, 10, 10), 2.0) == Rates(10.0, None)


def test_nothing_moved_has_no_bandwidth():
    assert rates(Cost(10, 0, 0), 2.0) == Rates(None, 5.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_has_no_rate(seconds):
    assert rates(Cost(10, 10, 10), seconds) == Rates(None, None)


@given(st.integers(1, 10**15), st.integers(1, 10**12), st.integers(0, 10**12), st.floats(1e-9, 1e3))
@settings(deadline=None)
def test_rate_times_time_is_the_work(flops, read, written, seconds):
    found = rates(Cost(flops, read, written), seconds)
    assert found.flops_per_second * seconds == pytest.approx(flops)
    assert found.bytes_per_second * seconds == pytest.approx(read + written)
