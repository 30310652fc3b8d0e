"""Concurrent operators on the same resources: stages, found by dynamic programming as IOS does.

A block of units is cut into stages, one after the other. A stage is a set of units that wait for nothing but earlier
stages; its connected parts run beside each other in lanes, which share the threads. The best way to finish a block from
any set of finished units is found once, whatever led there. What a stage costs is measured, not modelled; a first pass
with estimates says which stages are worth it. The whole program may also be one stage, in which lanes wait for each
other where they have to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import inf

from opmark.prediction.equilibrium import DeviceTimes, find_equilibria

MOST_CANDIDATES = 16
"""Stages of a block that are measured."""
_WORTH = 1.5
"""A stage is measured if the best schedule with it takes at most so many times as long as the best, as estimated."""


@dataclass(frozen=True)
class StageChoice:
    """One way to run a set of units."""

    lanes: tuple[tuple[int, ...], ...]
    threads: int
    """Threads inside of the operators, in every lane."""
    waits: bool = False
    """Whether a lane waits for units of another one."""

    @property
    def units(self) -> frozenset[int]:
        return frozenset(unit for lane in self.lanes for unit in lane)


Seconds = Callable[[int, int], float]
"""seconds(unit, threads): time of a unit alone."""
Cost = Callable[[StageChoice], float]
"""Seconds of a stage; infinite for one that is not known."""


def lane_counts(cores: int) -> list[int]:
    """Return the numbers of lanes that are looked at: powers of two, and one lane per core."""
    found = {cores, *(1 << i for i in range(1, cores.bit_length()))}
    return sorted(count for count in found if 2 <= count <= cores)


def estimated_cost(seconds: Seconds, needs: Sequence[frozenset[int]], handover: float) -> Cost:
    """Return the cost of a stage as it would be without interference: the lane that ends last decides."""

    def cost(stage: StageChoice) -> float:
        times = lane_times(stage.lanes, needs, lambda unit: seconds(unit, stage.threads), handover)
        return max(end for _, end in times.values()) + (handover if len(stage.lanes) > 1 else 0.0)

    return cost


def lane_times(
    lanes: Sequence[Sequence[int]],
    needs: Sequence[frozenset[int]],
    seconds: Callable[[int], float],
    handover: float = 0,
) -> dict[int, tuple[float, float]]:
    """Return when the units of a stage begin and end: each when its lane is free and the units of the stage that it
    needs are done; those of another lane hand over."""
    place = {unit: number for number, lane in enumerate(lanes) for unit in lane}
    left, free = [list(reversed(lane)) for lane in lanes], [0.0] * len(lanes)
    found: dict[int, tuple[float, float]] = {}
    while len(found) < len(place):
        for number, lane in enumerate(left):
            while lane and all(before in found for before in needs[lane[-1]] & place.keys()):
                unit = lane.pop()
                arrived = (
                    found[before][1] + (handover if place[before] != number else 0.0)
                    for before in needs[unit] & place.keys()
                )
                start = max(free[number], *arrived, 0.0)
                free[number] = start + seconds(unit)
                found[unit] = (start, free[number])
    return found


def stage_choices(
    units: frozenset[int], needs: Sequence[frozenset[int]], seconds: Seconds, cores: int
) -> list[StageChoice]:
    """Return the ways to run a set of units as one stage: a single unit with all cores, or its connected parts in lanes
    that are as equally long as possible."""
    if len(units) == 1:
        return [StageChoice((tuple(units),), cores)]
    parts = connected_parts(units, needs)
    found = []
    for count in sorted({min(count, len(parts)) for count in lane_counts(cores)}):
        if count < 2:
            continue
        threads = max(1, cores // count)
        lengths = [(sum(seconds(unit, threads) for unit in part), part) for part in parts]
        lanes: list[list[int]] = [[] for _ in range(count)]
        loads = [0.0] * count
        for length, part in sorted(lengths, key=lambda one: (-one[0], one[1])):
            least = loads.index(min(loads))
            lanes[least] += part
            loads[least] += length
        # A lane runs its units in topological order, and the caller's thread has the longest lane.
        ordered = sorted(zip(loads, lanes, strict=True), key=lambda one: -one[0])
        found.append(StageChoice(tuple(tuple(sorted(lane)) for _, lane in ordered), threads))
    return found


def waiting_lanes(needs: Sequence[frozenset[int]], seconds: Seconds, cores: int, handover: float) -> list[StageChoice]:
    """Return the ways to run all units as one stage whose lanes wait for each other: every unit is in the lane in which
    it is done first, an equilibrium."""
    found = []
    for count in lane_counts(cores):
        threads = max(1, cores // count)
        crossing = dict.fromkeys(permutations(range(count), 2), handover)
        edges = {(before, unit): crossing for unit, some in enumerate(needs) for before in some}
        rows = tuple((seconds(unit, threads),) * count for unit in range(len(needs)))
        played = find_equilibria(DeviceTimes(tuple(map(str, range(count))), rows, tuple(needs), edges), starts=1)
        if played is None or len(set(played.best.devices)) == 1:
            continue
        order = sorted(range(len(needs)), key=lambda unit: (played.best.starts[unit], unit))
        lanes = [tuple(unit for unit in order if played.best.devices[unit] == lane) for lane in range(count)]
        found.append(StageChoice(tuple(filter(None, lanes)), threads, waits=True))
    return found


def connected_parts(units: frozenset[int], needs: Sequence[frozenset[int]]) -> list[tuple[int, ...]]:
    """Return the parts of a set of units between which nothing waits, each in topological order."""
    root = {unit: unit for unit in units}

    def find(unit: int) -> int:
        while root[unit] != unit:
            unit = root[unit]
        return unit

    for unit in units:
        for before in needs[unit] & units:
            root[find(unit)] = find(before)
    parts: dict[int, list[int]] = {}
    for unit in sorted(units):
        parts.setdefault(find(unit), []).append(unit)
    return [tuple(part) for part in parts.values()]


class BlockSearch:
    """All ways to cut a block into stages."""

    def __init__(self, block: Sequence[int], needs: Sequence[frozenset[int]], choices: Callable[
        [frozenset[int]], Iterable[StageChoice]
    ]) -> None:  # fmt: skip
        self.block = frozenset(block)
        self.needs = [before & self.block for before in needs]
        self._choices = cache(lambda units: tuple(choices(units)))
        self._next = cache(self._find_next)

    def ready_sets(self, done: frozenset[int]) -> tuple[frozenset[int], ...]:
        """Return the sets of units that may be the next stage: each has what its units wait for, or it is done."""
        return self._next(done)

    def _find_next(self, done: frozenset[int]) -> tuple[frozenset[int], ...]:
        found: list[frozenset[int]] = []
        waiting = [frozenset({unit}) for unit in self.block - done if self.needs[unit] <= done]
        seen = set(waiting)
        while waiting:
            units = waiting.pop()
            found.append(units)
            for unit in self.block - done - units:
                larger = units | {unit}
                if larger not in seen and self.needs[unit] <= done | units:
                    seen.add(larger)
                    waiting.append(larger)
        return tuple(sorted(found, key=lambda units: (len(units), sorted(units))))

    def best(self, cost: Cost) -> tuple[float, list[StageChoice]]:
        """Return the least cost of the block and its stages."""
        known: dict[frozenset[int], tuple[float, StageChoice | None]] = {self.block: (0.0, None)}

        def rest(done: frozenset[int]) -> float:
            if done not in known:
                least: tuple[float, StageChoice | None] = (inf, None)
                for units in self.ready_sets(done):
                    for choice in self._choices(units):
                        own = cost(choice)
                        if own < least[0] and (whole := own + rest(done | units)) < least[0]:
                            least = (whole, choice)
                known[done] = least
            return known[done][0]

        total, stages, done = rest(frozenset()), [], frozenset[int]()
        while done != self.block:
            choice = known[done][1]
            if choice is None:
                return inf, []
            stages.append(choice)
            done |= choice.units
        return total, stages

    def candidates(self, cost: Cost, most: int = MOST_CANDIDATES) -> list[tuple[frozenset[int], StageChoice]]:
        """Return the stages with lanes that are worth measuring, with what is done before each of them: those of the
        best schedules by estimated costs, the most promising first."""
        order: list[frozenset[int]] = [frozenset()]
        reached = {frozenset[int](): 0.0}
        for done in order:  # grows while it is read; a set is reached by smaller ones alone
            for units in self.ready_sets(done):
                if (whole := done | units) not in reached:
                    reached[whole] = inf
                    order.append(whole)
        order.sort(key=len)
        for done in order:
            for units in self.ready_sets(done):
                for choice in self._choices(units):
                    reached[done | units] = min(reached[done | units], reached[done] + cost(choice))
        left = dict.fromkeys(order, inf)
        left[self.block] = 0.0
        best: dict[StageChoice, tuple[float, frozenset[int]]] = {}
        for done in reversed(order):
            for units in self.ready_sets(done):
                for choice in self._choices(units):
                    behind = cost(choice) + left[done | units]
                    left[done] = min(left[done], behind)
                    whole_cost = reached[done] + behind
                    if len(choice.lanes) > 1 and whole_cost < best.get(choice, (inf, done))[0]:
                        best[choice] = (whole_cost, done)
        limit = _WORTH * left[frozenset()]
        ranked = sorted(best.items(), key=lambda one: (one[1][0], sorted(one[0].units), one[0].threads))
        return [(done, choice) for choice, (total, done) in ranked[:most] if total <= limit]
