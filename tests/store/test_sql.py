"""The store in a database, whichever it is: all of this holds for SQLite and for PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from postgres_server import Server
from sqlalchemy import event, func, select

from opmark.errors import StoreError
from opmark.schema import Caution, Environment, Record, Run
from opmark.store.sql import SqlStore, open_sql
from opmark.store.tables import BENCH_CASE, ENVIRONMENT, META, VERSION

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]

HOSTILE = "'; DROP TABLE run; --\" [red]label[/red] \\ % ? :x {y} %(z)s $1 é\n日本 \u202egnp.exe\u2066 \r\t\x1b[31m"


def numbers(records: list[Record]) -> list[int]:
    return [record.task.case.params["shape"][0] for record in records]


# In and out.


def test_what_is_written_is_read_by_the_next_process(
    store: SqlStore, place: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    run, environment = make_run(label="mine", command="opmark run", version="1"), Environment.of({"cpu": "x", "n": 2})
    record = make_record(3, [1e-6, 2e-6], environment=environment.id, reason="none")
    store.begin(run)
    store.add_environment(environment)
    store.append(run.id, record)
    with closing(open_sql(place)) as reader:
        assert reader.runs() == [run]
        assert reader.records(run.id) == [record]
        assert reader.environments([environment.id]) == {environment.id: environment}


def test_an_environment_and_a_case_are_stored_once(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    for run in ("one", "two"):
        store.begin(make_run(run))
        store.add_environment(Environment.of({"cpu": "x"}))
        store.append(run, make_record(1))
    with store.reading() as connection:
        for table in (ENVIRONMENT, BENCH_CASE):
            assert connection.execute(select(func.count()).select_from(table)).scalar() == 1


@pytest.mark.parametrize("text", [HOSTILE, "", " ", "x" * 10_000])
def test_a_text_survives_whatever_it_says(
    store: SqlStore, make_run: MakeRun, make_record: MakeRecord, text: str
) -> None:
    store.begin(make_run("before", started="2029"))
    store.begin(make_run(label=text, command=text, revision=text, session=text))
    assert [(run.label, run.command, run.revision, run.session) for run in store.runs()] == [(text,) * 4, ("",) * 4]
    record = make_record(1, [1.0], op=text, reason=text)
    store.append(make_run().id, record)
    store.note(make_run().id, "description", text)
    store.keep("peaks", text, "2030", text)
    assert store.records(make_run().id) == [record]
    assert store.runs()[0].description == text
    assert (store.figures()[0].op, store.cases([record.task.case.id])[record.task.case.id].op) == (text, text)
    assert store.kept("peaks", text) == text


@pytest.mark.parametrize(("text", "stored"), [("nul \0 inside", "nul � inside"), ("half \ud800", "half ���")])
def test_what_no_database_can_hold_is_replaced_in_columns(
    store: SqlStore, make_run: MakeRun, text: str, stored: str
) -> None:
    store.begin(make_run(label=text, command=text))
    store.note(make_run().id, "description", text)
    store.keep("peaks", text, "2030", 1)
    (run,) = store.runs()
    assert {run.label, run.command, run.description} == {stored}
    assert store.kept("peaks", text) == 1


def test_a_record_with_nul_in_its_texts_comes_back_as_it_was(
    store: SqlStore, make_run: MakeRun, make_record: MakeRecord
) -> None:
    store.begin(make_run())
    record = make_record(1, [1.0], op="a\0b", reason="c\0d")
    store.append(make_run().id, record)
    assert store.records(make_run().id) == [record]
    assert store.figures()[0].op == "a�b"


def test_a_record_with_what_no_text_can_hold_is_stored(
    store: SqlStore, make_run: MakeRun, make_record: MakeRecord
) -> None:
    half = "half \ud800"
    store.begin(make_run(version="x" * 100))
    record = make_record(1, [1.0], reason=half, duration=float("nan"))
    caution = Caution("noisy", half, half)
    measured = replace(record.measurements[0], overhead=float("inf"), cautions=(caution,))
    task = replace(record.task, backend=f"a\0{half}", implementation=half)
    store.append(make_run().id, replace(record, task=task, measurements=(measured,)))
    (found,) = store.records(make_run().id)
    assert (found.reason, found.duration) == ("half \ufffd\ufffd\ufffd", 0.0)
    assert found.measurements[0].samples == [1.0]
    assert store.figures()[0].backend == "a\ufffdhalf \ufffd\ufffd\ufffd"
    store.add_environment(Environment("0123456789abcdef", {"name": half}))
    store.keep("peaks", "x", "2030", {"said": half})
    assert store.kept("peaks", "x") == {"said": "half \ufffd\ufffd\ufffd"}


# Append-only.


def test_nothing_but_inserts_changes_the_store(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    store.begin(make_run("the tables come with it"))
    said: list[str] = []
    listen = lambda _c, _cur, statement, *_: said.append(statement)  # noqa: E731
    event.listen(store.database.engine, "before_cursor_execute", listen)
    store.begin(make_run(description="said at once"))
    for _ in range(2):
        store.add_environment(Environment.of({"cpu": "x"}))
        store.append(make_run().id, make_record(1, [1.0]))
        store.extend(make_run().id, [make_record(n) for n in range(3)])
    store.note(make_run().id, "label", "x")
    store.keep("peaks", "x", "2030", 1)
    store.records(make_run().id)
    words = {statement.split()[0].upper() for statement in said} - {"BEGIN", "PRAGMA"}
    assert words == {"INSERT", "SELECT"}
    assert not any("OR REPLACE" in statement.upper() or "DO UPDATE" in statement.upper() for statement in said)


def test_a_run_cannot_be_begun_twice(store: SqlStore, make_run: MakeRun) -> None:
    store.begin(make_run(label="first"))
    with pytest.raises(StoreError):
        store.begin(make_run(label="second"))
    assert [run.label for run in store.runs()] == ["first"]


def test_a_record_without_its_run_is_refused(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    store.begin(make_run())
    with pytest.raises(StoreError):
        store.append("no such run", make_record(1))
    assert store.records("no such run") == []


def test_many_at_once_are_all_there_or_none(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    store.begin(make_run())
    unwritable = make_record(2, environment="x" * 16)
    broken = type(unwritable)(**{f: getattr(unwritable, f) for f in unwritable.__struct_fields__} | {"started": None})
    with pytest.raises(StoreError):
        store.extend(make_run().id, [make_record(1), broken])
    assert store.records(make_run().id) == []
    assert store.extend(make_run().id, [make_record(1)]) == 1


# Several processes.

WRITER = """
import sys, time
from contextlib import closing
from opmark.schema import EFFORTS, Case, Record, Run, Settings, Task
from opmark.store.sql import open_sql

