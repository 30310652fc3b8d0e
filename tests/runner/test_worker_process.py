"""The parent's end of a worker."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from opmark.hardware.memory_kills import MemoryKills
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend
from opmark.runner.ranks.authentication import SECRET
from opmark.runner.worker_process import WorkerDied, WorkerProcess, environ_for, record_of_death
from opmark.schema import Task
from opmark.schema.messages import RunTask, encode

Plugin = Callable[..., BackendInfo]
StartWorker = Callable[..., WorkerProcess]
MakeTask = Callable[..., Task]
WaitFor = Callable[..., None]
Alive = Callable[[int], bool]

# Far more than anything here takes; a test that waits for it has failed.
LONG = 60.0


def died(worker: WorkerProcess, task: Task, timeout: float = LONG) -> WorkerDied:
    with pytest.raises(WorkerDied) as caught:
        worker.run(task, timeout)
    return caught.value


# As it should be.


def test_a_worker_stays_up_across_tasks(start_worker: StartWorker, make_task: MakeTask) -> None:
    worker = start_worker("null")
    tasks = [make_task(shape=[n]) for n in (1, 2, 3)]
    pid = worker._process.pid
    assert [worker.run(task, LONG).record.task for task in tasks] == tasks
    assert (worker._process.pid, worker._process.poll()) == (pid, None)


def test_the_number_of_threads_reaches_every_library(start_worker: StartWorker) -> None:
    environ = psutil.Process(start_worker("numpy-cpu", threads=3)._process.pid).environ()
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert [environ.get(name) for name in names] == ["3", "3", "3"]


@pytest.mark.parametrize("rank", [False, True])
def test_the_secret_of_the_ranks_is_not_for_workers(rank: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for those of ranks: their opmark alone talks to the port that it protects."""
    monkeypatch.setenv(SECRET, "0123456789abcdef")
    monkeypatch.setenv("OPMARK_TEST", "handed on")
    with closing(WorkerProcess(backend("null"), threads=1, rank=rank)) as worker:
        worker.hello(LONG)
        environ = psutil.Process(worker.pid).environ()
    assert SECRET not in environ
    assert environ["OPMARK_TEST"] == "handed on"
    guest = environ_for(backend(f"numpy-cpu@{sys.executable}"), 1)
    assert SECRET not in guest
    assert guest["OPMARK_TEST"] == "handed on"


def test_a_backend_names_variables_of_its_own(plugin: Plugin) -> None:
    source = """
    class Backend(NullBackend):
        def environment(self):
            return {"seen": os.environ["MY_THREADS"]}
    """
    info = plugin("own", source, environ={"MY_THREADS": "n={threads}"})
    with closing(WorkerProcess(info, threads=5)) as worker:
        assert worker.hello(LONG).environment.facts["seen"] == "n=5"


def test_a_process_that_cannot_be_started_leaves_no_pipe_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    pipe = os.pipe

    def keep_pipe() -> tuple[int, int]:
        ends = pipe()
        made.extend(ends)
        return ends

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("opmark.runner.worker_process.os.pipe", keep_pipe)
    monkeypatch.setattr("opmark.runner.worker_process.subprocess.Popen", refuse)
    with pytest.raises(BlockingIOError):
        WorkerProcess(backend("null"), threads=1)
    assert len(made) == 2
    for end in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


# Death.


@pytest.mark.parametrize(
    ("act", "status", "parts"),
    [
        ("os._exit(7)", "error", ["exit code 7", "running the task"]),
        ("sys.exit(0)", "error", ["exit code 0"]),
        ("ctypes.string_at(0)", "error", ["SIGSEGV", "Segmentation fault"]),
        ("os.abort()", "error", ["SIGABRT"]),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", ["was killed (SIGKILL) while running the task"]),
        ("os.kill(os.getpid(), signal.SIGTERM)", "killed", ["was killed (SIGTERM) while running the task"]),
    ],
)
def test_a_death_is_told_by_its_cause(
    plugin: Plugin, start_worker: StartWorker, make_task: MakeTask, act: str, status: str, parts: list[str]
) -> None:
    plugin("mortal", f"class Backend(NullBackend):\n    def tensor(self, spec, seed):\n        {act}")
    death = died(start_worker("mortal"), make_task(backend="mortal"))
    assert death.status == status
    assert not death.illegal
    for part in parts:
        assert part in death.reason


