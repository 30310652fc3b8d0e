"""Runs one task inside a worker and makes its record. Whatever a framework raises becomes a record with a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace as replace_field
from functools import partial
from typing import Literal

from msgspec.structs import replace

from opmark.errors import OutOfMemory, RequestTimeout, TaskError, Unsupported, UserError, WrongResult, one_line
from opmark.plugin import Backend, BackendInfo, CallCost, Implementation, Operator, Sensors
from opmark.plugin.operator import CoarserTolerance
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Compilation, Record, Status, Task, Verification
from opmark.schema.measurement import PREEMPTED
from opmark.schema.messages import Command, Reply, RunTask, Stage, TaskReply
from opmark.schema.options import names_function
from opmark.schema.record import TaskStage, utc_now
from opmark.worker.functions import implementation_of
from opmark.worker.measure.clock import mark_small_calls
from opmark.worker.measure.instruments import Instruments
from opmark.worker.measure.load import find_hanging_clients
from opmark.worker.preparation import PreparedLaunch, prepare, refuse_if_too_large
from opmark.worker.quantities import TaskMeasurement

_MAX_REASON = 500
_REPEATING_SHARE = 0.1
"""Time for calls that look for races, relative to that of the measurement."""
_RACE_TIME = 0.1
"""Seconds for calls that look for races in company."""
_STATUS: dict[type[TaskError], Status] = {OutOfMemory: "oom", Unsupported: "skipped", RequestTimeout: "timeout"}

Send = Callable[[Reply], None]


class TaskRunner:
    """Runs tasks on one backend, with its clocks, sensors and memory counter."""

    def __init__(
        self,
        info: BackendInfo,
        backend: Backend,
        environment: str = "",
        sensors: Sensors | None = None,
        send: Send = lambda reply: None,
        receive: Callable[[], Command] | None = None,
    ) -> None:
        """`send` is told which stage comes next, since compiling has a time-out of its own. `receive` returns the next
        command of a parent that conducts a task in company."""
        self._info = info
        self._backend = backend
        self._environment = environment
        self._send = send
        self._receive = receive
        self._instruments = Instruments.of(info, backend, sensors)
        self._stage: TaskStage = "run"
        """What is being done with the task."""

    def reply(self, command: Command) -> Reply:
        """The answer to a command of the parent."""
        assert isinstance(command, RunTask)
        record = self.run(command.task)
        # A thread that waits in a framework for ever cannot be ended, and waiting for the device would hang as well.
        return TaskReply(record, not find_hanging_clients() and self._backend.usable())

    def run(self, task: Task) -> Record:
        """The record of a task, whatever its operator and the framework do."""
        started, clock = utc_now(), time.perf_counter()
        cost, self._stage = None, "run"
        try:
            operator = find_operator(task.case.op)
            cost = operator.phase_cost(task.case.params, task.case.phase, task.case.wrt)
            record = self._measure(task, operator, find_implementation(task, operator, self._info))
        except WrongResult as error:
            record = Record(task, "wrong", error.message, verification=error.verification, stage="verify")
        except TaskError as error:
            record = Record(task, _STATUS.get(type(error), "error"), error.message, stage=self._stage_of(error))
        except Exception as error:  # noqa: BLE001 - frameworks raise anything, and all of it becomes a record
            status = self._backend.classify(error) or "error"
            record = Record(task, status, reason_of(error), stage=self._stage_of(error))
        duration = time.perf_counter() - clock
        return replace(
            record, cost=record.cost or cost, environment=self._environment, started=started, duration=duration
        )

    def _measure(self, task: Task, operator: Operator, implementation: Implementation) -> Record:
        """Compile, verify, call once; then, unless compiling is all that was asked for, measure and verify again."""
        info, backend, instruments, params = self._info, self._backend, self._instruments, task.case.params
        refuse_if_too_large(params, operator, backend)
        dtype = str(params.get("dtype", ""))
        if (coarser := backend.coarsest(dtype)) != dtype:
            operator = replace_field(operator, tolerance=CoarserTolerance(inner=operator.tolerance, dtype=coarser))
        cold = None
        # Before anything else, because the next time finds filled caches. A chip may compile whole models only.
        if info.compiles or implementation.framework == info.models:
            self._enter("compile")
            cold = prepare(params, task, operator, implementation, backend).compilation
            self._enter("run")
        verification = self._verify(task, operator, implementation)

        if operator.foreign:  # it was not verified, and the first call of a framework takes memory that it keeps
            prepare(params, task, operator, implementation, backend).launch()
        baseline = instruments.start_memory()
        prepared = prepare(params, task, operator, implementation, backend)
        instruments.forget_peak()
        prepared.launch()
        backend.synchronize()
        memory = instruments.memory_since(baseline)
        if memory is not None and prepared.kept:
            memory = replace(memory, peak=memory.peak + prepared.kept)
        unchecked = why_unchecked(verification, info)
        record = Record(
            task,
            "unchecked" if unchecked else "ok",
            unchecked,
            memory=memory,
            verification=verification,
            compilation=cold and replace(cold, cached=_warm_compile_time(cold, prepared.compilation)),
            called=prepared.called,
        )
        if path := task.artifact_path:
            backend.save(prepared.launch, path)
        if task.settings.compile_only:
            return record
        if task.settings.data:
            # Imports NumPy, which the parent, who imports this file, has no use for.
            from opmark.worker.evaluation import evaluate

            found = evaluate(task, operator, backend, prepared, partial(self._enter, "measure"))
            return replace(record, evaluation=found)

        self._enter("measure")
        if task.settings.company:
            return self._measure_in_company(record, operator, implementation, prepared)
        if operator.foreign:  # no formula says what it costs, nor whether it is a view
            counted = backend.count(prepared.launch, [*prepared.reads, *prepared.seeds])
        else:
            counted = CallCost(None, view=operator.view and info.views and task.case.phase == "forward")
        measuring = TaskMeasurement(task, operator, implementation, backend, instruments, prepared)
        began = time.perf_counter()
        measurements = measuring.run()
        repeating = _REPEATING_SHARE * (time.perf_counter() - began)
        if operator.foreign:
            measurements = mark_small_calls(measurements, counted.cost, instruments.least_call)

        if verification.checked != "none":
            from opmark.worker.verify.outputs import recheck

            after = recheck(task, operator, implementation, backend, prepared, repeating)
            verification = replace(verification, after=after)
        spoilt = [caution for caution in measurements[0].cautions if caution.code == PREEMPTED]
        return replace(
            record,
            status="disturbed" if spoilt else record.status,
            reason=spoilt[0].message if spoilt else unchecked,
            measurements=measurements,
            cost=counted.cost,
            verification=verification,
            view=counted.view,
            notes=tuple(measuring.notes),
        )

    def _measure_in_company(
        self, record: Record, operator: Operator, implementation: Implementation, prepared: PreparedLaunch
    ) -> Record:
        """Measure alone and together in turns, and verify while the others run. A record of either is the parent's to
        make: what is `disturbed` is known for each."""
        from opmark.worker.company import ConductedMeasurement, StreamMeasurement

        task, backend, verification = record.task, self._backend, record.verification
        assert verification is not None
        assert task.settings.company is not None

        def check() -> str:
            if verification.checked == "none":
                return verification.after
            from opmark.worker.verify.outputs import recheck

            return recheck(task, operator, implementation, backend, prepared, _RACE_TIME)

        if task.settings.company.streams:
            measuring: ConductedMeasurement | StreamMeasurement = StreamMeasurement(
                task, operator, backend, self._instruments, prepared.launch, check
            )
        else:
            assert self._receive is not None
            measuring = ConductedMeasurement(
                task, backend, self._instruments, prepared.launch, check, self._send, self._receive
            )
        measurements = measuring.run()
        after = replace(verification, after=measuring.checked)
        return replace(record, measurements=measurements, verification=after, notes=tuple(measuring.notes))

    def _stage_of(self, error: Exception) -> TaskStage:
        found: TaskStage = getattr(error, "stage", self._stage)
        return found

    def _enter(self, stage: Literal["compile", "run", "measure"]) -> None:
        """Begin a stage of the task, and tell the parent."""
        self._stage = stage
        self._send(Stage(stage))

    def _verify(self, task: Task, operator: Operator, implementation: Implementation) -> Verification:
        if not self._info.computes:
            return Verification("none", f"{self._info.name} computes nothing")
        if not task.settings.verify:
            return Verification("none", "not asked for")
        if operator.foreign:
            return Verification("none", operator.why_unverified)
        # Imports NumPy, which the parent, who imports this file, has no use for.
        from opmark.worker.verify.outputs import verify

        return verify(task, operator, implementation, self._backend)


def why_unchecked(verification: Verification, info: BackendInfo) -> str:
    """Why nobody knows whether the results of a measured case are right; empty where they were checked, or where the
    backend computes none."""
    if verification.checked in ("full", "sampled") or not info.computes:
        return ""
    if verification.checked == "none":
        return f"not verified: {verification.note}"
    return f"verified at a smaller size only: {verification.note}"


def find_implementation(task: Task, operator: Operator, info: BackendInfo) -> Implementation:
    """The implementation that was planned. A revision of a plug-in may lack it: planning sees the files as they are
    now."""
    if names_function(task.implementation):
        return implementation_of(task.implementation, info.framework)
    known = {one.label: one for one in implementations(operator, info, every=True)}
    if task.implementation not in known:
        labels = ", ".join(known) or "none"
        raise TaskError(f"`{operator.name}` has no implementation `{task.implementation}` here; there is {labels}")
    return known[task.implementation]


def _warm_compile_time(cold: Compilation, again: Compilation | None) -> float | None:
    """Seconds that the second compilation took, if it could use a cache; a backend may know it without a second one."""
    if cold.cached is not None or again is None or cold.cache.startswith("none"):
        return cold.cached
    return again.cold


def reason_of(error: Exception) -> str:
    """The first line of an error: frameworks append pages of addresses. Messages of opmark are kept in full."""
    if isinstance(error, UserError):
        return one_line(error)
    lines = str(error).strip().splitlines()
    where = f"{error.request}: " if hasattr(error, "request") else ""  # of a client
    if not lines:
        return where + type(error).__name__
    if lines[0].endswith(":"):  # the explanation stands on the next lines
        lines[0] = " ".join(map(str.strip, lines))[:_MAX_REASON]
    return f"{where}{type(error).__name__}: {lines[0]}"
