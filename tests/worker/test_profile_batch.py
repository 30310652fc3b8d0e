"""The program that a profiler runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opmark.plugin import BackendInfo, registry
from opmark.schema import Task
from opmark.schema.messages import ProfileBatch, ProfileTask
from opmark.worker.preparation import prepare
from opmark.worker.profile_batch import ProfileProgram, main, run

Plugin = Callable[..., BackendInfo]
MakeTask = Callable[..., Task]

# Each launch and each end of a range leaves a line.
TELLING = """
from contextlib import contextmanager
LOG = Path({log!r})
def tell(word):
    with LOG.open("a") as lines: print(word, file=lines)
class Telling:
    def __init__(self, seconds): self.seconds = seconds
    def __call__(self):
        tell("launch")
        return self.seconds
class Backend(NullBackend):
    def tensor(self, spec, seed):
        tell(f"seed {{seed}}")
        return super().tensor(spec, seed)
    def backward(self, launch, inputs, seed, forward=False, some=False): return Telling(1.0), ()
    def synchronize(self): tell("synchronize")
    @contextmanager
    def annotated(self, name):
        tell(f"open {{name}}")
        yield
        tell(f"close {{name}}")
"""


def batch(*tasks: Task) -> ProfileBatch:
    items = tuple(
        ProfileTask(f"opmark_{i}", f"[param|torch.add|0|0|{i}|measure|forward]", task) for i, task in enumerate(tasks)
    )
    return ProfileBatch(tasks[0].backend, 1, items)


def done(path: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["range"]: line["reason"] for line in lines}


def events(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def inside(found: list[dict[str, Any]], outer: dict[str, Any]) -> list[str]:
    end = outer["ts"] + outer["dur"]
    return [e["name"] for e in found if e is not outer and outer["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end]


def test_warm_up_is_outside_of_the_range_and_the_device_is_waited_for_inside(
    plugin: Plugin, make_task: MakeTask, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    plugin("telling", TELLING.format(log=str(log)))
    task = make_task(backend="telling")
    task = msgspec.structs.replace(task, case=msgspec.structs.replace(task.case, phase="backward"))
    assert run(batch(task), tmp_path / "done", warmup=2, iterations=3) == 0
    assert log.read_text().splitlines() == [
        "seed 0", "seed 1", *["launch"] * 2, "synchronize", "open opmark_0", *["launch"] * 3, "synchronize",
        "close opmark_0",
    ]  # fmt: skip


def test_inputs_are_those_that_the_worker_measures(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    info = registry.backend("numpy-cpu")
    backend = info.load(1)
    task = make_task(backend="numpy-cpu")
    made = ProfileProgram(info, backend, 0, 1)._prepare(task)
    operator = registry.operator("add")
    (implementation,) = operator.implementations_for("numpy")
    expected = prepare(task.case.params, task, operator, implementation, backend)
    assert {name: value.tolist() for name, value in made.inputs.items()} == {
        name: value.tolist() for name, value in expected.inputs.items()
    }


def test_a_task_that_fails_is_said_and_the_others_go_on(
    make_task: MakeTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [
        make_task(backend="numpy-cpu"),
        make_task("fault", "numpy-cpu", kind="error"),
        make_task(backend="numpy-cpu", shape=[8]),
    ]
    assert run(batch(*tasks), tmp_path / "done", warmup=1, iterations=1) == 1
    found = done(tmp_path / "done")
    assert (found["opmark_0"], found["opmark_2"]) == ("", "")
    assert found["opmark_1"]
    assert found["opmark_1"] in capsys.readouterr().err


def test_a_device_that_refuses_everything_fails_the_rest(plugin: Plugin, make_task: MakeTask, tmp_path: Path) -> None:
    plugin(
        "broken",
        """
        class Backend(NullBackend):
            def tensor(self, spec, seed): raise RuntimeError("device-side assertion")
            def usable(self): return False
        """,
    )
    tasks = [make_task(backend="broken"), make_task(backend="broken", shape=[8])]
    assert run(batch(*tasks), tmp_path / "done", warmup=1, iterations=1) == 2
    found = done(tmp_path / "done")
    assert found["opmark_0"] == "RuntimeError: device-side assertion"
    assert "of no use after [param|torch.add|0|0|0|measure|forward]" in found["opmark_1"]


def test_a_backend_that_cannot_run_here_fails_all(plugin: Plugin, make_task: MakeTask, tmp_path: Path) -> None:
    plugin("away", "class Backend(NullBackend):\n    def why_unavailable(self): return 'no such device'")
    trace = tmp_path / "trace.json"
    assert run(batch(make_task(backend="away")), tmp_path / "done", 1, 1, trace) == 1
    assert done(tmp_path / "done") == {"opmark_0": "no such device"}
    assert not trace.exists()


def test_a_backend_that_knows_of_no_ranges_still_runs(
    plugin: Plugin, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was written before there were profilers."""
    plugin(
        "older",
        """
        class Backend(NullBackend):
            def __getattribute__(self, name):
                if name in ("annotated", "traced"): raise AttributeError(name)
                return super().__getattribute__(name)
        """,
    )
    trace = tmp_path / "trace.json"
    assert run(batch(make_task(backend="older")), tmp_path / "done", 1, 1) == 0
    assert run(batch(make_task(backend="older")), tmp_path / "done", 1, 1, trace) == 0
    assert [e["name"] for e in events(trace)] == ["null", "[param|torch.add|0|0|0|measure|forward]"]