def test_a_kill_is_for_want_of_memory_where_the_kernel_says_so(
    plugin: Plugin, start_worker: StartWorker, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(
        "greedy", "class Backend(NullBackend):\n    def tensor(self, spec, seed): os.kill(os.getpid(), signal.SIGKILL)"
    )
    monkeypatch.setattr(MemoryKills, "since", lambda self: "the kernel says so")
    death = died(start_worker("greedy"), make_task(backend="greedy"))
    assert death.status == "oom"
    assert death.reason == "its process was killed (SIGKILL) while running the task: the kernel says so"


def test_an_illegal_instruction_is_marked(plugin: Plugin, start_worker: StartWorker, make_task: MakeTask) -> None:
    plugin(
        "trapped", "class Backend(NullBackend):\n    def tensor(self, spec, seed): os.kill(os.getpid(), signal.SIGILL)"
    )
    death = died(start_worker("trapped"), make_task(backend="trapped"))
    assert (death.status, death.illegal) == ("error", True)
    assert "SIGILL" in death.reason


def test_the_last_words_are_part_of_the_reason(plugin: Plugin, start_worker: StartWorker, make_task: MakeTask) -> None:
    source = """
    class Backend(NullBackend):
        def tensor(self, spec, seed):
            os.write(2, b"x" * 10000 + b"\\nthe driver is broken\\n  \\n")
            os._exit(1)
    """
    plugin("wordy", source)
    death = died(start_worker("wordy"), make_task(backend="wordy"))
    assert death.reason.endswith("it said: the driver is broken")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import module_that_nobody_has", "module_that_nobody_has"),
        (
            "class Backend(NullBackend):\n    def __init__(self, info, threads): raise ValueError('no licence')",
            "no licence",
        ),
        ("os._exit(9)", "exit code 9"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("class Backend(NullBackend):\n    def why_unavailable(self): raise OSError('driver')", "OSError: driver"),
    ],
    ids=["import", "class", "exit", "crash", "question"],
)
def test_a_worker_that_cannot_start_says_why(plugin: Plugin, source: str, said: str) -> None:
    with closing(WorkerProcess(plugin("broken", source), 1)) as worker, pytest.raises(WorkerDied) as caught:
        worker.hello(LONG)
    assert caught.value.status == "error"
    assert "while starting" in caught.value.reason
    assert said in caught.value.reason


def test_a_hang_ends_at_the_time_out(start_worker: StartWorker, make_task: MakeTask) -> None:
    worker = start_worker("numpy-cpu")
    death = died(worker, make_task("fault", "numpy-cpu", kind="hang"), timeout=0.3)
    assert death.status == "timeout"
    assert "300 ms" in death.reason
    assert worker._process.wait(LONG) == -signal.SIGKILL


def test_a_hang_while_starting_ends_at_the_time_out(plugin: Plugin) -> None:
    info = plugin("slow", "time.sleep(3600)")
    with closing(WorkerProcess(info, 1)) as worker, pytest.raises(WorkerDied, match="while starting") as caught:
        worker.hello(0.3)
    assert caught.value.status == "timeout"


