"""What figures of all cases share: where something ran, what is left out and why, names of ways, free addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from opmark.analysis.rows import MachineFacts, Row, RunView, Timing
from opmark.charts.parts import end, positive, usable
from opmark.registry import way_of
from opmark.schema.chart import Chart
from opmark.schema.dtype import DTYPES
from opmark.schema.measurement import PREEMPTED
from opmark.schema.peaks import kept_under
from opmark.units import counted

COMMUNICATION = "of communication: the figures of bus bandwidth tell of it"
NO_TIME = "whose headline is no time"
NO_MEDIAN = "without a median above 0"
SCHEDULER = "that the scheduler interrupted: the number is its own"
LATENCY = "latency"
LINEAR = 20.0
"""Up to this factor between bars the shortest can still be seen on a linear axis."""
ONE_PROCESS = "intervals are of one process, and another may lie outside them: `--processes 5` tells"
LAUNCHED = "latency on a device has the launch in it: it is no measure of the kernels alone"

_UNKNOWN = MachineFacts()


class Place(Struct, frozen=True):
    """Hardware with its limits: environments that share both are one."""

    key: str
    name: str
    """The chip; of a processor with the number of threads."""
    machine: MachineFacts
    device: bool = False
    """Whether calls are launched there from a processor beside it."""


NOWHERE = Place("", "unknown hardware", _UNKNOWN)
"""The hardware of what never ran, or ran nobody knows where."""


def places(run_view: RunView) -> dict[str, Place]:
    """By the id of an environment. A processor with other threads has other limits: it is another place."""
    found = {}
    for environment, facts in run_view.environments.items():
        name = kept_under(facts)
        own = run_view.machines.get(environment, _UNKNOWN)._replace(noise=None)  # that is of a backend
        found[environment] = Place(f"{name} {json.encode(own).decode()}", name, own, _is_device(facts))
    return found


def _is_device(facts: dict[str, Any]) -> bool:
    return bool(facts.get("gpu") or facts.get("chip")) or (facts.get("device") or "cpu") != "cpu"


class Left:
    """What a figure leaves out: how many, by reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def out(self, reason: str, number: int = 1) -> None:
        self._counts[reason] += number

    def notes(self) -> tuple[str, ...]:
        """One line, if there is anything."""
        told = [f"{counted(number, 'case')} {reason}" for reason, number in self._counts.items()]
        return (f"left out: {'; '.join(told)}",) if told else ()


def why_out(row: Row) -> str:
    """Why there is no time of its work to draw, or nothing."""
    if row.status != "ok":
        return f"that ended as `{row.status}`"
    if row.traffic is not None:
        return COMMUNICATION
    first = row.headline
    if first is not None and first.unit != "s":
        return NO_TIME
    if first is not None and PREEMPTED in first.cautions:
        return SCHEDULER
    return "" if usable(first) else NO_MEDIAN


def timed(timing: Timing | None) -> bool:
    """Whether it is a time that says something of the operator, and has a place on a logarithmic axis."""
    return usable(timing) and timing.unit == "s"


def ends(timing: Timing) -> tuple[float | None, float | None]:
    """Ends of its interval, where both can be drawn."""
    low, high = end(timing.low), end(timing.high)
    return (low, high) if low is not None and high is not None else (None, None)


def alone(timings: Iterable[Timing | None]) -> tuple[str, ...]:
    """A note where an interval knows of one process only."""
    found = any(t is not None and t.processes == 1 and t.low is not None for t in timings)
    return (ONE_PROCESS,) if found else ()


class Ways:
    """Backend and implementation as series are called; asked for thousands of times."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def name(self, row: Row) -> str:
        key = (row.backend, row.implementation)
        if key not in self._known:
            self._known[key] = row.backend + way_of(*key)
        return self._known[key]


def rank(dtype: str) -> tuple[int, str]:
    """Element types in their usual order, those that nobody knows last."""
    return (list(DTYPES).index(dtype) if dtype in DTYPES else len(DTYPES), dtype)


def phased(row: Row) -> str:
    """The operator, and the phase where it is not the usual one."""
    return row.op if row.phase == "forward" else f"{row.op} {row.phase_text}"


def doubts(timing: Timing) -> str:
    return ", ".join(timing.cautions)


def wide(values: Sequence[float], most: float) -> bool:
    """Whether they are so far apart that only a logarithmic axis shows the smallest."""
    known = [value for value in values if positive(value)]
    return bool(known) and max(known) > most * min(known)


def unique(charts: Iterable[Chart]) -> list[Chart]:
    """The second of an address gets a number: names that differ may have the same letters."""
    taken: set[str] = set()
    found = []
    for chart in charts:
        free, number = chart.id, 1
        while free in taken:
            number += 1
            free = f"{chart.id}-{number}"
        taken.add(free)
        found.append(chart if free == chart.id else replace(chart, id=free))
    return found
