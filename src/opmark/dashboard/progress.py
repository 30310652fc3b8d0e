"""How far a run is that may still be written."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Literal

from msgspec import Struct

from opmark.schema import Run
from opmark.schema.record import FAILED

SHORTEST, LONGEST = 20.0, 120.0
"""Seconds without a record after which nobody seems to be writing any more: so many at least, and at most."""
SLOWER = 10.0
"""Between these, so many times what its records took in the mean: one may take longer than others."""
State = Literal["running", "finished", "quiet"]


class Progress(Struct, frozen=True):
    run: str
    tasks: int
    records: int
    failed: int
    statuses: dict[str, int]
    state: State
    """`quiet`: records are missing, and none was written lately: it was interrupted, or it is slow."""
    last: str = ""
    """When the last record was begun; UTC, ISO 8601."""
    quiet: float | None = None
    """Seconds since then."""
    per_second: float | None = None
    remaining: float | None = None
    """Seconds until it is done, if it goes on as it did."""


def progress_of(run: Run, statuses: dict[str, int], last: str, now: datetime | None = None) -> Progress:
    now = now or datetime.now(timezone.utc)
    records = sum(statuses.values())
    begun, newest = _time(run.started), _time(last) or _time(run.started)
    quiet = max(0.0, (now - newest).total_seconds()) if newest else None
    taken = (newest - begun).total_seconds() if begun and newest else 0.0
    rate = records / taken if taken > 0 and records else None
    patience = min(LONGEST, max(SHORTEST, SLOWER / rate)) if rate else LONGEST
    state: State = "finished" if records >= run.tasks else "quiet" if quiet is None or quiet > patience else "running"
    left = (run.tasks - records) / rate if rate and state == "running" else None
    failed = sum(count for status, count in statuses.items() if status in FAILED)
    return Progress(run.id, run.tasks, records, failed, statuses, state, last, quiet, rate, left)


def _time(text: str) -> datetime | None:
    """None for what no clock of ours wrote: stores come from anywhere."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
