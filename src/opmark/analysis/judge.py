"""The verdict of one case, from the medians of its processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from opmark.schema.figure import Figure
from opmark.stats.verdict import FEWEST, STAGES, Comparison, compare_groups, compare_pairs
from opmark.units import counted, significant

COARSEST = 0.5e-6
"""Seconds: no clock that is used here has larger ticks."""


class Rules(NamedTuple):
    margin: float
    drift: float
    """How far apart two sessions of the same code may be."""
    paired: bool
    """Whether processes of one number were measured next to each other."""
    looked: bool = False
    """Whether it was looked at several times, and went on where nothing was decided: two runs of one session."""


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
    clocked: bool = False
    """Whether cycles had a say, so that no drift was allowed for."""


def judge(values: Values, floor: float, rules: Rules) -> Judged:
    """In pairs where these were measured in turns; else as two groups, with what may drift between them.

    Where all know their clock, time and cycles have to agree. The clock moves the one and not the other, so that no
    allowance has to be made for it.
    """
    if rules.looked or (rules.paired and len(values.rounds) >= FEWEST):
        return _in_turns(values, floor, rules)
    a, b = list(values.a.values()), list(values.b.values())
    note, tick = _lonely(values, floor), tick_of(a, b)
    if values.cycles_a and values.cycles_b:
        cycles = values.cycles_a, values.cycles_b
        both = [compare_groups(*pair, floor, margin=rules.margin, drift=0.0, tick=tick) for pair in ((a, b), cycles)]
        return _agreed(both[0], both[1], values, note)
    groups = compare_groups(a, b, floor, margin=rules.margin, drift=rules.drift, tick=tick)
    return Judged(groups, values, note)


def tick_of(a: Sequence[float], b: Sequence[float]) -> float:
    """How coarse the clock is, relative, where values of a side are exactly alike: the least step between any two.

    Two sides a tick apart may truly differ by nearly none, and more processes do not tell: all are rounded alike.
    """
    steps = sorted({*a, *b})
    if len(steps) < 2 or (len(set(a)) == len(a) and len(set(b)) == len(b)):
        return 0.0
    return min(COARSEST, *(later - earlier for earlier, later in pairwise(steps))) / steps[0]


def _in_turns(values: Values, floor: float, rules: Rules) -> Judged:
    """A session that was cut short may have no round that both sides have; a spread from elsewhere has no place in it,
    since cases leave a session when they are decided."""
    used, looks = values.in_rounds(), len(STAGES) if rules.looked else 1
    if not used.a:
        unknown = compare_groups(list(values.a.values())[:1], list(values.b.values())[:1])
        return Judged(unknown, values, "no process of one side was measured next to one of the other")
    a, b = list(used.a.values()), list(used.b.values())
    found = compare_pairs(a, b, floor, margin=rules.margin, looks=looks, tick=tick_of(a, b))
    few = f"{counted(len(a), 'pair')} of processes: {FEWEST} are needed for a verdict" if len(a) < FEWEST else ""
    return Judged(found, used, few)


def _agreed(time: Comparison, cycles: Comparison, values: Values, note: str) -> Judged:
    both = time._replace(p=max(time.p, cycles.p))
    if time.verdict == cycles.verdict:
        return Judged(both, values, note, clocked=True)
    moved = f"{time.verdict} in time, but in cycles {significant(cycles.ratio, 4)}x ({cycles.verdict}): the clock moved"
    return Judged(both._replace(verdict="undecided"), values, "; ".join(filter(None, (note, moved))), clocked=True)


def _lonely(values: Values, floor: float) -> str:
    fewest = min(values.processes)
    if fewest >= FEWEST or floor > 0:
        return ""
    told = "one process says nothing of the next" if fewest == 1 else f"{fewest} processes tell too little of the next"
    return f"{told}: --processes 5, or `opmark doctor --aa` for the noise here"
