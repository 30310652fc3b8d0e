"""One run from its plan to its last record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.analysis.rows import rows_of_records
from opmark.api.run import run
from opmark.api.show import show
from opmark.errors import UserError
from opmark.plugin import BackendInfo
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.runner.selection import select_cases
from opmark.runner.session import Retries, RunRecorder, new_run, run_plan, run_to_resume
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Environment, Record, Run
from opmark.schema.options import MeasureOptions, Selection
from opmark.schema.record import COUNTED
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite

Plugin = Callable[..., BackendInfo]

AWAY = "class Backend(NullBackend):\n    def why_unavailable(self): return 'no such device'"


def plan(*backends: str, sizes: tuple[int, ...] = (4,), threads: tuple[int, ...] = (1,)) -> Plan:
    cases = select_cases(Selection(["add"], params={"shape": [[n] for n in sizes]})).cases
    return make_plan(cases, backends, settings_for(MeasureOptions(threads=threads, effort="quick")))


def performed(work: Plan, said: list[str] | None = None, kept: list[Environment] | None = None) -> list[Record]:
    say: Any = (said if said is not None else []).append
    keep: Any = (kept if kept is not None else []).append
    return list(run_plan(work, WorkerOptions(60.0, say=say, keep=keep)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(Sqlite(tmp_path / "store.db"), create=True)) as opened:
        yield opened


# Performing a plan.


def test_every_task_is_one_record_in_the_order_of_the_plan() -> None:
    work = plan("null", "numpy-cpu", sizes=(1, 2), threads=(1, 2))
    kept: list[Environment] = []
    records = performed(work, kept=kept)
    assert [record.task for record in records] == list(work.tasks)
    assert {record.status for record in records} == {"ok"}
    threads = {environment.id: environment.facts["threads"] for environment in kept}
    assert [threads[record.environment] for record in records] == [record.task.settings.threads for record in records]


def test_backends_take_turns_in_being_the_first_of_a_round() -> None:
    """A B B A: what drifts evenly hits both alike."""
    cases = select_cases(Selection(["add"], params={"shape": [[4]]})).cases
    work = make_plan(
        cases, ["null", "numpy-cpu"], settings_for(MeasureOptions(threads=(1,), effort="quick", processes=3))
    )
    found = [(record.task.settings.process, record.task.backend) for record in performed(work)]
    assert [backend for _, backend in found] == ["null", "numpy-cpu", "numpy-cpu", "null", "null", "numpy-cpu"]
    assert [process for process, _ in found] == [0, 0, 1, 1, 2, 2]


def test_what_is_skipped_comes_last() -> None:
    cases = select_cases(Selection(["exp"], params={"shape": [[4]]}, phase=("backward", "forward"))).cases
    work = make_plan(cases, ["numpy-cpu", "null"], settings_for(MeasureOptions(threads=[1], effort="quick")))
    records = performed(work)
    assert [(record.task.backend, record.task.case.phase, record.status) for record in records] == [
        ("numpy-cpu", "forward", "ok"),
        ("null", "backward", "ok"),
        ("null", "forward", "ok"),
        ("numpy-cpu", "backward", "skipped"),
    ]


def test_an_unavailable_backend_among_others_is_skipped_with_its_reason(plugin: Plugin) -> None:
    plugin("away", AWAY)
    records = performed(plan("away", "null", sizes=(1, 2)))
    assert sorted((record.task.backend, record.status) for record in records) == [
        ("away", "skipped"), ("away", "skipped"), ("null", "ok"), ("null", "ok"),
    ]  # fmt: skip
    assert all(record.reason.endswith("no such device") for record in records if record.status == "skipped")
    assert all(record.started for record in records)


@pytest.mark.parametrize("threads", [(1,), (1, 2)])
def test_an_unavailable_backend_alone_is_a_mistake(plugin: Plugin, threads: tuple[int, ...]) -> None:
    plugin("away", AWAY)
    with pytest.raises(UserError, match="backend `away` cannot run here: no such device") as caught:
        performed(plan("away", threads=threads))
    assert "opmark list backends" in (caught.value.hint or "")


def test_unavailable_backends_and_nothing_else_are_a_mistake(plugin: Plugin) -> None:
    plugin("away", AWAY)
    plugin("far", AWAY)
    with pytest.raises(UserError, match="cannot run here"):
        performed(plan("away", "far"))


@pytest.mark.parametrize(
    ("source", "telling"),
    [
        (
            "class Backend(NullBackend):\n    def __init__(self, info, threads): raise ValueError('no licence')",
            "no licence",
        ),
        ("os._exit(6)", "exit code 6"),
    ],
    ids=["raises", "exits"],
)
def test_a_worker_that_cannot_start_gives_a_record_a_task_and_the_rest_goes_on(
    plugin: Plugin, source: str, telling: str
) -> None:
    plugin("broken", source)
    records = performed(plan("broken", "null", sizes=(1, 2)))
    assert [(record.task.backend, record.status) for record in records] == [
        ("broken", "error"), ("broken", "error"), ("null", "ok"), ("null", "ok"),
    ]  # fmt: skip
    for record in records[:2]:
        assert "broken cannot start" in record.reason
        assert telling in record.reason


def test_a_limit_on_instructions_is_said_once_a_run() -> None:
    cases = select_cases(Selection(["fault"], params={"kind": ["illegal_instruction"]})).cases
    work = make_plan(cases, ["numpy-cpu"], settings_for(MeasureOptions(threads=[1, 2], effort="quick")))
    said: list[str] = []
    for _ in range(2):
        said.clear()
        assert {record.status for record in performed(work, said)} == {"ok"}
        assert len(said) == 1


DYING = """
with open({note!r}, "a") as note:
    note.write("x")
