"""A worker that is kept alive across tasks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from opmark.hardware.host import affinity
from opmark.hardware.resctrl import why_not
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend
from opmark.runner import instruction_set
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.runner.worker_process import WorkerDied, WorkerProcess
from opmark.schema import Environment, Record, Resources, Task

Plugin = Callable[..., BackendInfo]
MakeTask = Callable[..., Task]


class Watched:
    """A supervisor, what it said and which environments it reported."""

    def __init__(self, info: BackendInfo, timeout: float) -> None:
        self.said: list[str] = []
        self.environments: list[Environment] = []
        self.supervisor = Supervisor(
            info, 1, WorkerOptions(timeout, say=self.said.append, keep=self.environments.append)
        )
        self.start, self.close = self.supervisor.start, self.supervisor.close

    def run(self, task: Task) -> Record:
        return self.supervisor.run(task)

    @property
    def pid(self) -> int:
        assert self.supervisor._worker is not None
        return self.supervisor._worker._process.pid


Supervise = Callable[..., Watched]


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    with ExitStack() as stack:

        def start(info: BackendInfo, timeout: float = 60.0) -> Watched:
            return stack.enter_context(closing(Watched(info, timeout)))

        yield start


@pytest.fixture
def fault(make_task: MakeTask) -> Callable[..., Task]:
    return lambda kind, n=16: make_task("fault", "numpy-cpu", kind=kind, n=n)


def test_a_device_that_went_away_is_the_reason_of_the_tasks_that_are_left(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path
) -> None:
    """The worker that follows finds none."""
    source = (
        "from pathlib import Path\n"
        f"GONE = Path({str(tmp_path / 'gone')!r})\n"
        "class Backend(NullBackend):\n"
        "    def why_unavailable(self): return 'it went away' if GONE.exists() else None\n"
        "    def usable(self): return bool(GONE.touch())"
    )
    watched = supervise(plugin("away", source))
    records = [watched.run(make_task("add", "away")) for _ in range(3)]
    assert [(one.status, one.reason) for one in records[1:]] == [("skipped", "it went away")] * 2
    assert records[0].status == "ok"


# Every way to fail is one record, and the next task is measured.


@pytest.mark.parametrize(
    ("kind", "status", "telling"),
    [
        ("wrong", "wrong", "off by 1"),
        ("error", "error", "RuntimeError: raised on purpose"),
        ("segfault", "error", "SIGSEGV"),
        ("exit", "error", "exit code 3"),
        ("hang", "timeout", "no answer within"),
        ("oom", "oom", "Unable to allocate"),
    ],
)
def test_a_failure_is_one_record_and_the_next_task_is_measured(
    supervise: Supervise, fault: Callable[..., Task], kind: str, status: str, telling: str
) -> None:
    worker = supervise(backend("numpy-cpu"), timeout=8.0 if kind == "hang" else 60.0)
    failing, good = fault(kind), fault("none")
    record = worker.run(failing)
    assert (record.task, record.status) == (failing, status)
    assert telling in record.reason
    assert record.measurements == ()
    assert record.failed
    after = worker.run(good)
    assert (after.status, after.reason) == ("ok", "")
    assert after.measurements


def test_a_failure_that_leaves_the_process_alone_costs_no_new_worker(
    supervise: Supervise, fault: Callable[..., Task]
) -> None:
    worker = supervise(backend("numpy-cpu"))
    worker.run(fault("none"))
    first = worker.pid
    for kind in ("error", "wrong", "oom"):
        worker.run(fault(kind))
    assert worker.pid == first


def test_a_worker_that_was_killed_while_it_waited_is_replaced(supervise: Supervise, make_task: MakeTask) -> None:
    worker = supervise(backend("null"))
    worker.run(make_task())
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.run(make_task(shape=[2])).status in {"ok", "killed"}
    assert worker.run(make_task(shape=[3])).status == "ok"


def test_a_record_of_a_crash_names_the_environment_that_it_ran_in(
    supervise: Supervise, fault: Callable[..., Task]
) -> None:
    """Empty is for where nothing ran: a crash is worth most with the versions it happened with."""
    worker = supervise(backend("numpy-cpu"))
    record = worker.run(fault("segfault"))
    assert record.environment == worker.environments[0].id


def test_a_record_of_a_task_that_no_worker_took_names_no_environment(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path
) -> None:
    """The first worker dies of its task, and there is no second one."""
    source = f"""
    class Backend(NullBackend):
        def __init__(self, info, threads):
            Path({str(tmp_path / "started")!r}).mkdir()
            super().__init__(info, threads)
        def tensor(self, spec, seed):
            os._exit(1)
    """
    worker = supervise(plugin("once", source))
    environments = [worker.run(make_task(backend="once", shape=[n])).environment for n in (1, 2)]
    assert environments == [worker.environments[0].id, ""]


def test_environments_are_reported_before_the_records_that_name_them(supervise: Supervise, make_task: MakeTask) -> None:
    worker = supervise(backend("null"))
    record = worker.run(make_task())
    assert record.environment in {environment.id for environment in worker.environments}


# Starting.


def test_a_worker_starts_once(supervise: Supervise) -> None:
    worker = supervise(backend("null"))
    assert worker.start() is worker.start()
    assert len(worker.environments) == 1


def test_a_worker_that_cannot_start_is_told_and_can_be_closed(supervise: Supervise, plugin: Plugin) -> None:
    worker = supervise(plugin("broken", "raise ImportError('no driver')"))
    for _ in range(2):
        with pytest.raises(WorkerDied, match="no driver"):
            worker.start()
    worker.close()


def dies_while_starting(note: Path, deaths: int, act: str = "os.kill(os.getpid(), signal.SIGKILL)") -> str:
    """Source of a backend whose first workers, `deaths` in all, do not get beyond importing it."""
    return f"""
