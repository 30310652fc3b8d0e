"""What a task in company makes of its samples."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.worker.company import mean_per_slice


@given(st.lists(st.floats(1e-4, 0.2), min_size=1, max_size=200), st.integers(1, 50))
def test_slices_cover_the_whole_time(durations: list[float], calls: int) -> None:
    """Whatever the slices are, none is shorter than the quickest call or longer than the slowest one."""
    ends = list(accumulate(durations))
    found = mean_per_slice(0.0, ends, calls)
    assert 1 <= len(found) <= len(durations)
    assert min(durations) / calls * 0.999 <= min(found)
    assert max(found) <= max(durations) / calls * 1.001


def test_a_core_that_is_taken_away_between_short_calls_shows() -> None:
    """Calls of 1 ms run for 4 ms and wait for 4 ms: the median call sees nothing of it."""
    ends, now = [], 0.0
    for number in range(400):
        now += 0.001 + (0.004 if number % 4 == 0 else 0.0)
        ends.append(now)
    assert mean_per_slice(0.0, ends, 1) == pytest.approx([0.002] * 15, rel=0.07)