if Path({note!r}).stat().st_size <= {deaths}:
    os.kill(os.getpid(), signal.SIGKILL)
class Backend(NullBackend): pass
"""


def test_a_worker_that_dies_while_it_starts_beside_others_costs_nothing(plugin: Plugin, tmp_path: Path) -> None:
    plugin("dying", DYING.format(note=str(tmp_path / "starts"), deaths=1), device="cpu")
    records = performed(plan("dying", "numpy-cpu", sizes=(1, 2)))
    assert [record.status for record in records] == ["ok"] * 4


def test_what_no_worker_could_try_is_not_stored_and_measured_by_a_resumed_run(plugin: Plugin, tmp_path: Path) -> None:
    plugin("dying", DYING.format(note=str(tmp_path / "starts"), deaths=2))
    asked: dict[str, Any] = {
        "ops": "add", "params": {"shape": [[n] for n in range(1, 7)]}, "backend": "dying", "effort": "quick",
        "threads": 1, "db": tmp_path / "store.db",
    }  # fmt: skip
    first = run(**asked)
    assert [(record.status, record.untried) for record in first.records] == [("killed", False)] + [("killed", True)] * 5
    assert [record.status for record in show(db=asked["db"]).records] == ["killed"]
    assert first.exit_code == 1
    assert [record.status for record in run(**asked, resume=True).records] == ["killed"] + ["ok"] * 5


# Storing.


def test_a_run_begins_with_its_first_record(store: SqlStore) -> None:
    work = plan("null")
    run = new_run(work, "")
    recorder = RunRecorder(store, run)
    store.add_environment(Environment.of({}))
    recorder.add(Record(work.tasks[0], "error", "nobody was left to try it", untried=True))
    assert store.runs() == []
    recorder.add(Record(work.tasks[0], "ok"))
    assert store.runs() == [run]


def test_a_record_is_stored_before_it_is_passed_on(store: SqlStore) -> None:
    work = plan("null", sizes=(1, 2, 3))
    run = new_run(work, "mine")
    passed: list[Record] = []

    def check(record: Record) -> None:
        passed.append(record)
        assert len(store.records(run.id)) == len(passed)
        assert store.records(run.id)[-1].task == record.task

    recorder = RunRecorder(store, run, check)
    for task in work.tasks:
        recorder.add(Record(task, "ok"))
    assert len(passed) == 3
    assert store.runs() == [run]


def test_records_that_come_together_are_stored_in_one_transaction(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = plan("null", sizes=(1, 2, 3))
    run, sizes, passed = new_run(work, "mine"), list[int](), list[Record]()
    extend = store.extend
    monkeypatch.setattr(store, "extend", lambda key, some: (sizes.append(len(some)), extend(key, some))[1])
    recorder = RunRecorder(store, run, passed.append)
    first, second, third = (Record(task, "ok") for task in work.tasks)
    recorder.add(first, second, Record(work.tasks[2], "error", "nobody was left to try it", untried=True))
    assert [record.task for record in store.records(run.id)] == [first.task, second.task]
    assert [record.untried for record in passed] == [False, False, True]
    recorder.add(third)
    assert sizes == [2, 1]


def test_a_run_that_is_resumed_is_not_begun_again(store: SqlStore) -> None:
    work = plan("null")
    run = new_run(work, "")
    store.begin(run)
    RunRecorder(store, run, begun=True).add(Record(work.tasks[0], "ok"))
    assert store.runs() == [run]


def test_a_new_run_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["opmark", "run", "a b"])
    cases = select_cases(Selection(["exp"], params={"shape": [[4]]}, phase=("backward", "forward"))).cases
    work = make_plan(cases, ["numpy-cpu"], settings_for(MeasureOptions(threads=[1], effort="quick")))
    run = new_run(work, "mine")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", run.id)
    assert (run.plan, run.tasks, run.label) == (work.id, 2, "mine")
    assert run.command == "opmark run 'a b'"
    assert run.version == opmark.__version__
    assert run.started.endswith("+00:00")


def test_no_secret_of_the_command_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["opmark", "ab", "--db", "postgresql://u:hunter2@h/db", "--env", "TOKEN=hunter2", "--env=A=hunter2"]
    monkeypatch.setattr("sys.argv", typed)
    command = new_run(Plan((), ()), "").command
    assert command == "opmark ab --db postgresql://u@h/db --env TOKEN=... --env=A=..."


# Resuming.


def stored(store: SqlStore, work: Plan, *labels: str) -> list[Run]:
    runs = [Run(f"run {i}", "2030", work.id, 1, label) for i, label in enumerate(labels)]
    for each in runs:
        store.begin(each)
    return runs


def test_the_newest_run_of_the_same_plan_is_resumed(store: SqlStore) -> None:
    work = plan("null")
    runs = stored(store, work, "a", "b", "")
    store.begin(Run("another", "2030", plan("null", sizes=(9,)).id, 1, "a"))
    assert run_to_resume(store, work.id, "") == runs[2]
    assert run_to_resume(store, work.id, "a") == runs[0]


@pytest.mark.parametrize("label", ["", "mine"])
def test_without_such_a_run_there_is_nothing_to_resume(store: SqlStore, label: str) -> None:
    stored(store, plan("null"), "theirs")
    work = plan("null", sizes=(9,)) if not label else plan("null")
    with pytest.raises(UserError, match="no stored run has this plan") as caught:
        run_to_resume(store, work.id, label)
    assert label in caught.value.message
    assert "--resume needs the same" in (caught.value.hint or "")


class Interrupt:
    """Ctrl-C after that many records."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_a_resumed_run_does_exactly_the_rest(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "ops": "add", "params": {"shape": [[n] for n in range(1, 6)]}, "backend": ["null", "numpy-cpu"],
        "effort": "quick", "threads": 1, "db": tmp_path / "store.db",
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        run(**asked, on_record=Interrupt(3))
    interrupted = show(db=asked["db"])
    assert (len(interrupted.records), interrupted.run.tasks) == (3, 10)
    fresh: list[Record] = []
    result = run(**asked, resume=True, on_record=fresh.append)
    assert (len(fresh), len(result.records)) == (7, 10)
    assert result.run == interrupted.run
    tasks = [record.task.id for record in show(db=asked["db"]).records]
    assert len(tasks) == len(set(tasks)) == 10


