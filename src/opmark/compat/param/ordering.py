"""Reports cases in a given order while their records come in another one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from opmark.runner.plan import Plan
from opmark.schema import Case, Record, Run


class HasCases(Protocol):
    @property
    def cases(self) -> tuple[Case, ...]: ...


_Item = TypeVar("_Item", bound=HasCases)


class RecordsInOrder(Generic[_Item]):
    """Reports each item with its records as soon as these, and those of all items before it, are known.

    If an operator has several implementations, the first record of a case counts; the others are in the store.
    """

    def __init__(self, items: Iterable[_Item], report: Callable[[_Item, tuple[Record, ...]], None]) -> None:
        self.run_id = ""
        self._waiting = deque(items)
        self._report_item = report
        self._records: dict[str, Record] = {}

    @property
    def is_complete(self) -> bool:
        return not self._waiting

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        """Begin a run; skipped cases are known before the first one runs."""
        self.run_id = run.id
        coming = {task.case.id for task in plan.tasks}
        self._records = {r.task.case.id: r for r in plan.skipped if r.task.case.id not in coming}
        self._report()

    def add(self, record: Record) -> None:
        self._records.setdefault(record.task.case.id, record)
        self._report()

    def _report(self) -> None:
        while self._waiting and all(case.id in self._records for case in self._waiting[0].cases):
            item = self._waiting.popleft()
            self._report_item(item, tuple(self._records[case.id] for case in item.cases))
