"""Records through a profiler: with it, in spite of it, and when somebody presses Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

import opmark
from opmark.errors import InvalidFile, UserError
from opmark.plugin import BackendInfo
from opmark.runner import instruction_set
from opmark.runner.profilers.profile_run import (
    ProfileQueue,
    ProfilerRunner,
    Profiling,
    arguments_in,
    is_profiled,
    profiler_runners,
)
from opmark.schema import Record, Task

pytestmark = pytest.mark.machine

Plugin = Callable[..., BackendInfo]
MakeTask = Callable[..., Task]


def ask(tmp_path: Path, profiler: str, **fields: Any) -> Profiling:
    return Profiling(profiler, folder=tmp_path / "profiles", **{"warmup": 1, "timeout": 60.0, **fields})


def measure(tmp_path: Path, profile: Any, *sizes: int, **options: Any) -> list[Record]:
    asked = {"backend": "null", "effort": "quick", "params": {"shape": [[n] for n in sizes or (4,)]}, "processes": 1}
    return opmark.run("add", profile=profile, db=tmp_path / "store.db", **{**asked, **options}).records


def queue_of(asked: Any) -> tuple[ProfileQueue, list[Record]]:
    """A queue, and what it passes on."""
    passed: list[Record] = []
    return ProfileQueue(profiler_runners(asked, "run", print), passed.append), passed


def script(tmp_path: Path, source: str) -> str:
    """A command line that runs this, with {program} and {output} behind it."""
    path = tmp_path / "profiler.py"
    path.write_text(source)
    return f"{sys.executable} {path} {{output}} {{program}}"


# What a profiler says ends up in the record, and in the store.


def test_metrics_of_ncu_are_attached_and_stored(tmp_path: Path, fake: Callable[[str], str]) -> None:
    records = measure(tmp_path, ask(tmp_path, "ncu", bin=fake("ncu")), 4, 8)
    for number, record in enumerate(records):
        assert record.notes == ()
        (profile,) = record.profiles
        assert [kernel.name for kernel in profile.kernels] == [
            f"void work<opmark_{number}, std::array<char *, 3>>(int, T2)", "split_k",
        ]  # fmt: skip
        assert profile.kernels[0].metrics["gpu__time_duration.sum [ns]"] == 2688
        assert profile.kernels[0].metrics["dram__bytes.sum [byte]"] == 1069056
        assert "device__attribute_clock_rate" not in profile.kernels[0].metrics
        assert Path(profile.file).read_text().startswith("==PROF==")
        assert shlex.split(profile.command)[0] == fake("ncu")
    shown = opmark.show(db=tmp_path / "store.db")
    assert shown.records == records
    assert [row["profiles"][0]["kernels"][0]["metrics"]["gpu__time_duration.sum [ns]"] for row in shown.rows()] == [
        2688.0, 2688.0,
    ]  # fmt: skip


def test_metrics_of_nsys_are_attached(tmp_path: Path, fake: Callable[[str], str]) -> None:
    (record,) = measure(tmp_path, ask(tmp_path, "nsys", bin=fake("nsys")))
    (profile,) = record.profiles
    assert [kernel.name for kernel in profile.kernels] == ["void work<float>(int)", "copy"]
    assert profile.file.endswith(".nsys-rep")
    assert record.notes == ()


def test_the_table_of_ranges_is_kept_beside_the_output(tmp_path: Path, fake: Callable[[str], str]) -> None:
    (record,) = measure(tmp_path, ask(tmp_path, "ncu", bin=fake("ncu"), label=lambda task: f"<{task.case.op}>"))
    (listed,) = (tmp_path / "profiles").glob("*.tasks.json")
    (item,) = json.loads(listed.read_text())["items"]
    assert (item["range"], item["label"], item["task"]["case"]["id"]) == ("opmark_0", "<add>", record.task.case.id)
    assert sorted(path.name.split(".", 1)[1] for path in (tmp_path / "profiles").iterdir()) == ["ncu.csv", "tasks.json"]


def test_a_trace_needs_no_other_program(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, ask(tmp_path, "trace", iterations=3), backend="numpy-cpu")
    (profile,) = record.profiles
    assert [kernel.name for kernel in profile.kernels] == ["numpy"] * 3
    names = [event["name"] for event in json.loads(Path(profile.file).read_text())["traceEvents"]]
    assert names == ["numpy", "numpy", "numpy", "add 4 float32 forward"]


def test_any_other_profiler_is_a_command_line(tmp_path: Path) -> None:
    template = script(
        tmp_path,
        """
