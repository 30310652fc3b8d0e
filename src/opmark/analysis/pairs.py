"""Pair the measurements of two sides by case and way, and judge each pair from the medians of its processes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from opmark.errors import UserError
from opmark.plugin.registry import way_of
from opmark.schema.measurement import Cache, Measurement, is_clocked
from opmark.schema.record import Figure, Status, severity
from opmark.schema.task import Task
from opmark.stats.measurement import cycles as cycles_of
from opmark.stats.verdict import ALPHA, FEWEST, STAGES, Comparison, Spread, compare_groups, compare_pairs
from opmark.units import count_noun, significant

Key = tuple[str, Cache]
"""A quantity and the state of the caches."""


class Way(NamedTuple):
    """One way to compute a case."""

    case: str
    backend: str
    implementation: str
    threads: int
    load: str = ""
    """The load, or the company, as `Settings.circumstances` has it; empty without."""


def way_of_task(task: Task) -> Way:
    settings = task.settings
    return Way(task.case.id, task.backend, task.implementation, settings.threads, settings.circumstances)


class Measured(NamedTuple):
    """The figures of one way on one side, over its processes."""

    way: Way
    figures: Mapping[Key, Mapping[int, Figure]]
    """By key and process, in the order of measuring: the first key is the headline."""
    without: Sequence[Figure]
    """Figures of processes that measured nothing."""
    status: Status
    """`ok`, or the status of the first process that failed: then the case has no number, even if other processes
    have."""

    @property
    def op(self) -> str:
        return self.any.op

    @property
    def any(self) -> Figure:
        """A figure that represents all; a failed one if there is any."""
        return self.without[0] if self.without else next(iter(next(iter(self.figures.values())).values()))


class Matched(NamedTuple):
    pairs: list[tuple[Measured, Measured]]
    only: tuple[list[Measured], list[Measured]]
    ambiguous: set[str]
    """Common cases with several ways on a side, without a rule to choose one. They are in `only`, too."""


# From the strictest to the loosest: the same way, the same in another interpreter, the same implementation on another
# backend, the same number of threads, the case alone; always under the same load, which decides what a latency means.
_RULES: tuple[Callable[[Way], tuple[object, ...]], ...] = (
    lambda way: way,
    lambda way: (way.case, way.backend.partition("@")[0], way.implementation, way.threads, way.load),
    lambda way: (way.case, way.implementation, way.threads, way.load),
    lambda way: (way.case, way.threads, way.load),
    lambda way: (way.case, way.load),
)


def measured(figures: Iterable[Figure]) -> list[Measured]:
    """Group figures by way, in the order of their first figures."""
    found: dict[tuple[str, str, str, int, str], tuple[dict[Key, dict[int, Figure]], list[Figure]]] = {}
    worst: dict[tuple[str, str, str, int, str], Status] = {}
    for figure in figures:
        way = (figure.case, figure.backend, figure.implementation, figure.threads, figure.load)
        kept = found.get(way)
        if kept is None:
            kept = found[way] = ({}, [])
        if figure.quantity and figure.cache:
            by_process = kept[0].setdefault((figure.quantity, figure.cache), {})
            by_process[figure.process] = figure
        else:
            kept[1].append(figure)
        worst[way] = min(worst.get(way, "ok"), figure.status, key=severity)
    return [Measured(Way(*way), *rest, worst[way]) for way, rest in found.items()]


def pair_sides(a: Sequence[Measured], b: Sequence[Measured]) -> Matched | None:
    """Pair two sides case by case; None if they have no common case. UserError if they have, but no pair is
    possible."""
    found = opposite([one.way for one in a], [one.way for one in b])
    if found is None:
        return None
    left, right = ({one.way: one for one in side} for side in (a, b))
    pairs = [(left[one], right[other]) for one, other in found.pairs]
    taken = {one for one, _ in found.pairs}, {other for _, other in found.pairs}
    only = [[one for one in side if one.way not in used] for side, used in zip((a, b), taken, strict=True)]
    return Matched(pairs, (only[0], only[1]), found.ambiguous)


class Opposite(NamedTuple):
    pairs: list[tuple[Way, Way]]
    ambiguous: set[str]


def opposite(a: Sequence[Way], b: Sequence[Way]) -> Opposite | None:
    """Pair the ways of two sides as `pair_sides` does, which is possible before anything is measured."""
    right = _by_case(b)
    found = {case: _of_case(ways, right[case]) for case, ways in _by_case(a).items() if case in right}
    if not found:
        return None
    place = {way: i for i, way in enumerate(a)}
    pairs = sorted((pair for pairs in found.values() for pair in pairs), key=lambda pair: place[pair[0]])
    if pairs:
        return Opposite(pairs, {case for case, pairs in found.items() if not pairs})
    ways = [", ".join(dict.fromkeys(map(_named, side))) for side in (a, b)]
    raise UserError(
        f"{count_noun(len(found), 'case')} in common, but no way to compute them: A has {ways[0]}; B has {ways[1]}",
        "`opmark compare BACKEND BACKEND --run RUN` compares backends of one run; of two runs, each has to have one",
    )


def _by_case(ways: Iterable[Way]) -> dict[str, list[Way]]:
    found: dict[str, list[Way]] = {}
    for way in ways:
        found.setdefault(way.case, []).append(way)
    return found


def _of_case(a: Sequence[Way], b: Sequence[Way]) -> list[tuple[Way, Way]]:
    """Pair the ways of one case by the first rule that gives unambiguous pairs: among all ways, then among the plain
    ones, which represent a framework by default."""
    if len(a) == len(b) == 1 and a[0] == b[0]:
        return [(a[0], b[0])]  # a shortcut of the first rule, for most cases
    plain = [[way for way in side if not way_of(way.backend, way.implementation)] for side in (a, b)]
    for one, other in ((a, b), (plain[0], plain[1])):
        for rule in _RULES:
            keys = [[rule(way) for way in side] for side in (one, other)]
            both = set(keys[0]) & set(keys[1])
            if both and not any(_has_repetition(own, both) for own in keys):
                right = dict(zip(keys[1], other, strict=True))
                return [(way, right[key]) for key, way in zip(keys[0], one, strict=True) if key in both]
    return []


def _has_repetition(keys: Sequence[object], among: set[tuple[object, ...]]) -> bool:
    return any(count > 1 and key in among for key, count in Counter(keys).items())


def _named(way: Way) -> str:
    return ", ".join(filter(None, (f"{way.backend}/{way.implementation} ×{way.threads}", way.load)))


COARSEST = 0.5e-6
"""Seconds: upper bound on the ticks of the clocks that are used."""


class Rules(NamedTuple):
    margin: float
    drift: float
    """How far apart two sessions of the same code may be, if the user has said so."""
    paired: bool
    """Whether processes with the same number were measured next to each other."""
    looked: bool = False
    """Whether the comparison was evaluated several times and went on while undecided: two runs of one session."""
    sessions: Spread | None = None
    """How far sessions of the same code spread, if there are two and the user has not said how far apart they may
    be."""
    clocked: Spread | None = None
    """The same where cycles are compared too, so that the clock is no part of it."""
    alpha: float = ALPHA
    mixed: bool = False
    """Whether nodes of a fleet may be compared with each other though nobody knows that they agree."""


class Values(NamedTuple):
    """Medians by process."""

    a: Mapping[int, float]
    b: Mapping[int, float]
    cycles_a: Sequence[float]
    cycles_b: Sequence[float]
    """The same in cycles, where every process knows its clock."""

    @classmethod
    def of(cls, a: Mapping[int, Figure], b: Mapping[int, Figure]) -> Values:
        """Make values of figures, all of which have a median above 0."""
        times = [{process: figure.median or 0.0 for process, figure in side.items()} for side in (a, b)]
        cycles = [[f.cycles for f in side.values() if f.cycles and is_clocked(f.quantity)] for side in (a, b)]
        clocked = len(cycles[0]) == len(a) and len(cycles[1]) == len(b)
        return cls(times[0], times[1], *(cycles if clocked else ([], [])))

    @classmethod
    def of_measurements(cls, a: Mapping[int, Measurement], b: Mapping[int, Measurement]) -> Values:
        """Make values of measurements, all of which have a median above 0."""
        times = [{process: median(one.samples) for process, one in side.items()} for side in (a, b)]
        cycles = [
            [count for one in side.values() if is_clocked(one.quantity) and (count := cycles_of(one))]
            for side in (a, b)
        ]
        clocked = len(cycles[0]) == len(a) and len(cycles[1]) == len(b)
        return cls(times[0], times[1], *(cycles if clocked else ([], [])))

    @property
    def rounds(self) -> list[int]:
        return sorted(self.a.keys() & self.b.keys())

    def in_rounds(self) -> Values:
        """Return the values of processes that both sides have."""
        rounds = self.rounds
        return self._replace(a={i: self.a[i] for i in rounds}, b={i: self.b[i] for i in rounds})

    @property
    def processes(self) -> tuple[int, int]:
        return len(self.a), len(self.b)

    def centre(self, side: Literal["a", "b"]) -> float:
        own = self.a if side == "a" else self.b
        return math.exp(sum(map(math.log, own.values())) / len(own))


class CaseVerdict(NamedTuple):
    found: Comparison
    used: Values
    note: str = ""
    clocked: bool = False
    """Whether cycles were compared too, so that no drift had to be allowed for."""


def judge(values: Values, floor: float, rules: Rules) -> CaseVerdict:
    """Compare in pairs if the sides were measured in turns; else as two groups, allowing for what sessions differ by.

    If the clock is known for all processes, times and cycles have to agree. A change of the clock affects times only,
    so no drift has to be allowed for, and sessions spread less.
    """
    if rules.looked or (rules.paired and len(values.rounds) >= FEWEST):
        return _in_turns(values, floor, rules)
    a, b = list(values.a.values()), list(values.b.values())
    tick, alpha, margin = tick_of(a, b), rules.alpha, rules.margin
    if values.cycles_a and values.cycles_b:
        cycles = values.cycles_a, values.cycles_b
        both = [
            compare_groups(*pair, floor, alpha, margin, tick=tick, sessions=rules.clocked) for pair in ((a, b), cycles)
        ]
        return _combine(both[0], both[1], values)
    groups = compare_groups(a, b, floor, alpha, margin, rules.drift, tick, rules.sessions)
    return CaseVerdict(groups, values, _few_processes_note(groups, values))


def tick_of(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the relative resolution of the clock if values of a side are exactly equal: the least step between any
    two.

    Sides that are one tick apart may in truth hardly differ, and more processes do not help: all are rounded alike.
    """
    steps = sorted({*a, *b})
    if len(steps) < 2 or (len(set(a)) == len(a) and len(set(b)) == len(b)):
        return 0.0
    return min(COARSEST, *(later - earlier for earlier, later in pairwise(steps))) / steps[0]


