"""Measures the points that tell what each factor does: curves through a base point, grids of pairs, and more levels
where a curve bends; then all of them again in fresh processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.errors import InvalidParameter, UserError
from opmark.hardware import resctrl
from opmark.runner.plan import Plan
from opmark.runner.session import Retries, run_plan
from opmark.runner.supervisor import KeptWorkers, WorkerOptions
from opmark.schema import Record, Task
from opmark.schema.record import MEASURED
from opmark.stats.factors import bend_place
from opmark.stats.interval import median_interval
from opmark.tuning.factors import CaseFactor, Value, make_task
from opmark.units import count_noun

_PAIR_SHARE = 0.4
"""Share of the points that grids of pairs may take, unless the curves need fewer than the rest."""
_USUAL_SPREAD = 0.02
"""Processes differ by about so much, which one process alone does not show."""
_MOST_WORKERS = 4
"""Idle workers that are kept for further points."""

Point = tuple[Value, ...]
"""A value for each factor."""


class FactorProgress(NamedTuple):
    """What is about to be measured."""

    number: int
    most: int
    process: int
    processes: int
    what: str


@dataclass(frozen=True)
class FactorOptions:
    points: int
    processes: int
    deadline: float
    """When to stop, by `clock`."""
    workers: WorkerOptions
    retries: Retries
    done: Mapping[str, Record]
    """Records of an interrupted run by task id: they are used instead of measuring."""
    add: Callable[[Record], None]
    """Stores a record."""
    interactions: bool = True
    on_progress: Callable[[FactorProgress], None] = lambda progress: None
    clock: Callable[[], float] = time.monotonic


@dataclass
class FactorMeasurements:
    tasks: dict[Point, Task] = field(default_factory=dict)
    """Tasks of process 0, in the order in which they were asked for."""
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measure_factors(base: Task, factors: Sequence[CaseFactor], options: FactorOptions) -> FactorMeasurements:
    """Measure a design around a base point. UserError if the base cannot be measured."""
    search = _FactorSearch(base, factors, options)
    try:
        search.explore()
        search.repeat()
    finally:
        search.close()
    return search.found


class _FactorSearch:
    def __init__(self, base: Task, factors: Sequence[CaseFactor], options: FactorOptions) -> None:
        self.base, self.factors, self.options = base, factors, options
        self.found = FactorMeasurements()
        self.origin: Point = tuple(factor.base for factor in factors)
        self.times: dict[Point, tuple[float, float]] = {}
        """By point: logarithm of the time in the first process, and its standard deviation."""
        self.pool = KeptWorkers()
        self.workers = _with_pool(options.workers, self.pool)
        self.refused: dict[str, list[str]] = {}
        self.longest = 0.0
        """Seconds of the longest task: none is begun that would not be done before the deadline."""
        self.began = options.clock()
        self.first_deadline = self.began + (options.deadline - self.began) / options.processes
        """Every process gets its share of the budget, and the first one says how many points there are."""

    def close(self) -> None:
        self.pool.close()
        if any(factor.name == "l3_ways" for factor in self.factors):
            resctrl.remove_groups()

    # The first process: which points are worth measuring.

    def explore(self) -> None:
        self._measure([self.origin], "the base")
        if self.origin not in self.times:
            reasons = [record.reason or record.status for record in self.found.records]
            raise UserError(
                f"the base of the factors cannot be measured: {(reasons or ['nothing was tried'])[-1]}",
                f"`opmark run {self.base.case.op}` with the same options tells more",
            )
        first = [(place, level) for place, factor in enumerate(self.factors) for level in factor.first_levels()]
        self._measure([self._at(place, level) for place, level in first], "curves")
        if self.options.interactions and len(self.factors) > 1:
            self._measure_pairs()
        self._refine()
        for name, levels in self.refused.items():
            self.found.notes.append(f"{name}: not taken by the operator: {', '.join(dict.fromkeys(levels))}")

    def _at(self, place: int, level: Value, other: int | None = None, second: Value = 0) -> Point:
        point = list(self.origin)
        point[place] = level
        if other is not None:
            point[other] = second
        return tuple(point)

    def _measure_pairs(self) -> None:
        """Measure the combinations of a few levels of two factors, those first whose curves reach furthest."""
        room = max(int(_PAIR_SHARE * self.options.points), self.options.points - 2 * len(self.found.tasks))
        room = min(room, self.options.points - len(self.found.tasks))
        reach = {place: self._reach(place) for place in range(len(self.factors))}
        pairs = sorted(combinations(reach, 2), key=lambda pair: -min(reach[pair[0]], reach[pair[1]]))
        points: list[Point] = []
        left_out = 0
        for first, second in pairs:
            own = [self._at(first, a, second, b) for a in self._corners(first) for b in self._corners(second)]
            if len(points) + len(own) > room:
                left_out += 1
                continue
            points += own
        if left_out:
            self.found.notes.append(
                f"{count_noun(left_out, 'pair')} of factors not measured: more --trials would have room for them"
            )
        self._measure(points, "pairs")

    def _corners(self, place: int) -> list[Value]:
        """Return the levels of a factor that stand for it in pairs: the ends of a range, or up to three others."""
        measured = [level for level, _ in self._curve(place)]
        others = [level for level in measured if level != self.factors[place].base]
        if not self.factors[place].ordered and not all(_is_number(level) for level in others):
            return others[:3]
        return list(dict.fromkeys([*others[:1], *others[-1:]]))

    def _reach(self, place: int) -> float:
        values = [self.times[self._at(place, level)][0] for level, _ in self._curve(place)]
        return max(values) - min(values) if values else 0.0

    def _curve(self, place: int) -> list[tuple[Any, float]]:
        """Return the levels of a factor that were measured at the base of all others, in order, with their times."""
        rest = [other for other in range(len(self.factors)) if other != place]
        found = [
            (point[place], value) for point, (value, _) in self.times.items()
            if all(point[other] == self.origin[other] for other in rest)
        ]  # fmt: skip
        if self.factors[place].ordered:
            return sorted(found)
        order = {level: number for number, level in enumerate(self.factors[place].levels)}
        return sorted(found, key=lambda pair: order[pair[0]])

    def _refine(self) -> None:
        """Add levels where a curve bends by more than its uncertainty explains, until nothing bends any more."""
        exhausted: set[tuple[int, Value]] = set()
        while len(self.found.tasks) < self.options.points and self.options.clock() < self.first_deadline:
            best: tuple[float, int, Value, Value] | None = None
            for place, factor in enumerate(self.factors):
                if not factor.ordered:
                    continue
                curve = self._curve(place)
                scale = [math.log(level) for level, _ in curve]
                deviations = [math.hypot(self.times[self._at(place, level)][1], _USUAL_SPREAD) for level, _ in curve]
                bend = bend_place(scale, [value for _, value in curve], deviations)
                if bend is None:
                    continue
                low, high = curve[bend[1]][0], curve[bend[1] + 1][0]
                middle = factor.between(low, high)
                if middle is None or (place, middle) in exhausted or (best and bend[0] <= best[0]):
                    continue
                best = bend[0], place, middle, low
            if best is None:
                return
            _, place, middle, _ = best
            exhausted.add((place, middle))
            self._measure([self._at(place, middle)], f"where {self.factors[place].name} bends")

    # Further processes: the same points again.

    def repeat(self) -> None:
        self.pool.close()
        tasks = list(self.found.tasks.values())
        for process in range(1, self.options.processes):
            again = [replace(task, settings=replace(task.settings, process=process)) for task in tasks]
            # Every second process runs backwards, so that an even drift hits all points alike.
            self._run(again[:: -1 if process % 2 else 1], f"process {process + 1}", self.options.deadline, process)
            self.pool.close()

    def _measure(self, points: Sequence[Point], what: str) -> None:
        tasks: dict[Point, Task] = {}
        room = self.options.points - len(self.found.tasks)
        for point in dict.fromkeys(points):
            if point in self.found.tasks or len(tasks) >= room:
                continue
            values = dict(zip((factor.name for factor in self.factors), point, strict=True))
            try:
                tasks[point] = make_task(self.base, self.factors, values)
            except InvalidParameter:
                self._note_refusal(point)
        self.found.tasks |= tasks
        place_of = {task.id: point for point, task in tasks.items()}
        for record in self._run(list(tasks.values()), what, self.first_deadline, 0):
            if value := _log_time(record):
                self.times[place_of[record.task.id]] = value

    def _note_refusal(self, point: Point) -> None:
        off = [(f, value) for f, value, base in zip(self.factors, point, self.origin, strict=True) if value != base]
        if len(off) == 1:
            self.refused.setdefault(off[0][0].name, []).append(off[0][0].format(off[0][1]))

    def _run(self, tasks: Sequence[Task], what: str, deadline: float, process: int) -> list[Record]:
        """Run tasks until the deadline, those of one worker after each other. What is known already is not measured."""
        options = self.options
        made: list[Record] = []
        known = [options.done[task.id] for task in tasks if task.id in options.done]
        left = [task for task in tasks if task.id not in options.done]
        order: dict[Any, int] = {}
        for task in left:
            order.setdefault(_worker_key(task), len(order))
        left.sort(key=lambda task: order[_worker_key(task)])
        # How many points there will be is known once the first process is done; until then, at most so many.
        points = len(self.found.tasks) if process else options.points
        for _, group in groupby(left, key=_worker_key):
            for task in group:
                began = options.clock()
                if (began > deadline or began + self.longest > options.deadline) and self.times:
                    self._note_budget(process)
                    break
                number = len(self.found.records) + len(known) + len(made) + 1
                most = max(number, points * options.processes)
                options.on_progress(FactorProgress(number, most, process, options.processes, what))
                fresh = not (self.found.records or known or made)  # later, a level that cannot be had is skipped
                for record in run_plan(Plan((task,), ()), self.workers, retries=options.retries, fresh=fresh):
                    options.add(record)
                    made.append(record)
                self.longest = max(self.longest, options.clock() - began)
            self._limit_workers()
        self.found.records += [*known, *made]
        return [*known, *made]

    def _note_budget(self, process: int) -> None:
        place = f"process {process + 1} of {self.options.processes}"
        note = f"the budget was spent in {place}: a larger --budget tells more"
        if note not in self.found.notes:
            self.found.notes.append(note)

    def _limit_workers(self) -> None:
        if self.pool.count > _MOST_WORKERS:
            self.pool.close()


def _with_pool(options: WorkerOptions, pool: KeptWorkers) -> WorkerOptions:
    from dataclasses import replace as replace_fields

    return replace_fields(options, pool=pool)


def _worker_key(task: Task) -> tuple[int, object]:
    return task.settings.threads, task.settings.resources


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _log_time(record: Record) -> tuple[float, float] | None:
    """Return the logarithm of the time of a record, and the standard deviation that its samples show. What other work
    disturbed is good enough to choose points by."""
    measured = record.measurement() if record.status in MEASURED else None
    if measured is None or not measured.per_call or measured.per_call <= 0:
        return None
    interval = median_interval(measured.samples)
    spread = math.log(interval.high / interval.low) / 4 if interval.low > 0 else 0.0
    return math.log(measured.per_call), spread