def test_a_kill_from_outside_is_not_taken_for_want_of_memory(
    plugin: Plugin, start_worker: StartWorker, make_task: MakeTask, tmp_path: Path, wait_for: WaitFor
) -> None:
    """The kernel kills with the same signal when memory runs out, and tells nobody why."""
    marker = tmp_path / "busy"
    plugin(
        "busy", f"class Backend(NullBackend):\n    def tensor(self, *_): Path({str(marker)!r}).touch(); time.sleep(99)"
    )
    worker = start_worker("busy")

    def kill() -> None:
        wait_for(marker.exists, "the task")
        os.kill(worker._process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    death = died(worker, make_task(backend="busy"))
    killer.join()
    assert death.status == "killed"
    assert "SIGKILL" in death.reason


def test_a_worker_that_died_between_tasks_is_told(
    start_worker: StartWorker, make_task: MakeTask, wait_for: WaitFor, alive: Alive
) -> None:
    worker = start_worker("null")
    os.kill(worker._process.pid, signal.SIGKILL)
    wait_for(lambda: not alive(worker._process.pid), "its death")
    assert died(worker, make_task()).status == "killed"


def test_a_death_is_seen_while_a_child_of_the_worker_lives_on(
    plugin: Plugin, start_worker: StartWorker, make_task: MakeTask
) -> None:
    """A forked child holds the worker's end of the pipe open."""
    source = """
    class Backend(NullBackend):
        def tensor(self, spec, seed):
            if os.fork() == 0:
                time.sleep(99)
            os._exit(5)
    """
    plugin("parent", source)
    death = died(start_worker("parent"), make_task(backend="parent"))
    assert "exit code 5" in death.reason


CHILD = """
class Backend(NullBackend):
    def tensor(self, spec, seed):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
        Path({note!r} + ".new").write_text(str(child.pid))
        os.rename({note!r} + ".new", {note!r})
        {then}
"""


@pytest.mark.parametrize("then", ["time.sleep(99)", "os._exit(1)"], ids=["hangs", "dies"])
def test_closing_ends_everything_that_the_worker_started(
    plugin: Plugin, make_task: MakeTask, tmp_path: Path, then: str, wait_for: WaitFor, alive: Alive
) -> None:
    note = tmp_path / "child"
    info = plugin("family", CHILD.format(note=str(note), then=then))
    with closing(WorkerProcess(info, 1)) as worker:
        worker.hello(LONG)
        worker.send(encode(RunTask(make_task(backend="family"))))
        wait_for(note.exists, "the task")
        if "exit" in then:
            wait_for(lambda: not alive(worker._process.pid), "its death")
    child = int(note.read_text())
    try:
        wait_for(lambda: not alive(child), "the end of the child")
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)


def test_closing_does_not_wait_for_a_child_that_went_its_own_way(
    plugin: Plugin, make_task: MakeTask, tmp_path: Path, alive: Alive
) -> None:
    """A daemon in a session of its own outlives the worker: no reason for the run to stand still."""
    note = tmp_path / "daemon"
    source = f"""
    class Backend(NullBackend):
        def tensor(self, spec, seed):
            left, leaving = os.pipe()
            child = os.fork()
            if child == 0:
                os.setsid()
                os.write(leaving, b".")
                time.sleep(99)
            Path({str(note)!r}).write_text(str(child))
            os.read(left, 1)  # until it has left
            os._exit(5)
    """
    worker = WorkerProcess(plugin("founder", source), 1)
    worker.hello(LONG)
    closer = threading.Thread(target=worker.close, daemon=True)
    try:
        assert "exit code 5" in died(worker, make_task(backend="founder")).reason
        closer.start()
        closer.join(LONG)
        assert not closer.is_alive()
    finally:
        if alive(int(note.read_text())):
            os.kill(int(note.read_text()), signal.SIGKILL)


def test_closing_leaves_nothing_open(make_task: MakeTask) -> None:
    def open_files() -> int:
        return psutil.Process().num_fds()

    before, threads = open_files(), threading.active_count()
    for _ in range(3):
        with closing(WorkerProcess(backend("null"), 1)) as worker:
            worker.hello(LONG)
            worker.run(make_task(), LONG)
    # Fewer is no leak: the reader of an earlier test's worker may have ended meanwhile.
    assert open_files() <= before
    assert threading.active_count() <= threads


def test_a_lost_task_is_a_record(make_task: MakeTask) -> None:
    task = make_task()
    record = record_of_death(task, WorkerDied("timeout", "no answer"), 2.5, "an environment")
    assert (record.task, record.status, record.reason) == (task, "timeout", "no answer")
    assert (record.environment, record.duration) == ("an environment", 2.5)
    assert record.measurements == ()
    assert record.started