def test_a_rest_that_is_only_of_an_unavailable_backend_is_skipped(plugin: Plugin, tmp_path: Path) -> None:
    """Without the interruption it would have been, too: a run that cannot be finished helps nobody."""
    plugin("away", AWAY)
    asked: dict[str, Any] = {
        "ops": "add", "params": {"shape": [[1]]}, "backend": ["null", "away"], "effort": "quick", "threads": 1,
        "db": tmp_path / "store.db",
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        run(**asked, on_record=Interrupt(1))
    result = run(**asked, resume=True)
    assert [(record.task.backend, record.status) for record in result.records] == [("null", "ok"), ("away", "skipped")]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/home/me/.venv/bin/opmark", "run", "add"], "opmark run add"),
        (["/home/me/opmark/__main__.py", "run", "--db", "my runs.db"], "opmark run --db 'my runs.db'"),
        (["sweep.py", "--fast"], "sweep.py --fast"),
    ],
)
def test_a_run_says_what_was_typed_and_not_where_opmark_lies(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    assert new_run(Plan([], []), "").command == said


# What other work disturbed is measured again at the end.


def spoiling(folder: Path, tries: int) -> str:
    """Source of a backend whose first measurements, `tries` in all, are spoilt, in whichever process they are made."""
    return f"""
from opmark.schema import Caution
from opmark.worker.measure import stability

def spoil(observed):
    count = Path({str(folder / "tries")!r})
    count.write_text((count.read_text() if count.exists() else "") + ".")
    if len(count.read_text()) <= {tries}:
        yield Caution("preempted", "the core was taken away", "stop other work")

stability._check_preemption = spoil

class Backend(NullBackend): pass
"""


def tries_in(folder: Path) -> int:
    return len((folder / "tries").read_text())


@pytest.mark.disturbed
def test_a_disturbed_task_is_measured_again_after_all_others(plugin: Plugin, tmp_path: Path) -> None:
    plugin("busy", spoiling(tmp_path, 1))
    pauses: list[float] = []
    said: list[str] = []
    work = plan("busy", "null", sizes=(1, 2))
    options = WorkerOptions(60.0, say=said.append)
    records = list(run_plan(work, options, retries=Retries(sleep=pauses.append)))
    found = [(record.task.backend, record.task.case.params["shape"]) for record in records]
    assert found == [("busy", [2]), ("null", [1]), ("null", [2]), ("busy", [1])]
    shown = [(row.backend, row.record.task.case.params["shape"]) for row in rows_of_records(records, named=False)]
    assert shown == [("busy", [1]), ("busy", [2]), ("null", [1]), ("null", [2])], "each row keeps its place"
    assert all(record.status in COUNTED and not record.reason for record in records)
    assert (len(pauses), tries_in(tmp_path)) == (1, 3)
    assert said == ["other work disturbed 1 task: measured again in 1 s, try 1 of 3"]


@pytest.mark.disturbed
def test_what_stays_disturbed_has_one_record_that_says_so(plugin: Plugin, tmp_path: Path) -> None:
    plugin("busy", spoiling(tmp_path, 100))
    pauses: list[float] = []
    (record,) = run_plan(plan("busy"), WorkerOptions(60.0), retries=Retries(sleep=pauses.append))
    assert (record.status, record.reason) == ("disturbed", "the core was taken away; so in 4 tries")
    assert record.measurements[0].disturbed
    assert tries_in(tmp_path) == 4
    assert pauses == sorted(pauses)
    assert len(pauses) == 3


@pytest.mark.disturbed
def test_without_retries_nothing_is_measured_again(plugin: Plugin, tmp_path: Path) -> None:
    plugin("busy", spoiling(tmp_path, 100))
    result = run("add", params={"shape": [4]}, backend="busy", effort="quick", retries=0, db=tmp_path / "store.db")
    assert [record.status for record in result.records] == ["disturbed"]
    assert (tries_in(tmp_path), result.exit_code) == (1, 0)


@pytest.mark.disturbed
def test_without_retries_a_disturbed_record_is_not_held_back(plugin: Plugin, tmp_path: Path) -> None:
    """Whoever ends a run in the middle has it, and knows how far the run has come."""
    plugin("busy", spoiling(tmp_path, 1))
    first = next(run_plan(plan("busy", sizes=(1, 2)), WorkerOptions(60.0), retries=Retries(0)))
    assert (first.task.case.params["shape"], first.status) == ([1], "disturbed")
    assert first.reason == "the core was taken away"


@pytest.mark.disturbed
def test_half_of_the_threads_are_tried_where_it_is_asked_for(plugin: Plugin, tmp_path: Path) -> None:
    plugin("busy", spoiling(tmp_path, 2))
    retries = Retries(1, fewer_threads=True, sleep=lambda pause: None)
    records = list(run_plan(plan("busy", threads=(4,)), WorkerOptions(60.0), retries=retries))
    assert [record.task.settings.threads for record in records] == [4, 2]
    assert records[0].status == "disturbed"
    assert records[1].status in COUNTED


@pytest.mark.disturbed
def test_a_run_that_is_interrupted_before_the_retries_measures_them_when_it_is_resumed(
    plugin: Plugin, tmp_path: Path
) -> None:
    plugin("busy", spoiling(tmp_path, 1))
    asked: dict[str, Any] = {
        "ops": "add", "params": {"shape": [[1], [2]]}, "backend": "busy", "effort": "quick", "threads": 1,
        "db": tmp_path / "store.db",
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        run(**asked, on_record=Interrupt(1))
    assert [record.task.case.params["shape"] for record in show(db=asked["db"]).records] == [[2]]
    result = run(**asked, resume=True)
    assert sorted(record.task.case.params["shape"] for record in result.records) == [[1], [2]]
    assert all(record.status in COUNTED for record in result.records)
