"""A task under load from top to bottom: one model for all clients, records for whatever a client does."""

from __future__ import annotations

from typing import Any

import pytest

from opmark.frameworks.null.backend import VARIABLE
from opmark.plugin.registry import backend, implementations, operator
from opmark.runner.plan import settings_for
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.schema import Case, Record, Task
from opmark.schema.messages import RunTask, TaskReply
from opmark.schema.options import MeasureOptions
from opmark.worker.task_runner import TaskRunner


def make_task(name: str, op: str = "add", params: dict[str, Any] | None = None, **asked: Any) -> Task:
    info, found = backend(name), operator(op)
    asked = {"clients": 2, "requests": 8, "warmup": 1} | asked
    (settings,) = settings_for(MeasureOptions(threads=[1], effort="quick", **asked))
    case = Case.of(op, found.complete(params or {"shape": [64]}), "forward")
    return Task(case, name, implementations(found, info)[0].label, settings)


def run(task: Task) -> TaskReply:
    info = backend(task.backend)
    reply = TaskRunner(info, info.load(1)).reply(RunTask(task))
    assert isinstance(reply, TaskReply)
    return reply


@pytest.mark.parametrize("name", ["null", "numpy-cpu", "torch-cpu"])
def test_a_load_is_verified_and_measured(name: str) -> None:
    record = run(make_task(name)).record
    assert (record.status, record.reason) == ("ok", "")
    (measurement,) = record.measurements
    assert measurement.quantity == "request_latency"
    assert len(measurement.samples) == 16
    assert measurement.load is not None
    assert measurement.load.load == record.task.settings.load
    if name != "null":
        assert record.verification is not None
        assert record.verification.checked == "full"
        assert record.verification.after == "same"


def test_a_backward_phase_can_be_put_under_load() -> None:
    task = make_task("torch-cpu", "exp", requests=5)
    case = Case.of("exp", task.case.params, "backward")
    info = backend("torch-cpu")
    record = TaskRunner(info, info.load(1)).run(Task(case, "torch-cpu", task.implementation, task.settings))
    assert record.status == "ok", record.reason
    assert len(record.measurements[0].samples) == 10


def test_what_a_client_raises_is_the_reason_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "fail")
    reply = run(make_task("null-device"))
    assert reply.record.status == "error"
    assert reply.record.reason == "client 2, request 4 of 8: OSError: the device has lost the request"
    assert reply.record.stage == "measure"
    assert reply.usable


def supervise(*tasks: Task) -> list[Record]:
    supervisor = Supervisor(backend(tasks[0].backend), 1, WorkerOptions(timeout=60))
    try:
        return [supervisor.run(task) for task in tasks]
    finally:
        supervisor.close()


def test_a_client_that_hangs_is_a_record_and_the_next_task_gets_a_new_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "hang")
    hanging = make_task("null-device", request_timeout=0.2)
    # A single client of three requests and one of warm-up never comes to the fifth call.
    first, second = supervise(hanging, make_task("null-device", clients=1, requests=3))
    assert first.status == "timeout"
    assert first.reason.startswith("client 2 has no answer to request 4 of 8 after 200 ms; ")
    assert "of 16 requests were answered" in first.reason
    assert first.stage == "measure"
    assert second.status == "ok"


def test_a_backend_that_does_not_say_how_clients_share_a_model_has_one(plugin: Any) -> None:
    source = """
    from opmark.plugin import Backend as Plain

    class Backend(NullBackend):
        asynchronous = True
        waited = 0

        def clients(self, launch, others, rebuild):
            return Plain.clients(self, launch, others, rebuild)

        def synchronize(self):
            Backend.waited += 1
    """
    info = plugin("shy", source)
    live: Any = info.load(1)
    task = make_task("shy")
    record = TaskRunner(info, live).run(task)
    assert (record.status, record.reason) == (
        "skipped", "shy does not say how several clients share one loaded model",
    )  # fmt: skip
    before = type(live).waited
    one = TaskRunner(info, live).run(make_task("shy", clients=1))
    assert len(one.measurements[0].samples) == 8
    assert type(live).waited - before >= 8  # every request is waited for


def test_inputs_of_many_clients_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    info = backend("numpy-cpu")
    live = info.load(1)
    monkeypatch.setattr(live, "available_bytes", lambda: 100_000)
    record = TaskRunner(info, live).run(make_task("numpy-cpu", params={"shape": [1024]}, clients=64))
    assert record.status == "oom"
    assert record.reason.startswith("inputs and outputs of 63 more clients need 756 KiB")
