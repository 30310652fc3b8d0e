"""Cuts a plan into units that stay on one device: all tasks of a case there, in all of its processes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opmark.schema import Task

UNIT_SECONDS = 30.0
"""Seconds that a unit should take at least, as long as there is work for all: each unit starts workers anew."""
STARTS_SHARE = 0.1
"""Share of a unit's time that starting workers should take at most."""
FIRST_CASES = 4
"""Cases of a unit while it is not known how long one takes."""


@dataclass
class Bundle:
    """The tasks of one case that have to be measured on one device."""

    case: str
    group: str
    """Names what a node has to have, so that it can take the bundle."""
    tasks: list[Task]
    home: str = ""
    """Node that has measured some of the case's processes already."""
    avoid: set[str] = field(default_factory=set)
    """Nodes that were lost while they ran a task of it."""
    alone: bool = False
    """Whether it makes a unit of its own, because a node was lost while it ran: it must not take others along."""


class WorkQueue:
    """The bundles that no node has yet, in the order of the plan."""

    def __init__(self, tasks: Iterable[Task], group_of: Callable[[Task], str], homes: Mapping[str, str]) -> None:
        """`group_of` names what a task needs. `homes`: by id of a case, the node that has begun it."""
        found: dict[tuple[str, str], Bundle] = {}
        for task in tasks:
            key = (group_of(task), task.case.id)
            if key not in found:
                found[key] = Bundle(task.case.id, key[0], [], homes.get(task.case.id, ""))
            found[key].tasks.append(task)
        self._waiting: dict[str, deque[Bundle]] = {}
        for bundle in found.values():
            self._waiting.setdefault(bundle.group, deque()).append(bundle)
        self._seconds = 0.0
        self._overhead = 0.0
        self._cases = 0
        self._units = 0

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    @property
    def tasks(self) -> Iterator[Task]:
        return (task for bundles in self._waiting.values() for bundle in bundles for task in bundle.tasks)

    def groups(self) -> dict[str, int]:
        """Return the number of bundles by what they need."""
        return {group: len(bundles) for group, bundles in self._waiting.items() if bundles}

    def take(self, able: Callable[[str], bool], fits: Callable[[Bundle], bool], seats: int) -> list[Bundle]:
        """Take the bundles of the next unit: those of one group for which the seat is `able`, and that `fits` accepts.
        They are as many as make a unit worth its start, and no more than leave work for all seats until the end."""
        for group, bundles in self._waiting.items():
            if not bundles or not able(group):
                continue
            taken: list[Bundle] = []
            passed: list[Bundle] = []
            most = self._size(len(bundles), seats)
            while bundles and len(taken) < most:
                bundle = bundles.popleft()
                if not fits(bundle) or (taken and bundle.alone):
                    passed.append(bundle)
                    continue
                taken.append(bundle)
                if bundle.alone:
                    break
            bundles.extendleft(reversed(passed))
            if taken:
                return taken
        return []

    def give_back(self, bundles: Sequence[Bundle]) -> None:
        """Put bundles with tasks that have no record first in the queue."""
        for bundle in reversed(bundles):
            if bundle.tasks:
                self._waiting[bundle.group].appendleft(bundle)

    def observe(self, cases: int, tasks_seconds: float, unit_seconds: float) -> None:
        """Learn from a unit that was done: how long its tasks took, and how long all of it."""
        self._cases += cases
        self._units += 1
        self._seconds += tasks_seconds
        self._overhead += max(0.0, unit_seconds - tasks_seconds)

    def _size(self, left: int, seats: int) -> int:
        fair = math.ceil(left / (2 * max(1, seats)))
        if not self._cases:
            return min(FIRST_CASES, fair)
        worthwhile = max(UNIT_SECONDS, self._overhead / self._units / STARTS_SHARE)
        return max(1, min(fair, math.ceil(worthwhile / max(1e-6, self._seconds / self._cases))))