import subprocess, sys
output, *program = sys.argv[1:]
code = subprocess.run(program).returncode
open(output + ".csv", "w").write("range,kernel,cycles\\nopmark_0,matrix unit,120\\n")
sys.exit(code)
""",
    )
    (record,) = measure(tmp_path, ask(tmp_path, "command", command=template))
    (profile,) = record.profiles
    assert [(kernel.name, kernel.metrics) for kernel in profile.kernels] == [("matrix unit", {"cycles": 120.0})]
    assert record.notes == ()


def test_a_command_may_write_what_only_its_own_viewer_reads(tmp_path: Path) -> None:
    source = """
import subprocess, sys
open(sys.argv[1] + ".bin", "wb")
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""
    (record,) = measure(tmp_path, ask(tmp_path, "command", command=script(tmp_path, source)))
    (profile,) = record.profiles
    assert (profile.file.endswith(".command.bin"), profile.kernels, record.notes) == (True, (), ())


def test_several_profilers_look_one_after_the_other(tmp_path: Path, fake: Callable[[str], str]) -> None:
    asked = [ask(tmp_path, "ncu", bin=fake("ncu"), batch=1), ask(tmp_path, "trace")]
    records = measure(tmp_path, asked, 4, 8, backend="numpy-cpu")
    assert [[profile.profiler for profile in record.profiles] for record in records] == [["ncu", "trace"]] * 2
    assert len({record.profiles[0].file for record in records}) == 2
    assert len({record.profiles[1].file for record in records}) == 1


def test_the_program_of_a_batch_can_be_another(tmp_path: Path) -> None:
    program = ["env", "MARK=1", sys.executable, "-m", "opmark.worker.profile_batch"]
    (record,) = measure(tmp_path, ask(tmp_path, "trace", program=program))
    assert shlex.split(record.profiles[0].command)[:2] == ["env", "MARK=1"]


# Which tasks, in which order, how many at once.


