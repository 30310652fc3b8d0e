"""One task -> one record, inside a worker. Whatever a framework raises ends here, as a record with a reason."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from opmark.errors import OutOfMemory, TaskError, Unsupported, WrongResult
from opmark.interfaces import Backend, BackendInfo, MemoryProbe, Timer
from opmark.measure.clock import WallClock
from opmark.measure.engine import measure
from opmark.measure.memory import ResidentPages
from opmark.registry import operator as find_operator
from opmark.runner.check import verify
from opmark.runner.plan import implementations
from opmark.runner.prepare import prepare, refuse_if_too_large
from opmark.schema import Memory, Record, Status, Task, Verification

_STATUS: dict[type[TaskError], Status] = {OutOfMemory: "oom", Unsupported: "skipped", WrongResult: "wrong"}


class Bench:
    """A backend with its clock and its memory counter, ready for tasks."""

    def __init__(self, info: BackendInfo, backend: Backend, environment: str = "") -> None:
        self._info = info
        self._backend = backend
        self._environment = environment
        self._timer: Timer = backend.timer() or WallClock(backend.synchronize if backend.asynchronous else None)
        self._memory: MemoryProbe = backend.memory() or ResidentPages()

    def record(self, task: Task) -> Record:
        started, clock = utc_now(), time.perf_counter()
        cost = None
        try:
            cost = find_operator(task.case.op).phase_cost(task.case.params, task.case.phase)
            found = self._run(task)
        except TaskError as error:
            found = Record(task, _STATUS.get(type(error), "error"), error.message)
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; each of it becomes a record
            found = Record(task, self._backend.classify(error) or "error", _reason(error))
        return Record(
            task=task,
            status=found.status,
            reason=found.reason,
            measurements=found.measurements,
            cost=cost,
            memory=found.memory,
            verification=found.verification,
            environment=self._environment,
            started=started,
            duration=time.perf_counter() - clock,
        )

    def _run(self, task: Task) -> Record:
        operator, params = find_operator(task.case.op), task.case.params
        (implementation,) = (i for i in implementations(operator, self._info) if i.label == task.implementation)
        refuse_if_too_large(params, operator, self._backend)
        if not self._info.computes:
            checked = Verification("none", f"{self._info.name} computes nothing")
        elif not task.settings.verify:
            checked = Verification("none", "not asked for")
        else:
            checked = verify(task, operator, implementation, self._backend)
        baseline = self._memory.start()
        prepared = prepare(params, task, operator, implementation, self._backend)
        prepared.launch()
        self._backend.synchronize()
        memory = Memory(
            peak=max(0, self._memory.peak() - baseline),
            baseline=baseline,
            source=self._memory.source,
            resolution=self._memory.resolution,
        )
        measurement = measure(prepared.launch, self._timer, task.settings.sampling)
        return Record(task, "ok", measurements=(measurement,), memory=memory, verification=checked)


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _reason(error: Exception) -> str:
    """The first line: frameworks append pages of addresses."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