def _in_turns(values: Values, floor: float, rules: Rules) -> CaseVerdict:
    """Compare in pairs. A session that was cut short may have no common round. A spread from elsewhere cannot replace
    that of a session, because cases leave it as soon as they are decided."""
    used, looks = values.in_rounds(), len(STAGES) if rules.looked else 1
    if not used.a:
        unknown = compare_groups(list(values.a.values())[:1], list(values.b.values())[:1])
        return CaseVerdict(unknown, values, "no process of one side was measured next to one of the other")
    a, b = list(used.a.values()), list(used.b.values())
    found = compare_pairs(a, b, floor, rules.alpha, rules.margin, looks, tick_of(a, b))
    few = f"{count_noun(len(a), 'pair')} of processes: {FEWEST} are needed for a verdict" if len(a) < FEWEST else ""
    return CaseVerdict(found, used, few)


def _combine(time: Comparison, cycles: Comparison, values: Values) -> CaseVerdict:
    both = time._replace(p=max(time.p, cycles.p))
    if time.verdict == cycles.verdict:
        return CaseVerdict(both, values, _few_processes_note(both, values), clocked=True)
    moved = f"{time.verdict} in time, but in cycles {significant(cycles.ratio, 4)}x ({cycles.verdict}): the clock moved"
    both = both._replace(verdict="undecided")
    note = "; ".join(filter(None, (_few_processes_note(both, values), moved)))
    return CaseVerdict(both, values, note, clocked=True)


def _few_processes_note(found: Comparison, values: Values) -> str:
    fewest = min(values.processes)
    if fewest >= FEWEST or found.verdict != "undecided":
        return ""
    return f"{count_noun(fewest, 'process', 'processes')} only"
