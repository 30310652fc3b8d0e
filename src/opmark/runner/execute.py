"""One task -> one record, inside a worker. Whatever a framework raises ends here, as a record with a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Literal

from msgspec.structs import replace

from opmark.errors import OutOfMemory, TaskError, Unsupported, UserError, WrongResult
from opmark.interfaces import Backend, BackendInfo, Counted, Sensors
from opmark.measure.overhead import labelled
from opmark.registry import implementations
from opmark.registry import operator as find_operator
from opmark.runner.gear import Gear
from opmark.runner.measuring import Measuring
from opmark.runner.prepare import Prepared, prepare, refuse_if_too_large
from opmark.schema import Compilation, Implementation, Memory, Operator, Record, Status, Task, Verification

_LONGEST_REASON = 500
STATUS: dict[type[TaskError], Status] = {OutOfMemory: "oom", Unsupported: "skipped"}


Tell = Callable[[Literal["compiling", "measuring"]], None]
"""Is told what comes next: compiling has a time-out of its own."""


class Bench:
    """A backend with its clocks and its memory counter, ready for tasks."""

    def __init__(
        self,
        info: BackendInfo,
        backend: Backend,
        environment: str = "",
        sensors: Sensors | None = None,
        tell: Tell = lambda stage: None,
    ) -> None:
        self._info = info
        self._backend = backend
        self._environment = environment
        self._tell = tell
        self._gear = Gear.of(info, backend, sensors)

    def record(self, task: Task) -> Record:
        started, clock = utc_now(), time.perf_counter()
        cost = None
        try:
            cost = find_operator(task.case.op).phase_cost(task.case.params, task.case.phase, task.case.wrt)
            found = self._run(task)
        except WrongResult as error:
            found = Record(task, "wrong", error.message, verification=error.verification)
        except TaskError as error:
            found = Record(task, STATUS.get(type(error), "error"), error.message)
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; each of it becomes a record
            found = Record(task, self._backend.classify(error) or "error", reason_of(error))
        duration = time.perf_counter() - clock
        return replace(
            found, cost=found.cost or cost, environment=self._environment, started=started, duration=duration
        )

    def usable(self) -> bool:
        """Whether another task can be given to this process."""
        return self._backend.usable()

    def _run(self, task: Task) -> Record:
        operator, params = find_operator(task.case.op), task.case.params
        implementation = self._implementation(task, operator)
        refuse_if_too_large(params, operator, self._backend)
        cold = self._compiled(task, operator, implementation)
        checked = self._verified(task, operator, implementation)
        prepared, memory = self._first_call(task, operator, implementation)
        self._tell("measuring")
        counted = self._counted(task, operator, prepared)
        measuring = Measuring(task, operator, implementation, self._backend, self._gear, prepared)
        measurements = measuring.run()
        if checked.checked != "none":
            from opmark.runner.recheck import recheck

            checked = replace(checked, after=recheck(task, operator, implementation, self._backend, prepared))
        if operator.foreign:
            measurements = labelled(measurements, counted.cost, self._gear.least_call)
        return Record(
            task,
            "ok",
            measurements=measurements,
            cost=counted.cost,
            memory=memory,
            verification=checked,
            compilation=cold and replace(cold, cached=_cached(cold, prepared.compilation)),
            called=prepared.called,
            view=counted.view,
            notes=tuple(measuring.notes),
        )

    def _implementation(self, task: Task, operator: Operator) -> Implementation:
        """As it was planned. A revision of a plug-in may not have it: who plans sees the files as they are now."""
        known = {one.label: one for one in implementations(operator, self._info)}
        if task.implementation not in known:
            there = ", ".join(known) or "none"
            raise TaskError(f"`{operator.name}` has no implementation `{task.implementation}` here; there is {there}")
        return known[task.implementation]

    def _compiled(self, task: Task, operator: Operator, implementation: Implementation) -> Compilation | None:
        """What it takes with empty caches: before anything else, since the next time finds them filled."""
        if not self._info.compiles:
            return None
        self._tell("compiling")
        return prepare(task.case.params, task, operator, implementation, self._backend).compilation

    def _counted(self, task: Task, operator: Operator, prepared: Prepared) -> Counted:
        """What no formula tells: of a foreign call what the framework counts, and what is a view."""
        if not operator.foreign:
            return Counted(None, view=operator.view and self._info.views and task.case.phase == "forward")
        return self._backend.count(prepared.launch, [*prepared.reads, *prepared.seeds])

    def _verified(self, task: Task, operator: Operator, implementation: Implementation) -> Verification:
        if not self._info.computes:
            return Verification("none", f"{self._info.name} computes nothing")
        if not task.settings.verify:
            return Verification("none", "not asked for")
        if operator.foreign:
            return Verification("none", "a function of the framework, without a reference in the catalogue")
        from opmark.runner.check import verify  # brings NumPy, which the parent, who reads this file, has no use for

        return verify(task, operator, implementation, self._backend)

    def _first_call(
        self, task: Task, operator: Operator, implementation: Implementation
    ) -> tuple[Prepared, Memory | None]:
        if (
            operator.foreign
        ):  # not verified, so this is its first call, and a framework's first one takes memory to keep
            prepare(task.case.params, task, operator, implementation, self._backend).launch()
        probe = self._gear.memory
        baseline = probe.start() if probe else 0
        prepared = prepare(task.case.params, task, operator, implementation, self._backend)
        prepared.launch()
        self._backend.synchronize()
        if probe is None:
            return prepared, None
        return prepared, Memory(max(0, probe.peak() - baseline), baseline, probe.source, probe.resolution)


def _cached(cold: Compilation, again: Compilation | None) -> float | None:
    """What a second time took, where anything was kept of the first; a backend may know it at once."""
    if cold.cached is not None or again is None or cold.cache.startswith("none"):
        return cold.cached
    return again.cold


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def reason_of(error: Exception) -> str:
    """The first line: frameworks append pages of addresses. What opmark says of a mistake is said in full."""
    if isinstance(error, UserError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    if lines[0].endswith(":"):  # what was expected stands on the next ones
        lines[0] = " ".join(map(str.strip, lines))[:_LONGEST_REASON]
    return f"{type(error).__name__}: {lines[0]}"
