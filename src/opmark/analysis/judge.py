"""The verdict of one case, from the medians of its processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from opmark.schema.figure import Figure
from opmark.stats.verdict import Comparison, compare_groups, compare_pairs, stage_alpha
from opmark.units import significant


class Rules(NamedTuple):
    margin: float
    drift: float
    """How far apart two sessions of the same code may be."""
    paired: bool
    """Whether processes of one number were measured next to each other."""
    looked: bool = False
    """Whether it was looked at several times, and went on where nothing was decided."""


class Values(NamedTuple):
    """Medians by process."""

    a: Mapping[int, float]
    b: Mapping[int, float]
    cycles_a: Sequence[float]
    cycles_b: Sequence[float]
    """The same in cycles, where every process knows its clock."""

    @classmethod
    def of(cls, a: Mapping[int, Figure], b: Mapping[int, Figure]) -> Values:
        """All of them have a median above 0."""
        times = [{process: figure.median or 0.0 for process, figure in side.items()} for side in (a, b)]
        cycles = [[figure.cycles for figure in side.values() if figure.cycles] for side in (a, b)]
        clocked = len(cycles[0]) == len(a) and len(cycles[1]) == len(b)
        return cls(times[0], times[1], *(cycles if clocked else ([], [])))

    @property
    def rounds(self) -> list[int]:
        return sorted(self.a.keys() & self.b.keys())

    def in_rounds(self) -> Values:
        """What both sides have."""
        rounds = self.rounds
        return self._replace(a={i: self.a[i] for i in rounds}, b={i: self.b[i] for i in rounds})

    @property
    def processes(self) -> tuple[int, int]:
        return len(self.a), len(self.b)

    def centre(self, side: Literal["a", "b"]) -> float:
        own = self.a if side == "a" else self.b
        return math.exp(sum(map(math.log, own.values())) / len(own))


class Judged(NamedTuple):
    found: Comparison
    used: Values
    note: str = ""


def judge(values: Values, floor: float, rules: Rules) -> Judged:
    """In pairs where these were measured in turns; else as two groups, with what may drift between them.

    Where all know their clock, time and cycles have to agree. The clock moves the one and not the other, so that no
    allowance has to be made for it.
    """
    if rules.paired and len(values.rounds) > 1:
        used = values.in_rounds()
        pairs = compare_pairs(list(used.a.values()), list(used.b.values()), floor, margin=rules.margin)
        return Judged(_of_one_look(pairs) if rules.looked else pairs, used)
    a, b = list(values.a.values()), list(values.b.values())
    if values.cycles_a and values.cycles_b:
        time = compare_groups(a, b, floor, margin=rules.margin, drift=0.0)
        cycles = compare_groups(values.cycles_a, values.cycles_b, floor, margin=rules.margin, drift=0.0)
        return _agreed(time, cycles, values)
    groups = compare_groups(a, b, floor, margin=rules.margin, drift=rules.drift)
    return Judged(groups, values, _lonely(values, floor))


def _of_one_look(found: Comparison) -> Comparison:
    """What all looks together may err is shared out among them."""
    called = found.verdict in ("faster", "slower") and found.p >= stage_alpha(0)
    return found._replace(verdict="undecided") if called else found


def _agreed(time: Comparison, cycles: Comparison, values: Values) -> Judged:
    both = time._replace(p=max(time.p, cycles.p))
    if time.verdict == cycles.verdict:
        return Judged(both, values)
    note = f"{time.verdict} in time, but in cycles {significant(cycles.ratio, 4)}x ({cycles.verdict}): the clock moved"
    return Judged(both._replace(verdict="undecided"), values, note)


def _lonely(values: Values, floor: float) -> str:
    if min(values.processes) > 1 or floor > 0:
        return ""
    return "one process says nothing of the next: --processes 5, or `opmark doctor --aa` for the noise here"
