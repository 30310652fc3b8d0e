"""Backends that compile: a time of its own, a time-out of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.plugin import BackendInfo
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.schema import Compilation, Record, Task

Plugin = Callable[..., BackendInfo]
MakeTask = Callable[..., Task]

# Compiles for as long as it is told, the first time; as a real one, it says what it took.
SLOW = """
import time
from opmark.schema import Compilation

class Launch(NullLaunch):
    pass

class Backend(NullBackend):
    seen = set()

    def compile(self, built, inputs):
        launch = Launch(built.seconds)
        cold = {seconds} if not self.seen else 0.001
        self.seen.add(1)
        time.sleep(cold)
        launch.compilation = Compilation(cold, graphs=1, operators=("add",))
        return launch
"""


def record(
    plugin: Plugin, make_task: MakeTask, seconds: float, *, compile_only: bool = False, **timeouts: float
) -> Record:
    source = "from opmark.frameworks.null.backend import NullLaunch\n" + SLOW.replace("{seconds}", str(seconds))
    info = plugin("slow", source, compiles=True)
    work: Any = Supervisor(info, 1, WorkerOptions(**timeouts))
    with closing(work) as supervisor:
        task = make_task(backend="slow")
        task = replace(task, settings=replace(task.settings, compile_only=compile_only))
        found: Record = supervisor.run(task)
    return found


def test_compile_time_is_kept_apart_cold_and_cached(plugin: Plugin, make_task: MakeTask) -> None:
    found = record(plugin, make_task, 0.05, timeout=60, compile_timeout=60)
    assert found.status == "ok"
    assert found.compilation == Compilation(0.05, 0.001, graphs=1, operators=("add",))
    (measurement,) = found.measurements
    assert max(measurement.samples) < 0.05  # of the virtual clock: compiling is not in there


def test_compiling_may_be_all_that_is_asked_for(plugin: Plugin, make_task: MakeTask) -> None:
    found = record(plugin, make_task, 0.05, compile_only=True, timeout=60, compile_timeout=60)
    assert (found.status, found.stage, found.measurements) == ("ok", "", ())
    assert found.compilation == Compilation(0.05, 0.001, graphs=1, operators=("add",))


def test_a_compile_that_takes_too_long_is_a_record_that_says_so(plugin: Plugin, make_task: MakeTask) -> None:
    found = record(plugin, make_task, 60, timeout=60, compile_timeout=1)
    assert found.status == "timeout"
    assert found.reason == "no answer within 1.00 s while compiling; killed"
    assert found.stage == "compile"


def test_compiling_does_not_count_against_the_time_of_the_task(plugin: Plugin, make_task: MakeTask) -> None:
    assert record(plugin, make_task, 6, timeout=5, compile_timeout=60).status == "ok"


def test_a_backend_that_does_not_compile_has_no_compilation(make_task: MakeTask) -> None:
    from opmark.plugin.registry import backend

    with closing(Supervisor(backend("numpy-cpu"), 1, WorkerOptions(60))) as supervisor:
        found = supervisor.run(make_task(backend="numpy-cpu"))
    assert (found.status, found.compilation) == ("ok", None)


@pytest.mark.parametrize("timeout", [0, -1, 1e9])
def test_the_time_out_of_compiling_is_checked_like_the_other(timeout: float) -> None:
    from opmark.api.run import run
    from opmark.errors import UserError

    with pytest.raises(UserError, match="compile_timeout: expected seconds"):
        run("add", compile_timeout=timeout, db=":memory:")
