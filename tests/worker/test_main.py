"""The child process: what it says, what it survives, when it goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend
from opmark.runner.worker_process import WorkerProcess
from opmark.schema import Task

Plugin = Callable[..., BackendInfo]
StartWorker = Callable[..., WorkerProcess]
MakeTask = Callable[..., Task]
WaitFor = Callable[..., None]
Alive = Callable[[int], bool]

# Far more than anything here takes; a test that waits for it has failed.
LONG = 60.0


def test_what_a_worker_says_is_the_environment_it_runs_in() -> None:
    with closing(WorkerProcess(backend("null"), threads=3, environ={"ONEDNN_MAX_CPU_ISA": "AVX2"})) as worker:
        hello = worker.hello(LONG)
    facts = hello.environment.facts
    assert hello.unavailable is None
    assert (facts["backend"], facts["threads"]) == ("null", 3)
    assert facts["variables"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert {"cpu", "cores", "system", "python", "opmark"} <= facts.keys()


def test_what_a_framework_prints_disturbs_nothing(
    plugin: Plugin, make_task: MakeTask, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
    print("imported", flush=True)
    class Backend(NullBackend):
        def tensor(self, spec, seed):
            print('{"not": "a record"}', flush=True)
            os.write(1, b"from below\\n")
            os.write(2, b"to stderr\\n")
            ctypes.CDLL(None).puts(b"from C")
            return spec
    """
    with closing(WorkerProcess(plugin("chatty", source), 1)) as worker:
        worker.hello(LONG)
        for n in (1, 2):
            assert worker.run(make_task(backend="chatty", shape=[n]), LONG).record.status == "ok"
    assert capfd.readouterr() == ("", "")


def test_an_unavailable_backend_says_why_and_ends(plugin: Plugin) -> None:
    source = """
    class Backend(NullBackend):
        def why_unavailable(self):
            return "no such device"
        def environment(self):
            raise RuntimeError("nobody may ask")
    """
    with closing(WorkerProcess(plugin("away", source), 1)) as worker:
        assert worker.hello(LONG).unavailable == "no such device"
        assert worker._process.wait(LONG) == 0


def test_a_worker_ends_with_its_input(start_worker: StartWorker) -> None:
    worker = start_worker("null")
    assert worker._process.stdin is not None
    worker._process.stdin.close()
    assert worker._process.wait(LONG) == 0


ORPHAN = """
import sys
from opmark.plugin.registry import backend
from opmark.runner.worker_process import WorkerProcess
from opmark.schema import Task
import msgspec
worker = WorkerProcess(backend("lonely"), 1)
worker.hello(60)
worker.run(msgspec.json.decode(sys.argv[1], type=Task), 60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_a_worker_dies_with_its_parent_even_in_the_middle_of_a_task(
    plugin: Plugin, make_task: MakeTask, tmp_path: Path, wait_for: WaitFor, alive: Alive
) -> None:
    note = tmp_path / "pid"
    source = f"""
    class Backend(NullBackend):
        def tensor(self, spec, seed):
            Path({str(note)!r} + ".new").write_text(str(os.getpid()))
            os.rename({str(note)!r} + ".new", {str(note)!r})
            time.sleep(99)
    """
    plugin("lonely", source)
    task = msgspec.json.encode(make_task(backend="lonely")).decode()
    with subprocess.Popen([sys.executable, "-c", ORPHAN, task]) as parent:
        wait_for(note.exists, "the task")
        worker = int(note.read_text())
        assert alive(worker)
        parent.kill()
    try:
        wait_for(lambda: not alive(worker), "the end of the worker")
    finally:
        if alive(worker):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="a file of Linux")
def test_when_memory_runs_out_the_worker_is_the_one_to_go(start_worker: StartWorker) -> None:
    score = Path(f"/proc/{start_worker('null')._process.pid}/oom_score_adj")
    assert score.read_text().strip() == "1000"
