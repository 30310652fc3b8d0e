"""Operators that run together: what becomes of the others when one fails, and that nothing keeps running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from itertools import groupby

import psutil
import pytest
from msgspec.structs import replace

from opmark.plugin.registry import operator
from opmark.runner.corun import Member, alone_task, member_tasks, run_company, solo_task
from opmark.runner.plan import settings_for
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Task
from opmark.schema.measurement import CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME
from opmark.schema.options import MeasureOptions

pytestmark = pytest.mark.verdicts

# A launch that goes wrong only while it is called in a loop: long after it was prepared and called once.
CRASHES = """
class Backend(NullBackend):
    def compile(self, built, inputs):
        self.calls = 0
        def launch():
            self.calls += 1
            if self.calls > 200:
                {what}
            return built()
        return launch
"""
FAILURES = {
    "os.kill(os.getpid(), signal.SIGSEGV)": ("error", "SIGSEGV"),
    "raise MemoryError('no memory is left')": ("oom", "no memory is left"),
    "time.sleep(1000)": ("timeout", "no answer within"),
    "raise RuntimeError('it went wrong')": ("error", "it went wrong"),
}


def member(backend: str = "null", op: str = "add", threads: int = 1, **params: object) -> Member:
    settings = settings_for(MeasureOptions(effort="quick", threads=threads, processes=1))[0]
    case = Case.of(op, operator(op).complete({"shape": [8], **params}), "forward")
    return Member(Task(case, backend, {"numpy-cpu": "numpy"}.get(backend, "null"), settings))


def measure(*members: Member, timeout: float = 60.0, compile_timeout: float = 60.0):
    return list(run_company(members, 0, WorkerOptions(timeout, compile_timeout)))


def test_each_has_a_record_together_and_one_alone():
    first, second = member(), member(op="exp")
    records = measure(first, second)
    tasks = member_tasks([first, second], 0)
    assert [record.task for record in records] == [
        tasks[0], alone_task(tasks[0]), tasks[1], alone_task(tasks[1]),
    ]  # fmt: skip
    assert {record.status for record in records} <= {"ok", "disturbed"}
    quantities = [[one.quantity for one in record.measurements] for record in records]
    assert quantities == [[CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME], *[[CORUN_LATENCY]] * 3]
    for record in records:
        assert all(one.timer == record.task.settings.circumstances for one in record.measurements)
        assert all(one.samples and min(one.samples) > 0 for one in record.measurements)
    together, sequence = records[0].measurements[1:]
    assert len(together.samples) == len(sequence.samples)


def test_one_that_has_all_cores_to_itself_in_a_sequence_has_a_record_of_that():
    first, second = member(), member(op="exp")
    wide = replace(first.task, settings=replace(first.task.settings, threads=2))
    first = Member(first.task, (), wide, ())
    records = measure(first, second)
    assert records[-1].task == solo_task(first, member_tasks([first, second], 0)[0])
    assert records[-1].task.settings.threads == 2
    assert records[-1].measurements
    assert any(note.startswith("in sequence, add has") for note in records[0].notes)


@pytest.mark.parametrize("what", FAILURES)
def test_a_companion_that_fails_is_recorded_and_loses_nobody(plugin, what):
    status, reason = FAILURES[what]
    plugin("fails", CRASHES.format(what=what))
    records = measure(member("fails"), member("null"), timeout=5.0 if status == "timeout" else 60.0)
    failed = [record for record in records if record.task.backend == "fails"]
    assert failed[0].status == status
    assert reason in failed[0].reason
    beside, alone = (record for record in records if record.task.backend == "null")
    assert beside.status == "skipped"
    assert beside.reason.startswith("not measured together, because its companion failed: add (")
    assert reason in beside.reason
    assert alone.status in ("ok", "disturbed")
    assert alone.measurements


def test_a_result_that_is_wrong_only_beside_others_is_wrong(tmp_path):
    """A library whose processes share a workspace: after some calls it is wrong while another process uses it."""
    (tmp_path / "shared_workspace.py").write_text(
        textwrap.dedent(
            f"""
            import os, time, numpy
            from pathlib import Path
            FOLDER, CALLS = Path({str(tmp_path)!r}), [0]
            def exp(x):
                CALLS[0] += 1
                out = numpy.exp(x)
                if CALLS[0] > 300:
                    (FOLDER / f"{{os.getpid()}}.used").touch()
                    others = [one for one in FOLDER.glob("*.used") if one.stem != str(os.getpid())]
                    if any(time.time() - one.stat().st_mtime < 20 for one in others):
                        out = out * 0
                return out
            """
        )
    )
    settings = settings_for(MeasureOptions(effort="quick", threads=1, processes=1))[0]
    case = Case.of("exp", operator("exp").complete({"shape": [4096]}), "forward")
    shared = Member(Task(case, "numpy-cpu", f"{tmp_path / 'shared_workspace.py'}:exp", settings))
    records = measure(shared, shared)
    wrong = [record for record in records if record.status == "wrong"]
    assert wrong, [(record.status, record.reason) for record in records]
    # What was measured alone is kept of the one that was not found out first; together there is nothing.
    assert not any(
        record.measurements for record in records
        if not record.task.settings.company.alone and record.status in ("ok", "disturbed")
    )  # fmt: skip


def test_nothing_is_left_when_the_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys; sys.path[:0] = " + repr([str(p) for p in sys.path]) + "\n"
        "from opmark.api.corun import corun\n"
        f"corun(['add', 'exp'], backend='null', cores='shared', processes=20, db={str(tmp_path / 'runs.db')!r})\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen: list[psutil.Process] = []
    try:
        watched = psutil.Process(parent.pid)
        for _ in range(6000):
            seen = [one for one in watched.children(recursive=True) if "opmark.worker.main" in " ".join(one.cmdline())]
            if len(seen) >= 2 or parent.poll() is not None:
                break
            psutil.wait_procs([watched], timeout=0.01)
        assert len(seen) >= 2
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    gone, alive = psutil.wait_procs(seen, timeout=30)
    assert not alive
    assert len(gone) >= 2


def test_streams_of_a_device_are_one_process_for_each_operator():
    records = measure(member("null-device"), member("null-device", op="exp"))
    by_task = [next(group) for _, group in groupby(records, key=lambda record: record.task.case.op)]
    assert [record.task.settings.company.streams for record in by_task] == [True, True]
    slow, alone = records[0].measurements[0], records[1].measurements[0]
    assert sorted(slow.samples)[0] > 1.3 * sorted(alone.samples)[0]


def test_a_device_that_captures_no_graph_is_timed_by_events(monkeypatch):
    monkeypatch.setenv("OPMARK_NULL_DEVICE", "no-graphs")
    records = measure(member("null-device"), member("null-device", op="exp"))
    assert any("by events, not by a captured graph" in note for note in records[0].notes)
    assert {one.quantity for one in records[0].measurements} == {CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME}