# Traces.


def test_the_trace_of_torch_has_a_range_for_each_task_with_its_calls_inside(
    make_task: MakeTask, tmp_path: Path
) -> None:
    tasks = batch(make_task(backend="torch-cpu"), make_task("matmul", "torch-cpu", M=8, N=8, K=8))
    trace = tmp_path / "trace.json"
    assert run(tasks, tmp_path / "done", warmup=2, iterations=3, trace=trace) == 0
    found = events(trace)
    ranges = [e for e in found if e["name"].startswith("[param|")]
    assert [(e["name"], e["args"]["range"]) for e in ranges] == [(item.label, item.range) for item in tasks.items]
    assert inside(found, ranges[0]).count("aten::add") == 3
    assert inside(found, ranges[1]).count("aten::mm") == 3
    assert "aten::mm" not in inside(found, ranges[0])


def test_the_backward_pass_is_inside_of_its_range(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task("matmul", "torch-cpu", M=8, N=8, K=8)
    task = msgspec.structs.replace(task, case=msgspec.structs.replace(task.case, phase="backward"))
    trace = tmp_path / "trace.json"
    assert run(batch(task), tmp_path / "done", warmup=1, iterations=1, trace=trace) == 0
    found = events(trace)
    (opened,) = (e for e in found if e["name"].startswith("[param|"))
    assert inside(found, opened).count("aten::mm") == 2
    assert {e["tid"] for e in found if e["name"] == "aten::mm"} == {opened["tid"]}


def test_a_framework_without_a_profiler_has_its_calls_by_the_hosts_clock(make_task: MakeTask, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert run(batch(make_task(backend="numpy-cpu")), tmp_path / "done", warmup=2, iterations=3, trace=trace) == 0
    found = events(trace)
    (opened,) = (e for e in found if e["cat"] == "user_annotation")
    assert inside(found, opened) == ["numpy"] * 3


# As a program.


def test_the_exit_code_says_whether_all_of_them_ran(make_task: MakeTask, tmp_path: Path) -> None:
    for kind, code in (("none", 0), ("error", 1)):
        path = tmp_path / f"{kind}.tasks.json"
        path.write_bytes(msgspec.json.encode(batch(make_task("fault", "numpy-cpu", kind=kind))))
        asked = [sys.executable, "-m", "opmark.worker.profile_batch", str(path), "--warmup", "1", "--iterations", "2"]
        ended = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == code, ended.stderr
        assert bool(done(tmp_path / f"{kind}.tasks.done")["opmark_0"]) == bool(code)


def test_it_runs_in_this_process_too(make_task: MakeTask, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(batch(make_task())))
    assert main([str(tmp_path / "t.json"), "--done", str(tmp_path / "elsewhere")]) == 0
    assert done(tmp_path / "elsewhere") == {"opmark_0": ""}


HANGING = """
class Backend(NullBackend):
    def tensor(self, spec, seed):
        Path({started!r}).touch()
        time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of the death of another process")
def test_it_dies_with_the_process_that_it_is_for(
    plugin: Plugin, make_task: MakeTask, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    """Which is not its parent: a profiler stands in between."""
    plugin("hanging", HANGING.format(started=str(tmp_path / "started")))
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(batch(make_task(backend="hanging"))))
    asked = [sys.executable, "-m", "opmark.worker.profile_batch", str(tmp_path / "t.json"), "--parent"]
    with subprocess.Popen(["sleep", "600"]) as other, subprocess.Popen([*asked, str(other.pid)]) as process:
        wait_for((tmp_path / "started").exists, "the first task")
        assert process.poll() is None
        other.kill()
        assert process.wait(timeout=30) == -signal.SIGKILL