name, count, start, *places = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]
for number, place in enumerate(places):
    while time.time() < start + 0.03 * number:
        pass
    with closing(open_sql(place, create=True)) as store:
        store.begin(Run(name, "2030", "plan", count))
        for n in range(count):
            case = Case.of("add", {"shape": [n]}, "forward")
            store.append(name, Record(Task(case, "null", "null", Settings(1, "quick", EFFORTS["quick"])), "ok"))
        store.extend(name, [])
"""


def write_at_once(places: list[str], processes: int, count: int) -> None:
    """Every process writes a run to each store; all begin at the same moment, when no store is there."""
    arguments = [str(count), str(time.time() + 1.5), *places]  # after the imports of all of them
    command = [sys.executable, "-c", WRITER]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(subprocess.Popen([*command, f"run {i}", *arguments], stderr=subprocess.PIPE, text=True))
            for i in range(processes)
        ]
        for writer in writers:
            _, said = writer.communicate(timeout=120)
            assert writer.returncode == 0, said


def test_processes_that_write_at_once_lose_nothing(place: str) -> None:
    write_at_once([place], processes=3, count=100)
    with closing(open_sql(place)) as store:
        assert sorted(run.id for run in store.runs()) == ["run 0", "run 1", "run 2"]
        for run in store.runs():
            assert numbers(store.records(run.id)) == list(range(100))
        assert len(store.figures()) == 300


def test_processes_that_make_the_store_at_once_share_it(tmp_path: Path) -> None:
    places = [str(tmp_path / f"{number}.db") for number in range(20)]
    write_at_once(places, processes=3, count=1)
    for place in places:
        with closing(open_sql(place)) as store:
            assert sorted(run.id for run in store.runs()) == ["run 0", "run 1", "run 2"]


def test_processes_that_make_it_on_a_server_at_once_share_it(postgres_server: Server) -> None:
    places = [postgres_server.new_database() for _ in range(8)]
    write_at_once(places, processes=3, count=1)
    for place in places:
        with closing(open_sql(place)) as store:
            assert sorted(run.id for run in store.runs()) == ["run 0", "run 1", "run 2"]


BATCHES = """
import sys
from opmark.schema import EFFORTS, Case, Measurement, Record, Run, Settings, Task
from opmark.store.sql import open_sql

store = open_sql(sys.argv[1], create=True)
store.begin(Run(sys.argv[2], "2030", "plan", 1))
print("begun", flush=True)
settings = Settings(1, "quick", EFFORTS["quick"])
for batch in range(10**6):
    cases = [Case.of("add", {"shape": [batch, n]}, "forward") for n in range(7)]
    measured = (Measurement("latency", "warm", "virtual", [float(batch)] * 500, 1, 0.0, 1, 0.0, "precise"),)
    store.extend(sys.argv[2], [Record(Task(case, "null", "null", settings), "ok", "", measured) for case in cases])
    print("stored", flush=True)
"""


def test_a_writer_that_is_killed_leaves_no_half_record(place: str) -> None:
    """Seven at once: all of them or none, whole, and the next writer goes on."""
    for turn in range(6):
        with subprocess.Popen([sys.executable, "-c", BATCHES, place, f"run {turn}"], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begun\n"
            for _ in range(turn):
                assert writer.stdout.readline() == b"stored\n"
            time.sleep(0.005 * turn)
            writer.kill()
    with closing(open_sql(place, create=True)) as store:
        counts = {}
        for run in store.runs():
            records = store.records(run.id)
            assert all(r.measurements[0].samples == [float(r.task.case.params["shape"][0])] * 500 for r in records)
            assert len(store.figures(runs=[run.id])) == len(records)
            counts[run.id] = len(records)
        assert all(counts[f"run {turn}"] >= 7 * turn for turn in range(6)), counts
        assert {count % 7 for count in counts.values()} == {0}


# What is not a store.


@pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])
def test_a_store_of_a_newer_version_is_left_alone(store: SqlStore, place: str, make_run: MakeRun, create: bool) -> None:
    store.begin(make_run())
    with store.writing() as connection:
        connection.execute(META.update().values(value=str(VERSION + 1)))
    with pytest.raises(StoreError, match=f"version {VERSION + 1}") as caught:
        open_sql(place, create=create)
    assert "upgrade" in (caught.value.hint or "")


@pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])
def test_a_store_without_its_version_is_refused(store: SqlStore, place: str, make_run: MakeRun, create: bool) -> None:
    store.begin(make_run())
    with store.writing() as connection:
        connection.execute(META.delete())
    with pytest.raises(StoreError, match="does not say of which version"):
        open_sql(place, create=create)


def test_looking_makes_no_store(place: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreError, match="there is no store yet") as caught:
            open_sql(place)
        assert caught.value.hint
