"""Ranks as threads, for what needs several of them and no framework; and tasks for several ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from opmark.interfaces import Peers
from opmark.registry import operator
from opmark.runner.settings import settings_for
from opmark.schema import Case, Task

T = TypeVar("T")


class ThreadTeam:
    """One rank of a world whose ranks are threads of this process."""

    engine = "threads"

    def __init__(self, rank: int, table: list[list[float]], barrier: threading.Barrier) -> None:
        self.rank = rank
        self._table = table
        self._barrier = barrier

    def peers(self, size: int) -> Peers:
        return Peers(self.rank, size)

    def barrier(self) -> None:
        self._barrier.wait()

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        self._table[self.rank] = list(values)
        self._barrier.wait()
        found = [list(row) for row in self._table]
        self._barrier.wait()
        return found

    def leave(self) -> None:
        pass


@pytest.fixture
def on_ranks() -> Callable[[int, Callable[[ThreadTeam], Any]], list[Any]]:
    """Runs a function on so many ranks at once: what each returned, or the exception that it ended with."""

    def run(size: int, work: Callable[[ThreadTeam], Any]) -> list[Any]:
        barrier = threading.Barrier(size, timeout=20)
        table: list[list[float]] = [[] for _ in range(size)]

        def one(rank: int) -> Any:
            try:
                return work(ThreadTeam(rank, table, barrier))
            except Exception as error:  # noqa: BLE001 - the tests look at it
                return error

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(one, range(size)))

    return run


@pytest.fixture
def rank_task() -> Callable[..., Task]:
    def make(op: str = "all_reduce", backend: str = "torch-cpu", **params: Any) -> Task:
        found = operator(op)
        given = {"size": 4096, "ranks": 2, **params}
        known = {name: value for name, value in given.items() if name in found.by_name}
        case = Case.of(found.name, found.complete(known), "forward")
        label = found.implementations[0].label
        return Task(case, backend, label, settings_for(effort="quick", threads=[1])[0])

    return make
