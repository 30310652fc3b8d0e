"""Units: operators that a schedule keeps together, because taking them apart would cost more than it can gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opmark.schema.schedule import OperatorGraph, topological_order, unit_needs

SHORTEST_UNIT = 60e-6
"""Seconds below which a unit is joined with another one: to hand work to another thread and to wait for it takes about
half of that."""
MOST_IN_BLOCK = 9
"""Units of a block, whose stages are all looked at: their number grows with the power of the units that are
independent."""


@dataclass(frozen=True)
class UnitGraph:
    """Units in topological order."""

    members: tuple[tuple[int, ...], ...]
    """The operators of each unit, in the order of the program."""
    needs: tuple[frozenset[int], ...]
    """The units that each unit waits for, directly."""
    seconds: tuple[float, ...]
    """Time of each unit alone: the sum of its operators."""

    def __len__(self) -> int:
        return len(self.members)


def make_units(
    graph: OperatorGraph, seconds: Sequence[float], shortest: float = SHORTEST_UNIT, most: int = MOST_IN_BLOCK
) -> UnitGraph:
    """Return the units of a program.

    What follows each other without a choice is one unit. Short units join a neighbour or a sibling, and so do the
    shortest units of a block that has too many. No two units are joined where another one lies between them.
    """
    merger = _Merger(graph, seconds)
    merger.join_chains()
    merger.join_short(shortest)
    while (crowded := next((b for b in blocks(merger.units()) if len(b) > most), None)) is not None:
        merger.join_shortest_of(crowded)
    return merger.units()


def blocks(units: UnitGraph) -> list[list[int]]:
    """Return the units in runs between those that everything has to pass: such a unit is a block of its own."""
    after = descendants(units.needs)
    before: list[set[int]] = [set() for _ in units.needs]
    for unit, later in enumerate(after):
        for other in later:
            before[other].add(unit)
    found: list[list[int]] = []
    open_block: list[int] = []
    for unit in range(len(units)):
        if len(after[unit]) + len(before[unit]) + 1 == len(units):
            # Everything before it in the order is before it in the graph: the block ends here.
            if open_block:
                found.append(open_block)
                open_block = []
            found.append([unit])
        else:
            open_block.append(unit)
    return [*found, open_block] if open_block else found


def descendants(needs: Sequence[frozenset[int] | set[int]]) -> list[set[int]]:
    """Return all units that wait for each unit, directly or not. The units are in topological order."""
    after: list[set[int]] = [set() for _ in needs]
    for unit in reversed(range(len(needs))):
        for before in needs[unit]:
            after[before] |= after[unit] | {unit}
    return after


@dataclass
class _Group:
    members: set[int]
    seconds: float
    before: set[int] = field(default_factory=set)
    after: set[int] = field(default_factory=set)


class _Merger:
    """Joins groups of operators, named by numbers that stay."""

    def __init__(self, graph: OperatorGraph, seconds: Sequence[float]) -> None:
        self.groups = {
            number: _Group({number}, seconds[number], set(before)) for number, before in enumerate(graph.needs)
        }
        self.needs = graph.needs
        for number, group in self.groups.items():
            for other in group.before:
                self.groups[other].after.add(number)
        self._of_units: list[int] = []

    def join(self, one: int, other: int) -> None:
        """Put a group into another one."""
        kept, gone = self.groups[one], self.groups.pop(other)
        kept.members |= gone.members
        kept.seconds += gone.seconds
        for neighbour in gone.before - {one}:
            self.groups[neighbour].after.discard(other)
            self.groups[neighbour].after.add(one)
        for neighbour in gone.after - {one}:
            self.groups[neighbour].before.discard(other)
            self.groups[neighbour].before.add(one)
        kept.before = (kept.before | gone.before) - {one, other}
        kept.after = (kept.after | gone.after) - {one, other}

    def join_chains(self) -> None:
        for number in sorted(self.groups):
            while number in self.groups:
                after = self.groups[number].after
                if len(after) != 1:
                    break
                (follower,) = after
                if self.groups[follower].before != {number}:
                    break
                self.join(number, follower)

    def join_short(self, shortest: float) -> None:
        while len(self.groups) > 1:
            number = min(self.groups, key=lambda one: (self.groups[one].seconds, one))
            if self.groups[number].seconds >= shortest:
                break
            if not self._join_with_neighbour(number):
                # Nothing is beside it and nothing follows: it is a program of its own, as long as others are.
                self.groups[number].seconds = max(self.groups[number].seconds, shortest)
                continue
            self.join_chains()

    def join_shortest_of(self, block: Sequence[int]) -> None:
        """Join the shortest unit of a block with another one of the same block."""
        names = [self._of_units[unit] for unit in block]
        for number in sorted(names, key=lambda one: self.groups[one].seconds):
            if self._join_with_neighbour(number, set(names)):
                self.join_chains()
                return
        first, second = sorted(names, key=lambda one: self.groups[one].seconds)[:2]  # independent of each other
        self.join(first, second)

    def _join_with_neighbour(self, number: int, within: set[int] | None = None) -> bool:
        """Join a group with a sibling, or with what it waits for, or with what waits for it: with the shortest where
        nothing lies between them."""
        group = self.groups[number]
        around = {other for near in (group.before | group.after) for other in (
            self.groups[near].after if near in group.before else self.groups[near].before)}  # fmt: skip
        if not group.before and not group.after:
            around = set(self.groups)
        siblings = {
            other
            for other in around - {number}
            if self.groups[other].before == group.before and self.groups[other].after == group.after
        }
        for candidates in (siblings, {*group.before, *group.after}):
            ranked = sorted(candidates, key=lambda one: (self.groups[one].seconds, one))
            for other in ranked:
                if within is not None and other not in within:
                    continue
                if other in siblings or not self._path_between(number, other):
                    self.join(min(number, other), max(number, other))
                    return True
        return False

    def _path_between(self, one: int, other: int) -> bool:
        """Return whether a third group has to run between two neighbours."""
        first, last = (one, other) if other in self.groups[one].after else (other, one)
        seen, waiting = set(), [number for number in self.groups[first].after if number != last]
        while waiting:
            number = waiting.pop()
            if number == last:
                return True
            if number not in seen:
                seen.add(number)
                waiting += self.groups[number].after
        return False

    def units(self) -> UnitGraph:
        names = sorted(self.groups, key=lambda one: min(self.groups[one].members))
        place = {name: i for i, name in enumerate(names)}
        needs = [{place[other] for other in self.groups[name].before} for name in names]
        order = topological_order(needs)
        assert len(order) == len(names)
        ordered = [names[i] for i in order]
        self._of_units = ordered
        members = tuple(tuple(sorted(self.groups[name].members)) for name in ordered)
        return UnitGraph(
            members,
            tuple(frozenset(before) for before in unit_needs(members, self.needs)),
            tuple(self.groups[name].seconds for name in ordered),
        )