def test_one_start_takes_a_batch_of_one_backend_and_one_number_of_threads(
    tmp_path: Path, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[list[tuple[str, int]]] = []

    def look(_: ProfilerRunner, records: Sequence[Record]) -> list[Record]:
        starts.append([(record.task.backend, record.task.settings.threads) for record in records])
        return list(records)

    monkeypatch.setattr(ProfilerRunner, "profile", look)
    wide = [replace(make_task(), settings=replace(make_task().settings, threads=2))]
    tasks = [*[make_task()] * 3, *wide * 2, *[make_task(backend="numpy-cpu")]]
    records = [Record(task, "ok") for task in tasks]
    queue, passed = queue_of(ask(tmp_path, "trace", batch=2))
    for record in records:
        queue.add(record)
    queue.finish()
    assert passed == records
    one, two, other = ("null", 1), ("null", 2), ("numpy-cpu", 1)
    assert starts == [[one, one], [one], [two, two], [other]]


def test_what_is_not_looked_at_does_not_wait(tmp_path: Path, make_task: MakeTask) -> None:
    """It is stored at once, unless something waits that was measured before it."""
    queue, passed = queue_of(ask(tmp_path, "trace"))
    queue.add(Record(make_task(), "error"))
    assert [record.status for record in passed] == ["error"]
    queue.add(Record(make_task(), "ok"))
    queue.add(Record(make_task(), "oom"))
    assert [record.status for record in passed] == ["error"]
    queue.finish()
    assert [record.status for record in passed] == ["error", "ok", "oom"]


def test_records_keep_their_order_and_only_what_was_measured_is_looked_at(tmp_path: Path) -> None:
    work = tmp_path / "w.yaml"
    work.write_text("schema: 1\nname: w\ncases:\n  - {op: fault, params: {kind: [none, error], n: [1, 2]}}\n")
    result = opmark.run(
        workload=work, backend="numpy-cpu", effort="quick", processes=2, db=":memory:", profile=ask(tmp_path, "trace")
    )
    plan = opmark.plan(workload=work, backend="numpy-cpu", effort="quick", processes=2)
    assert [record.task.id for record in result.records] == [task.id for task in plan.tasks]
    assert [bool(record.profiles) for record in result.records] == [is_profiled(record) for record in result.records]
    assert sum(map(is_profiled, result.records)) == 2
    assert {record.status for record in result.records} == {"ok", "error"}


# What goes wrong costs a note.


@pytest.mark.parametrize(
    ("fault", "said", "file"),
    [
        ("fail", "ended with exit code 9; it said: the first line | ncu: the driver is too old", False),
        ("denied", "ended with exit code 1; its output cannot be read: .*ERR_NVGPUCTRPERM", True),
        ("garbage", "its output cannot be read: .* holds no table of kernels", True),
        ("broken", "its output cannot be read: .* breaks off", True),
        ("silent", "its output cannot be read: .*No such file", False),
        ("hang", "not done within 1.50 s; killed", False),
    ],
)
def test_a_profiler_that_fails_costs_a_note_and_no_number(
    tmp_path: Path, fake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, fault: str, said: str, file: bool
) -> None:
    monkeypatch.setenv("FAKE_PROFILER", fault)
    told: list[str] = []
    limit = 1.5 if fault == "hang" else 60.0
    records = measure(tmp_path, ask(tmp_path, "ncu", bin=fake("ncu"), timeout=limit), 4, 8, say=told.append)
    assert [record.status for record in records] == ["ok", "ok"]
    assert all(record.measurements for record in records)
    assert [len(record.profiles) for record in records] == [int(file)] * 2
    for record in records:
        (note,) = record.notes
        assert note.startswith("no profile by ncu: ")
        assert re.search(said, note), note
    assert told == [records[0].notes[0]]
    assert opmark.show(db=tmp_path / "store.db").records == records


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no-importer", "expected .*sqlite, found .*qdstrm"),
        ("no-ranges", "no NVTX range"),
        ("other-schema", "no such table"),
    ],
)
def test_an_export_of_another_kind_costs_a_note(
    tmp_path: Path, fake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setenv("FAKE_PROFILER", fault)
    (record,) = measure(tmp_path, ask(tmp_path, "nsys", bin=fake("nsys")))
    assert record.status == "ok"
    (note,) = record.notes
    assert re.search(said, note), note


def test_a_profiler_that_is_not_installed_costs_a_note(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, ask(tmp_path, "ncu", bin="/no/such/ncu"))
    assert (record.status, record.profiles) == ("ok", ())
    assert record.notes == ("no profile by ncu: no program /no/such/ncu can be run here",)


def test_a_command_that_never_runs_the_program_is_noticed(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, ask(tmp_path, "command", command="true {program}"))
    assert record.notes == ("no profile by command: the program did not come to this task",)


def test_a_command_that_writes_nothing_is_noticed(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, ask(tmp_path, "command", command="env {program}"))
    (note,) = record.notes
    assert note.startswith("no profile by command: it wrote no ")


def test_a_profiler_that_fails_in_the_end_leaves_what_it_said(tmp_path: Path) -> None:
    source = """
import subprocess, sys
subprocess.run(sys.argv[2:])
open(sys.argv[1] + ".csv", "w").write("range,kernel\\nopmark_0,work\\n")
sys.exit(3)
"""
    first, second = measure(tmp_path, ask(tmp_path, "command", command=script(tmp_path, source)), 4, 8)
    assert first.notes == ("part of a profile by command: ended with exit code 3",)
    assert [kernel.name for kernel in first.profiles[0].kernels] == ["work"]
    assert second.notes == ("no profile by command: ended with exit code 3",)


def test_a_profile_without_a_word_about_a_task_is_noticed(tmp_path: Path) -> None:
    source = """
import subprocess, sys
open(sys.argv[1] + ".csv", "w").write("range,kernel\\nopmark_1,work\\n")
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""
    first, second = measure(tmp_path, ask(tmp_path, "command", command=script(tmp_path, source)), 4, 8)
    assert "tells of nothing that ran in the range of this task" in first.notes[0]
    assert (second.notes, len(second.profiles[0].kernels)) == ((), 1)


FLAKY = """
class Backend(NullBackend):
    def tensor(self, spec, seed):
        if spec.shape == (8,) and "batch" in sys.argv[0]: raise RuntimeError("not this time")
        if spec.shape == (9,) and "batch" in sys.argv[0]: os.kill(os.getpid(), signal.SIGSEGV)
        return super().tensor(spec, seed)
"""


def test_a_task_that_fails_in_the_batch_has_its_own_reason(
    tmp_path: Path, fake: Callable[[str], str], plugin: Plugin
) -> None:
    plugin("flaky", FLAKY)
    records = measure(tmp_path, ask(tmp_path, "ncu", bin=fake("ncu")), 4, 8, 16, backend="flaky")
    assert [record.notes for record in records] == [(), ("no profile by ncu: RuntimeError: not this time",), ()]
    assert [len(record.profiles[0].kernels) for record in records] == [2, 0, 2]


def test_a_program_that_dies_leaves_what_it_did_and_says_how_it_died(tmp_path: Path, plugin: Plugin) -> None:
    plugin("flaky", FLAKY)
    records = measure(tmp_path, ask(tmp_path, "trace"), 4, 9, 16, backend="flaky")
    assert [record.status for record in records] == ["ok"] * 3
    assert {record.profiles for record in records} == {()}
    for record in records:
        assert "died of SIGSEGV" in record.notes[0]


# Ctrl-C and errors lose nothing.


def test_what_waits_is_given_back_after_an_interruption(tmp_path: Path, make_task: MakeTask) -> None:
    records = [Record(make_task(shape=[n]), "ok", notes=("before",)) for n in (1, 2)]
    records.append(Record(make_task(shape=[3]), "error", "because"))
    asked = [ask(tmp_path, "trace", batch=9), ask(tmp_path, "trace", batch=9)]
    queue, left = queue_of(asked)
    for record in records:
        queue.add(record)
    assert left == []
    queue.abandon()
    assert [record.task for record in left] == [record.task for record in records]
    assert left[0].notes == ("before", "no profile: interrupted before it was taken")
    assert left[2] == records[2]
    queue.abandon()
    assert len(left) == 3


def test_an_interruption_of_the_profiler_gives_everything_back(
    tmp_path: Path, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the record of the next backend, which set the profiler going."""
    records = [Record(make_task(), "ok"), Record(make_task(backend="numpy-cpu"), "ok")]
    queue, passed = queue_of(ask(tmp_path, "trace"))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProfilerRunner, "profile", stop)
    queue.add(records[0])
    with pytest.raises(KeyboardInterrupt):
        queue.add(records[1])
    queue.abandon()
    assert [record.task for record in passed] == [record.task for record in records]


