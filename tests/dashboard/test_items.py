"""The estimated progress of a run."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from opmark.dashboard.items import LONGEST, SHORTEST, estimate_progress
from opmark.schema import Run

BEGUN = datetime(2030, 1, 1, tzinfo=timezone.utc)


def state(records: int, taken: float, quiet: float, tasks: int = 100) -> str:
    """Return the progress of a run whose last record began `taken` seconds after the run and `quiet` seconds ago."""
    last = BEGUN + timedelta(seconds=taken)
    run = Run("r", BEGUN.isoformat(), "plan", tasks)
    return estimate_progress(run, {"ok": records}, last.isoformat(), last + timedelta(seconds=quiet)).state


@pytest.mark.parametrize(
    ("records", "taken", "quiet", "expected"),
    [
        (10, 10, SHORTEST - 1, "running"),  # a record a second
        (10, 10, SHORTEST + 1, "quiet"),
        (10, 50, 49, "running"),  # five seconds each: ten times as long is waited for
        (10, 50, 51, "quiet"),
        (10, 1000, LONGEST - 1, "running"),
        (10, 1000, LONGEST + 1, "quiet"),
        (0, 0, LONGEST - 1, "running"),  # the first may be compiling
        (100, 10, 9999, "finished"),
    ],
)
def test_who_was_quick_is_waited_for_less(records: int, taken: float, quiet: float, expected: str) -> None:
    assert state(records, taken, quiet) == expected


def test_what_is_quiet_has_no_time_left() -> None:
    run = Run("r", BEGUN.isoformat(), "plan", 100)
    found = estimate_progress(
        run, {"ok": 10}, (BEGUN + timedelta(seconds=10)).isoformat(), BEGUN + timedelta(seconds=15)
    )
    later = estimate_progress(
        run, {"ok": 10}, (BEGUN + timedelta(seconds=10)).isoformat(), BEGUN + timedelta(seconds=99)
    )
    assert found.remaining == pytest.approx(90)
    assert later.remaining is None