with open({str(note)!r}, "a") as note:
    note.write("x")
if Path({str(note)!r}).stat().st_size <= {deaths}:
    {act}
class Backend(NullBackend): pass
"""


@pytest.mark.parametrize("act", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(4)", "raise ImportError('busy')"])
def test_a_start_that_fails_is_tried_again_and_costs_no_task(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path, act: str
) -> None:
    note = tmp_path / "starts"
    worker = supervise(plugin("dying", dies_while_starting(note, 1, act)))
    assert [worker.run(make_task(backend="dying", shape=[n])).status for n in (1, 2)] == ["ok", "ok"]
    assert note.read_text() == "xx"


def test_a_start_that_fails_again_costs_one_task_and_the_others_are_untried(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path
) -> None:
    note = tmp_path / "starts"
    worker = supervise(plugin("dying", dies_while_starting(note, 100)))
    records = [worker.run(make_task(backend="dying", shape=[n])) for n in (1, 2, 3)]
    assert [(record.status, record.untried) for record in records] == [
        ("killed", False), ("killed", True), ("killed", True),
    ]  # fmt: skip
    assert {record.reason for record in records} == {
        "dying cannot start: its process was killed (SIGKILL) while starting"
    }
    assert note.read_text() == "xx"


def test_a_stopped_start_is_ended_by_the_time_out_and_tried_again(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opmark.runner.supervisor.SHORTEST_START", 0.0)
    stop = "os.kill(os.getpid(), signal.SIGSTOP)"
    worker = supervise(plugin("dying", dies_while_starting(tmp_path / "starts", 1, stop)), timeout=12.0)
    assert worker.run(make_task(backend="dying")).status == "ok"


@pytest.mark.parametrize(("timeout", "start"), [(1.0, 30.0), (40.0, 40.0), (60.0, 120.0), (3600.0, 120.0)])
def test_a_start_is_limited_by_a_time_out_that_is_shorter_than_the_default(timeout: float, start: float) -> None:
    assert WorkerOptions(timeout).start_timeout == start


def test_a_process_that_the_system_does_not_allow_is_a_record(
    supervise: Supervise, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("opmark.runner.supervisor.WorkerProcess", refuse)
    record = supervise(backend("null")).run(make_task())
    assert record.reason == "null cannot start: its process cannot be started: Resource temporarily unavailable"


def test_a_task_for_a_worker_that_cannot_start_is_a_record(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask
) -> None:
    worker = supervise(plugin("broken", "os._exit(4)"))
    record = worker.run(make_task(backend="broken"))
    assert record.status == "error"
    assert "exit code 4" in record.reason


def test_an_unavailable_backend_has_no_environment_to_report(supervise: Supervise, plugin: Plugin) -> None:
    source = "class Backend(NullBackend):\n    def why_unavailable(self): return 'not here'"
    worker = supervise(plugin("away", source))
    assert worker.start().unavailable == "not here"
    assert worker.environments == []


# Instructions that are not allowed.


def test_a_limit_is_found_said_once_remembered_and_part_of_the_environment(
    supervise: Supervise, fault: Callable[..., Task]
) -> None:
    worker = supervise(backend("numpy-cpu"))
    record = worker.run(fault("illegal_instruction"))
    assert (record.status, record.reason) == ("ok", "")
    assert worker.run(fault("illegal_instruction", 17)).status == "ok"
    assert worker.run(fault("none")).status == "ok"
    (said,) = worker.said
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in said
    assert instruction_set.recall("numpy-cpu") == "AVX512_CORE_BF16"
    seen = {environment.id: environment.facts["variables"] for environment in worker.environments}
    assert seen[record.environment]["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_a_limit_that_is_known_is_used_from_the_start(supervise: Supervise, fault: Callable[..., Task]) -> None:
    instruction_set.remember("numpy-cpu", "AVX512_CORE")
    worker = supervise(backend("numpy-cpu"))
    worker.start()
    first = worker.pid
    assert worker.run(fault("illegal_instruction")).status == "ok"
    assert worker.pid == first
    (environment,) = worker.environments
    assert environment.facts["variables"]["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE"
    assert len(worker.said) == 1


def test_where_a_known_limit_is_not_enough_a_stricter_one_is_tried(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path
) -> None:
    instruction_set.remember("trapped", "AVX512_CORE")
    note = tmp_path / "starts"
    info = plugin("trapped", TRAPPED.format(note=str(note), allowed=["AVX2"]), device="cpu")
    assert supervise(info).run(make_task(backend="trapped", shape=[13])).status == "ok"
    assert note.read_text().split() == ["AVX512_CORE", "AVX2"]
    assert instruction_set.recall("trapped") == "AVX2"


def test_a_limit_that_cannot_be_remembered_is_used_all_the_same(
    supervise: Supervise, fault: Callable[..., Task], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container without a home directory."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    worker = supervise(backend("numpy-cpu"))
    assert worker.run(fault("illegal_instruction")).status == "ok"
    assert worker.run(fault("illegal_instruction", 17)).status == "ok"


TRAPPED = """
class Backend(NullBackend):
    def __init__(self, info, threads):
        super().__init__(info, threads)
        with open({note!r}, "a") as note:
            note.write(os.environ.get("ONEDNN_MAX_CPU_ISA", "all") + "\\n")
    def environment(self):
        return {{}}
    def tensor(self, spec, seed):
        if spec.shape == (13,) and os.environ.get("ONEDNN_MAX_CPU_ISA") not in {allowed!r}:
            os.kill(os.getpid(), signal.SIGILL)
        return spec
