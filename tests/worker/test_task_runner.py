"""One task to one record, inside a worker: here without one."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.errors import OutOfMemory, TaskError, Unsupported, UserError, WrongResult
from opmark.frameworks.null.backend import NullBackend
from opmark.frameworks.numpy.backend import NumpyBackend
from opmark.plugin import CallCost
from opmark.plugin.registry import backend, operator
from opmark.runner.worker_process import WorkerProcess
from opmark.schema import Cost, Environment, Status, Task
from opmark.schema.record import utc_now
from opmark.worker import task_runner as module
from opmark.worker.task_runner import TaskRunner, why_unchecked
from opmark.worker.verify import outputs

MakeTask = Callable[..., Task]
StartWorker = Callable[..., WorkerProcess]

ENVIRONMENT = Environment.of({"chip": "Fast 9000"})


class Failing(NullBackend):
    """Raises when it is asked for an input."""

    def __init__(self, error: Exception, status: Status | None = None) -> None:
        super().__init__(backend("null"), 1)
        self._error = error
        self._status = status

    def tensor(self, spec: Any, seed: int) -> Any:
        raise self._error

    def classify(self, error: Exception) -> Status | None:
        return self._status


@pytest.fixture
def null() -> TaskRunner:
    return TaskRunner(backend("null"), NullBackend(backend("null"), 1), ENVIRONMENT.id)


@pytest.fixture
def numpy() -> TaskRunner:
    return TaskRunner(backend("numpy-cpu"), NumpyBackend(backend("numpy-cpu"), 1), ENVIRONMENT.id)


def test_a_record_has_everything_about_its_task(null: TaskRunner, make_task: MakeTask) -> None:
    task = make_task("matmul", M=8, N=8, K=8)
    before = utc_now()
    record = null.run(task)
    assert (record.task, record.status, record.reason) == (task, "ok", "")
    assert [m.quantity for m in record.measurements] == ["latency"]
    assert record.cost == operator("matmul").cost(task.case.params)
    assert record.environment == ENVIRONMENT.id
    assert before <= record.started <= utc_now()
    assert record.duration > 0
    assert record.memory is not None


def test_the_cost_is_that_of_the_phase(null: TaskRunner, make_task: MakeTask) -> None:
    task = make_task("matmul", M=8, N=8, K=8)
    backward = replace(task, case=replace(task.case, phase="backward"))
    assert null.run(backward).cost == operator("matmul").phase_cost(task.case.params, "backward")


def test_what_computes_nothing_is_not_verified_and_says_so(null: TaskRunner, make_task: MakeTask) -> None:
    record = null.run(make_task())
    assert record.status == "ok"  # it says what it does, and its time is that
    verification = record.verification
    assert verification is not None
    assert (verification.checked, verification.note) == ("none", "null computes nothing")


def test_a_result_is_verified_before_it_is_timed(numpy: TaskRunner, make_task: MakeTask) -> None:
    record = numpy.run(make_task("fault", "numpy-cpu", kind="wrong"))
    assert record.status == "wrong"
    assert "off by 1" in record.reason
    assert record.measurements == ()
    assert record.cost is not None


def test_without_verification_a_wrong_result_is_timed(numpy: TaskRunner, make_task: MakeTask) -> None:
    task = make_task("fault", "numpy-cpu", kind="wrong")
    record = numpy.run(replace(task, settings=replace(task.settings, verify=False)))
    assert (record.status, record.reason) == ("unchecked", "not verified: not asked for")
    assert record.verification is not None
    assert (record.verification.checked, record.verification.note) == ("none", "not asked for")


def test_a_large_case_is_checked_in_part(numpy: TaskRunner, make_task: MakeTask) -> None:
    record = numpy.run(make_task("matmul", "numpy-cpu", M=1000, N=900, K=300))
    assert record.status in ("ok", "disturbed")  # whatever else runs on this machine
    assert record.verification is not None
    assert (record.verification.checked, record.verification.after) == ("sampled", "same")
    assert why_unchecked(record.verification, backend("numpy-cpu")) == ""


def test_a_case_that_was_checked_at_a_smaller_size_only_is_unchecked(
    numpy: TaskRunner, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "plan_check", lambda task, operator: None)
    record = numpy.run(make_task("matmul", "numpy-cpu", M=1000, N=900, K=300))
    assert record.status in ("unchecked", "disturbed")
    assert record.measurements
    assert record.verification is not None
    assert record.verification.checked == "scaled"
    reason = why_unchecked(record.verification, backend("numpy-cpu"))
    assert reason.startswith("verified at a smaller size only: its reference would take too long")


def test_a_right_result_says_how_it_was_checked(numpy: TaskRunner, make_task: MakeTask) -> None:
    verification = numpy.run(make_task("fault", "numpy-cpu", kind="none")).verification
    assert verification is not None
    assert (verification.checked, verification.max_abs_error) == ("full", 0.0)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OutOfMemory("too large"), "oom"),
        (Unsupported("not here"), "skipped"),
        (WrongResult("off by one"), "wrong"),
        (TaskError("something"), "error"),
    ],
)
def test_an_error_of_opmark_is_a_status_and_its_message_the_reason(
    make_task: MakeTask, error: TaskError, status: str
) -> None:
    record = TaskRunner(backend("null"), Failing(error)).run(make_task())
    assert (record.status, record.reason) == (status, error.message)
    assert record.measurements == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("it broke"), "RuntimeError: it broke"),
        (RuntimeError("first line\nframe 1\nframe 2"), "RuntimeError: first line"),
        (RuntimeError("\n  after a blank line"), "RuntimeError: after a blank line"),
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_whatever_a_framework_raises_is_a_record(make_task: MakeTask, error: Exception, reason: str) -> None:
    record = TaskRunner(backend("null"), Failing(error)).run(make_task())
    assert (record.status, record.reason) == ("error", reason)


@pytest.mark.parametrize("status", ["oom", "skipped"])
def test_the_backend_says_what_its_errors_mean(make_task: MakeTask, status: Status) -> None:
    record = TaskRunner(backend("null"), Failing(RuntimeError("CUDA out of memory"), status)).run(make_task())
    assert (record.status, record.reason) == (status, "RuntimeError: CUDA out of memory")


def test_a_failure_costs_one_record(numpy: TaskRunner, make_task: MakeTask) -> None:
    kinds = ["none", "error", "none", "oom", "none", "wrong", "none"]
    statuses = [numpy.run(make_task("fault", "numpy-cpu", kind=kind)).status for kind in kinds]
    assert statuses == ["ok", "error", "ok", "oom", "ok", "wrong", "ok"]


@pytest.mark.parametrize(("free", "status"), [(48, "error"), (47, "oom")])
def test_more_memory_than_there_is_is_refused_before_anything_is_made(
    make_task: MakeTask, free: int, status: str
) -> None:
    """Two inputs and an output of four float32 are 48 bytes."""

    class Small(Failing):
        def available_bytes(self) -> int:
            return free

    record = TaskRunner(backend("null"), Small(RuntimeError("an input was made"))).run(make_task())
    assert record.status == status
    assert ("48 B" in record.reason) is (status == "oom")


def test_a_cost_that_cannot_be_computed_is_the_reason(
    numpy: TaskRunner, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost(params: object) -> Cost:
        raise KeyError("oops")

    broken = dataclasses.replace(operator("add"), cost=cost)
    monkeypatch.setattr(module, "find_operator", lambda name: broken)
    record = numpy.run(make_task("add", "numpy-cpu", shape=[4]))
    assert (record.status, record.reason, record.cost) == ("error", "KeyError: 'oops'", None)


def test_a_result_is_looked_at_again_after_it_was_timed(numpy: TaskRunner, make_task: MakeTask) -> None:
    verification = numpy.run(make_task("add", "numpy-cpu")).verification
    assert verification is not None
    assert (verification.checked, verification.after) == ("full", "same")


def test_what_computes_nothing_is_not_looked_at_again(null: TaskRunner, make_task: MakeTask) -> None:
    verification = null.run(make_task()).verification
    assert verification is not None
    assert verification.after == ""


def test_the_cost_of_a_step_is_that_of_both_phases_and_of_some_gradients_unknown(
    null: TaskRunner, make_task: MakeTask
) -> None:
    task = make_task("matmul", M=8, N=8, K=8)
    op = operator("matmul")
    both = null.run(replace(task, case=replace(task.case, phase="both"))).cost
    backward = op.phase_cost(task.case.params, "backward")
    assert backward is not None
    assert both == op.cost(task.case.params) + backward
    some = replace(task, case=replace(task.case, phase="backward", wrt=("a",)))
    assert null.run(some).cost is None


def test_a_bench_without_an_environment_names_none(make_task: MakeTask) -> None:
    assert TaskRunner(backend("null"), NullBackend(backend("null"), 1)).run(make_task()).environment == ""


# Views, and functions of a framework that nobody describes.


def _with(monkeypatch: pytest.MonkeyPatch, **marks: Any) -> None:
    changed = dataclasses.replace(operator("add"), **marks)
    monkeypatch.setattr(module, "find_operator", lambda _: changed)


@pytest.mark.parametrize("view", [False, True])
def test_a_view_is_marked_in_the_record_and_has_no_cost(
    view: bool, numpy: TaskRunner, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(monkeypatch, view=view)
    record = numpy.run(make_task(backend="numpy-cpu"))
    assert (record.status, record.view, record.cost is None) == ("ok", view, view)


class Counting(NumpyBackend):
    """Counts what it is told to."""

    def __init__(self, counted: CallCost) -> None:
        super().__init__(backend("numpy-cpu"), 1)
        self._counted = counted

    def count(self, launch: Any, reads: Any) -> CallCost:
        return self._counted


def test_the_backend_counts_what_a_foreign_function_costs(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, foreign=True)
    counted = Cost(None, 1 << 30, 7)
    record = TaskRunner(backend("numpy-cpu"), Counting(CallCost(counted))).run(make_task(backend="numpy-cpu"))
    assert (record.status, record.cost, record.view) == ("unchecked", counted, False)
    assert record.verification is not None
    assert (record.verification.checked, record.verification.after) == ("none", "")
    assert "no reference in the catalogue" in record.verification.note
    assert "overhead-bound" not in {caution.code for caution in record.measurements[0].cautions}


def test_a_foreign_function_that_moves_nothing_is_a_view(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, foreign=True)
    record = TaskRunner(backend("numpy-cpu"), Counting(CallCost(None, view=True))).run(make_task(backend="numpy-cpu"))
    assert (record.status, record.cost, record.view) == ("unchecked", None, True)


def test_a_small_operator_of_the_catalogue_is_not_labelled(numpy: TaskRunner, make_task: MakeTask) -> None:
    """It was asked for in that size."""
    record = numpy.run(make_task(backend="numpy-cpu"))
    assert "overhead-bound" not in {caution.code for caution in record.measurements[0].cautions}


def test_the_users_mistake_is_said_in_full(make_task: MakeTask) -> None:
    record = TaskRunner(backend("null"), Failing(UserError("no such thing", "did you mean that?"))).run(make_task())
    assert (record.status, record.reason) == ("error", "no such thing; did you mean that?")
    record = TaskRunner(backend("null"), Failing(UserError("no such thing"))).run(make_task())
    assert record.reason == "no such thing"


def test_an_implementation_that_is_not_here_is_named(numpy: TaskRunner, make_task: MakeTask) -> None:
    """A revision of a plug-in may lack what was planned with the files as they are now."""
    record = numpy.run(replace(make_task("add", "numpy-cpu"), implementation="newer"))
    assert record.status == "error"
    assert record.reason == "`add` has no implementation `newer` here; there is numpy"


@pytest.mark.serial
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process reset its own peak")
def test_memory_is_that_of_inputs_and_outputs_and_not_what_making_them_took(
    start_worker: StartWorker, make_task: MakeTask
) -> None:
    """torch fills tensors of more than 16 MiB from a block of 16 MiB, which the C library keeps for a while."""
    pytest.importorskip("torch")
    task = make_task("add", "torch-cpu", shape=[2048, 2048])
    record = start_worker("torch-cpu").run(task, 60, 60).record
    assert record.memory is not None
    assert record.memory.peak == pytest.approx(3 * 4 * 2048**2, abs=6 << 20)