def test_an_interruption_while_storing_loses_nothing(tmp_path: Path) -> None:
    seen: list[Record] = []

    def note(record: Record) -> None:
        seen.append(record)
        if len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, ask(tmp_path, "trace"), 1, 2, 3, on_record=note)
    stored = opmark.show(db=tmp_path / "store.db").records
    assert [record.task.case.params["shape"] for record in stored] == [[1], [2], [3]]
    assert all(record.profiles for record in stored)
    assert seen == stored


HANGING = """
import pathlib, subprocess, sys, time
subprocess.run(sys.argv[2:])
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


Start = Callable[..., subprocess.Popen[str]]


def start(start_process: Start, tmp_path: Path, template: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """`opmark run` with a profiler that hangs; it, and the processes of the profiler."""
    arguments = ["run", "add", "-p", "shape=4,8", "--backend", "null", "--effort", "quick", "--processes", "1"]
    folder = tmp_path / "profiles"
    command = [sys.executable, "-m", "opmark.cli.main", *arguments, "--profiler-command", template]
    environ = {**os.environ, "OPMARK_DB": str(tmp_path / "store.db")}
    process = start_process(*command, "--profile-dir", folder, env=environ)
    until = time.monotonic() + 60
    while not list(folder.glob("*.command")):
        assert time.monotonic() < until, "waited in vain for the profiler"
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    return process, [child for child in children if "profiler.py" in " ".join(child.cmdline())]


def test_ctrl_c_during_a_profile_ends_the_profiler_and_stores_what_was_measured(
    tmp_path: Path, start_process: Start
) -> None:
    process, watching = start(start_process, tmp_path, script(tmp_path, HANGING))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert len(watching) == 1
    assert psutil.wait_procs(watching, timeout=30)[1] == []
    stored = opmark.show(db=tmp_path / "store.db").records
    assert [record.status for record in stored] == ["ok"] * 2
    assert {record.notes for record in stored} == {("no profile: interrupted before it was taken",)}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_the_profiler_dies_with_a_parent_that_is_killed(tmp_path: Path, start_process: Start) -> None:
    process, watching = start(start_process, tmp_path, script(tmp_path, HANGING))
    process.kill()
    process.communicate(timeout=60)
    assert len(watching) == 1
    assert psutil.wait_procs(watching, timeout=30)[1] == []


# Its surroundings.


def test_the_program_starts_with_the_variables_of_a_worker(
    tmp_path: Path, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin("strange", device="cpu", environ={"MY_THREADS": "{threads}"})
    monkeypatch.setattr(instruction_set, "recall", lambda backend: "AVX2")
    source = "import os, json, sys\njson.dump(dict(os.environ), open(sys.argv[1] + '.env', 'w'))"
    asked = ask(tmp_path, "command", command=script(tmp_path, source), device="3")
    (record,) = measure(tmp_path, asked, backend="strange", threads=[2])
    found = json.loads(Path(record.profiles[0].file).read_text())
    assert {found[name] for name in ("MY_THREADS", "CUDA_VISIBLE_DEVICES", "ONEDNN_MAX_CPU_ISA")} == {"2", "3", "AVX2"}


def test_a_run_that_goes_on_writes_beside_what_it_wrote(tmp_path: Path, make_task: MakeTask) -> None:
    record = Record(make_task(), "ok")
    files = []
    for _ in range(2):
        queue, passed = queue_of(ask(tmp_path, "trace"))
        queue.add(record)
        queue.finish()
        (found,) = passed
        files.append(Path(found.profiles[0].file).name)
    assert files == ["run-1.trace.json", "run-2.trace.json"]


# Mistakes are said before anything is measured.


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"profiler": "nuc"}, "no profiler named `nuc`"),
        ({"profiler": "trace", "batch": 0}, "profile batch: expected at least 1, got 0"),
        ({"profiler": "trace", "warmup": -1}, "profile warmup: expected at least 0, got -1"),
        ({"profiler": "trace", "iterations": 0}, "profile iterations: expected at least 1, got 0"),
        ({"profiler": "trace", "timeout": 0}, "profile timeout: expected seconds above 0, got 0"),
        ({"profiler": "command"}, "go together"),
        ({"profiler": "ncu", "command": "x {program}"}, "go together"),
        ({"profiler": "command", "command": "vendorprof"}, r"expected \{program\} in it"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        measure(tmp_path, ask(tmp_path, **fields))
    assert not (tmp_path / "store.db").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("a file")
    with pytest.raises(UserError, match="profiles cannot be kept in"):
        measure(tmp_path, ask(tmp_path, "trace"))


def test_arguments_are_the_words_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "args"
    path.write_text("--set full  # everything\n--kernel-name 'regex:a b'\n")
    assert arguments_in(path) == ("--set", "full", "--kernel-name", "regex:a b")
    path.write_text("--kernel-name 'open")
    with pytest.raises(InvalidFile, match="No closing quotation"):
        arguments_in(path)
    with pytest.raises(InvalidFile, match="No such file"):
        arguments_in(tmp_path / "nothing")


def test_only_the_first_of_several_processes_is_looked_at(make_task: MakeTask) -> None:
    task = make_task()
    second = replace(task, settings=replace(task.settings, process=1))
    assert [is_profiled(Record(task, "ok")), is_profiled(Record(second, "ok")), is_profiled(Record(task, "oom"))] == [
        True,
        False,
        False,
    ]