"""


@pytest.mark.parametrize(
    ("allowed", "tried", "found"),
    [
        (["AVX512_CORE"], ["all", "AVX512_CORE_BF16", "AVX512_CORE_VNNI", "AVX512_CORE"], "AVX512_CORE"),
        ([], ["all", *instruction_set.LIMITS], None),
    ],
    ids=["the third helps", "none helps"],
)
def test_limits_are_tried_from_the_mildest_on(
    supervise: Supervise,
    plugin: Plugin,
    make_task: MakeTask,
    tmp_path: Path,
    allowed: list[str],
    tried: list[str],
    found: str | None,
) -> None:
    note = tmp_path / "starts"
    info = plugin("trapped", TRAPPED.format(note=str(note), allowed=allowed), device="cpu")
    worker = supervise(info)
    record = worker.run(make_task(backend="trapped", shape=[13]))
    assert note.read_text().split() == tried
    assert instruction_set.recall("trapped") == found
    assert record.status == ("ok" if found else "error")
    assert len(worker.said) == (1 if found else 0)
    if not found:
        assert "SIGILL" in record.reason
    assert worker.run(make_task(backend="trapped", shape=[14])).status == "ok"
    # The limit that helped stays; where none did, none is left behind.
    assert note.read_text().split()[-1] == (found or "all")


def test_a_device_that_is_no_processor_gets_no_limit(
    supervise: Supervise, plugin: Plugin, make_task: MakeTask, tmp_path: Path
) -> None:
    instruction_set.remember("gpu", "AVX2")
    note = tmp_path / "starts"
    info = plugin("gpu", TRAPPED.format(note=str(note), allowed=[]), device="cuda")
    worker = supervise(info)
    assert worker.run(make_task(backend="gpu", shape=[13])).status == "error"
    assert note.read_text().split() == ["all"]
    assert worker.said == []


STICKY = """
class Backend(NullBackend):
    broken = False
    def environment(self):
        return {"pid": os.getpid()}
    def tensor(self, spec, seed):
        if self.broken or spec.shape == (13,):
            type(self).broken = True
            raise RuntimeError("an illegal memory access was encountered")
        return spec
    def usable(self):
        return not self.broken
