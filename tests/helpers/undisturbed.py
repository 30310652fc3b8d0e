"""Records as they would be if the tests' own load had disturbed nothing: tests run beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from opmark.schema import Record, Task
from opmark.schema.measurement import PREEMPTED
from opmark.schema.messages import TaskReply

if TYPE_CHECKING:
    from opmark.runner.worker_process import WorkerProcess


def calm_worker(
    measured: Callable[..., TaskReply], is_calm: Callable[[], bool] = lambda: True
) -> Callable[..., TaskReply]:
    """`WorkerProcess.run`, whose records nothing has disturbed as long as it `is_calm`."""

    def run(worker: WorkerProcess, task: Task, *limits: Any) -> TaskReply:
        reply = measured(worker, task, *limits)
        return replace(reply, record=without_disturbance(reply.record)) if is_calm() else reply

    return run


def without_disturbance(record: Record) -> Record:
    if record.status != "disturbed":
        return record
    from opmark.plugin.registry import backend as find_backend  # a command line imports as little as it can
    from opmark.worker.task_runner import why_unchecked

    assert record.verification is not None
    kept = tuple(
        replace(one, cautions=tuple(caution for caution in one.cautions if caution.code != PREEMPTED))
        for one in record.measurements
    )
    unchecked = why_unchecked(record.verification, find_backend(record.task.backend))
    return replace(record, status="unchecked" if unchecked else "ok", reason=unchecked, measurements=kept)
