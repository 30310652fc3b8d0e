"""Which of several ways to compute the same thing is the fastest, and whether that is more than chance and noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opmark.metrics.summary import Summary, summarize
from opmark.schema import Cache, Measurement, Record
from opmark.schema.measurement import PREEMPTED
from opmark.stats import median
from opmark.stats.verdict import MARGIN, compare_pairs

Key = tuple[str, Cache]
"""A quantity and the state of the caches."""

ASSUMED_FLOOR = 0.05
"""How far apart two processes that run the same code are, where nobody has measured it here (`doctor --aa`). Over ten
rounds the medians of single processes varied by 4 % on a quiet machine (benchmarks/README.md)."""

DISTURBED_FLOOR = 0.25
"""The same where the machine was not quiet: in a noisy hour single processes varied by so much (ibid.)."""
DISTURBED = frozenset({"loaded", "stolen", "interrupted", "clocks-moved", "drifting", "unsettled"})
"""Codes of cautions that tell of it."""

_CONFIDENCE = 0.95


class Contender(NamedTuple):
    """One way to compute a case, as it was measured."""

    records: tuple[Record, ...]
    """At least one; the same task but for the process."""
    run: str = ""
    floor: float | None = None
    """Relative spread of the medians of processes that run the same code, if it was measured."""

    def measurements(self, key: Key) -> dict[int, Measurement]:
        """By process."""
        found = ((r.task.settings.process, r.measurement(*key)) for r in self.records)
        return {process: measurement for process, measurement in found if measurement}

    def summary(self, key: Key) -> Summary | None:
        found = list(self.measurements(key).values())
        return summarize(found) if found else None

    def why_out(self, key: Key) -> str:
        """Why its number is not to be chosen by, or nothing."""
        failed = next((r for r in self.records if r.status != "ok"), None)
        if failed:
            return f"{failed.status}: {failed.reason}"
        unchecked = next((r for r in self.records if not verified(r)), None)
        if unchecked:
            note = unchecked.verification.note if unchecked.verification else ""
            return f"not verified: {note}" if note else "not verified"
        found = self.measurements(key).values()
        if len(found) < len(self.records):
            return f"{' '.join(key)} was not measured"
        if any(caution.code == PREEMPTED for measurement in found for caution in measurement.cautions):
            return "preempted: the number is the scheduler's"
        return "" if all(median(m.samples) > 0 for m in found) else "below what can be measured"


def verified(record: Record) -> bool:
    """In full or at a smaller size."""
    return record.status == "ok" and record.verification is not None and record.verification.checked != "none"


def shared_key(contenders: Iterable[Sequence[Record]]) -> Key | None:
    """What all of them measured that measured anything: the first of it, as the first of them has it."""
    measured = [list(dict.fromkeys((m.quantity, m.cache) for r in records for m in r.measurements))
                for records in contenders]  # fmt: skip
    measured = [keys for keys in measured if keys]
    return next((key for key in measured[0] if all(key in keys for keys in measured)), None) if measured else None


def leads(first: Contender, second: Contender, key: Key) -> bool:
    """Whether the first is faster, beyond doubt.

    In one run and several processes, these are held against each other in pairs, round by round. A lone process says
    nothing of the next one: then the intervals of both medians must be apart, and the difference larger than what
    samples, and processes of the same code, differ by; the more so where the machine was not quiet.
    """
    one, other = first.measurements(key), second.measurements(key)
    rounds = sorted(one.keys() & other.keys()) if first.run == second.run else []
    floors = [floor for floor in (first.floor, second.floor) if floor is not None]
    if len(rounds) > 1:
        quick, slow = ([median(found[i].samples) for i in rounds] for found in (one, other))
        return compare_pairs(quick, slow, floor=max(floors, default=0.0)).verdict == "slower"
    ahead, behind = first.summary(key), second.summary(key)
    if not ahead or not behind or min(ahead.coverage, behind.coverage) < _CONFIDENCE or ahead.high >= behind.low:
        return False
    disturbed = any(c.code in DISTURBED for found in (one, other) for m in found.values() for c in m.cautions)
    floor = max(max(floors, default=ASSUMED_FLOOR), DISTURBED_FLOOR if disturbed else 0.0)
    return math.log(behind.median / ahead.median) >= math.log1p(max(MARGIN, 2 * floor, ahead.noise, behind.noise))


def ordered(contenders: Sequence[Contender], key: Key) -> list[int]:
    """Places of those that count, the fastest first."""
    summaries = ((i, contender.summary(key)) for i, contender in enumerate(contenders) if not contender.why_out(key))
    return [i for _, i in sorted((summary.median, i) for i, summary in summaries if summary)]


def winner(contenders: Sequence[Contender], key: Key) -> int | None:
    """The place of the one that leads all others; None where none does, or where there is nobody to lead."""
    order = ordered(contenders, key)
    if len(order) < 2 or challenged(contenders, key) or mixed(contenders, key):
        return None
    first = contenders[order[0]]
    return order[0] if all(leads(first, contenders[i], key) for i in order[1:]) else None


def challenged(contenders: Sequence[Contender], key: Key) -> bool:
    """Whether somebody right was as fast as the fastest that counts, in a number that does not: the scheduler only ever
    adds to it."""
    order = ordered(contenders, key)
    fastest = contenders[order[0]].summary(key) if order else None
    doubted = [one for one in contenders if one.why_out(key) and all(map(verified, one.records))]
    return fastest is not None and any((s := one.summary(key)) and s.fastest <= fastest.median for one in doubted)


def mixed(contenders: Sequence[Contender], key: Key) -> bool:
    """Whether some look at the same data in another way where others copy it: that is no race."""
    order = ordered(contenders, key)
    return len({any(record.view for record in contenders[i].records) for i in order}) > 1