"""


def test_a_device_that_refuses_everything_since_costs_one_record(
    plugin: Plugin, supervise: Supervise, make_task: MakeTask
) -> None:
    worker = supervise(plugin("sticky", STICKY))
    records = [worker.run(make_task(backend="sticky", shape=[n])) for n in (1, 13, 2, 3)]
    assert [record.status for record in records] == ["ok", "error", "ok", "ok"]
    first, failed, second, third = (record.environment for record in records)
    assert first == failed != second == third


def test_an_error_that_leaves_the_device_well_keeps_the_process(
    plugin: Plugin, supervise: Supervise, make_task: MakeTask
) -> None:
    worker = supervise(
        plugin("well", STICKY.replace("return not self.broken", "type(self).broken = False; return True"))
    )
    records = [worker.run(make_task(backend="well", shape=[n])) for n in (1, 13, 2)]
    assert [record.status for record in records] == ["ok", "error", "ok"]
    assert len({record.environment for record in records}) == 1


def test_a_worker_that_dies_while_it_waits_costs_no_task(supervise: Supervise, make_task: MakeTask) -> None:
    watched = supervise(backend("numpy-cpu"))
    watched.start()
    pid = watched.pid
    os.kill(pid, signal.SIGKILL)
    assert watched.supervisor._worker is not None
    watched.supervisor._worker._process.wait()
    assert watched.run(make_task(backend="numpy-cpu")).status == "ok"
    assert watched.pid != pid


def test_a_worker_that_never_takes_a_task_is_replaced_once(
    supervise: Supervise, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Task] = []

    def gone(self: object, task: Task, *_: float) -> None:
        tried.append(task)
        raise WorkerDied("error", "gone before it began", idle=True)

    monkeypatch.setattr(WorkerProcess, "run", gone)
    record = supervise(backend("null")).run(make_task())
    assert (record.status, record.reason, len(tried)) == ("error", "gone before it began", 2)
    assert record.untried


@contextmanager
def supervised(resources: Resources, environments: list[Environment]) -> Iterator[Supervisor]:
    options = WorkerOptions(60.0, keep=environments.append)
    with closing(Supervisor(backend("null"), 1, options, resources=resources)) as supervisor:
        yield supervisor


def test_a_worker_keeps_to_the_cores_that_its_task_names(make_task: MakeTask) -> None:
    core, environments = affinity()[-1], list[Environment]()
    with supervised(Resources("scatter", (core,)), environments) as supervisor:
        assert supervisor.run(make_task("add", "null", shape=[4])).status == "ok"
    assert environments[0].facts["affinity"] == [core]


def test_cores_that_are_not_there_are_a_record_with_the_reason(make_task: MakeTask) -> None:
    with supervised(Resources("scatter", (99_999,)), []) as supervisor:
        record = supervisor.run(make_task("add", "null", shape=[4]))
    assert record.status == "error"
    assert "cores 99999 cannot be used here" in record.reason


def test_multiprocessors_that_a_backend_cannot_keep_to_are_the_reason_in_its_hello() -> None:
    with supervised(Resources(sms=8), []) as supervisor:
        assert supervisor.start().unavailable == "null cannot keep to a part of the multiprocessors"


def test_ways_of_the_cache_that_cannot_be_had_are_a_record_with_the_reason(make_task: MakeTask) -> None:
    if not why_not():
        pytest.skip("this machine shares out its cache")
    with supervised(Resources(cache_ways=2), []) as supervisor:
        record = supervisor.run(make_task("add", "null", shape=[4]))
    assert "2 ways of the cache cannot be had" in record.reason


def test_a_clock_that_cannot_be_locked_is_a_record_with_the_reason(make_task: MakeTask) -> None:
    with supervised(Resources(clock=1500), []) as supervisor:
        record = supervisor.run(make_task("add", "null", shape=[4]))
    assert record.status == "error"
    assert "the clock cannot be 1500 MHz: not locked: it is no NVIDIA GPU" in record.reason
