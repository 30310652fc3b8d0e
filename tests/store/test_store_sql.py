"""The store in an SQLite file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from opmark.errors import StoreError
from opmark.schema import Environment, Record, Run
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite
from opmark.store.tables import VERSION

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]

HOSTILE = "'; DROP TABLE run; --\" [red]label[/red] \\ % ? :x {y} é\n日本"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(Sqlite(path), create=True)) as opened:
        yield opened


def numbers(records: list[Record]) -> list[int]:
    return [record.task.case.params["shape"][0] for record in records]


# In and out.


def test_what_is_written_is_read_by_the_next_process(
    store: SqlStore, path: Path, make_run: MakeRun, make_record: MakeRecord
) -> None:
    run, environment = make_run(label="mine", command="opmark run", version="1"), Environment.of({"cpu": "x", "n": 2})
    record = make_record(3, [1e-6, 2e-6], environment=environment.id, reason="none")
    store.begin(run)
    store.add_environment(environment)
    store.append(run.id, record)
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert reader.runs() == [run]
        assert reader.records(run.id) == [record]
        assert reader.environments([environment.id]) == {environment.id: environment}


def test_records_come_in_the_order_written(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    store.begin(make_run())
    for n in (5, 1, 4, 2, 3):
        store.append(make_run().id, make_record(n))
    assert numbers(store.records(make_run().id)) == [5, 1, 4, 2, 3]


def test_a_run_has_its_own_records_only(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    for n in (1, 2):
        store.begin(make_run(f"run {n}"))
    for run, n in (("run 1", 1), ("run 2", 2), ("run 1", 3)):
        store.append(run, make_record(n))
    assert numbers(store.records("run 1")) == [1, 3]
    assert store.records("run 3") == []


def test_a_task_has_one_record_in_a_run(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    """Also where a run is resumed while the first process still writes to it."""
    store.begin(make_run("run"))
    store.append("run", make_record(1))
    store.append("run", make_record(1))
    assert numbers(store.records("run")) == [1]


def test_runs_come_newest_first_whatever_their_ids_say(store: SqlStore, make_run: MakeRun) -> None:
    for name in ("b", "c", "a"):
        store.begin(make_run(name))
    assert [run.id for run in store.runs()] == ["a", "c", "b"]
    assert [run.id for run in store.runs(limit=2)] == ["a", "c"]


def test_an_environment_is_stored_once(store: SqlStore, path: Path) -> None:
    for _ in range(2):
        store.add_environment(Environment.of({"cpu": "x"}))
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM environment").fetchone() == (1,)


def test_only_the_environments_asked_for_come_back(store: SqlStore) -> None:
    one, two = (Environment.of({"cpu": name}) for name in "xy")
    store.add_environment(one)
    store.add_environment(two)
    assert store.environments([two.id, "unknown"]) == {two.id: two}


@pytest.mark.parametrize("label", [HOSTILE, "", " ", "x" * 10_000])
def test_a_label_survives_whatever_it_says(store: SqlStore, make_run: MakeRun, label: str) -> None:
    store.begin(make_run("before"))
    store.begin(make_run(label=label, command=label))
    assert [(run.label, run.command) for run in store.runs()] == [(label, label), ("", "")]


# Append-only.


def test_nothing_but_inserts_changes_the_store(store: SqlStore, make_run: MakeRun, make_record: MakeRecord) -> None:
    said: list[str] = []
    event.listen(
        store._database.engine, "before_cursor_execute", lambda _c, _cur, statement, *_: said.append(statement)
    )
    store.begin(make_run())
    for _ in range(2):
        store.add_environment(Environment.of({"cpu": "x"}))
        store.append(make_run().id, make_record(1, [1.0]))
    store.records(make_run().id)
    words = {statement.split()[0].upper() for statement in said}
    assert "INSERT" in words
    assert words <= {"INSERT", "SELECT", "BEGIN", "CREATE", "PRAGMA"}
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


# Several processes.


def test_the_journal_is_a_write_ahead_log(store: SqlStore, path: Path, make_run: MakeRun) -> None:
    store.begin(make_run())
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_reader_is_not_stopped_by_a_writer(
    store: SqlStore, path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opmark.store.sqlite.BUSY_SECONDS", 0.05)
    store.begin(make_run())
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with closing(SqlStore(Sqlite(path), create=False)) as reader:
            assert [run.id for run in reader.runs()] == [make_run().id]


def test_a_file_that_another_process_is_just_making_becomes_a_store(path: Path, make_run: MakeRun) -> None:
    """SQLite makes the file when it opens it, and the tables a moment later."""
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        path.touch()
        store.begin(make_run())
        assert store.runs() == [make_run()]


WRITER = """
import sys, time
from contextlib import closing
from pathlib import Path
from opmark.schema import EFFORTS, Case, Record, Run, Settings, Task
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite

name, folder, stores, count, start = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
while time.time() < float(start):
    pass
for number in range(stores):
    while time.time() < float(start) + 0.03 * number:
        pass
    with closing(SqlStore(Sqlite(folder / f"{number}.db"), create=True)) as store:
        store.begin(Run(name, "2030", "plan", count))
        for n in range(count):
            case = Case.of("add", {"shape": [n]}, "forward")
            store.append(name, Record(Task(case, "null", "null", Settings(1, "quick", EFFORTS["quick"])), "ok"))
"""


def write_at_once(folder: Path, processes: int, stores: int, count: int) -> None:
    """Every process writes a run to each store; all begin at the same moment, when no store is there."""
    import time

    start = str(time.time() + 1.5)  # after the imports of all of them
    arguments = [str(folder), str(stores), str(count), start]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, f"run {i}", *arguments], stderr=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    for writer in writers:
        _, said = writer.communicate(timeout=120)
        assert writer.returncode == 0, said


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    write_at_once(tmp_path, processes=2, stores=1, count=150)
    with closing(SqlStore(Sqlite(tmp_path / "0.db"), create=False)) as store:
        assert sorted(run.id for run in store.runs()) == ["run 0", "run 1"]
        for run in store.runs():
            assert numbers(store.records(run.id)) == list(range(150))


def test_processes_that_make_the_store_at_once_share_it(tmp_path: Path) -> None:
    write_at_once(tmp_path, processes=3, stores=20, count=1)
    for number in range(20):
        with closing(SqlStore(Sqlite(tmp_path / f"{number}.db"), create=False)) as store:
            assert sorted(run.id for run in store.runs()) == ["run 0", "run 1", "run 2"]


# A place for it.


def test_the_file_comes_with_the_first_thing_to_store(tmp_path: Path, make_run: MakeRun) -> None:
    path = tmp_path / "new" / "folder" / "store.db"
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        assert not path.exists()
        assert list(path.parent.iterdir()) == []
        store.begin(make_run())
        assert path.exists()


def test_looking_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store yet") as caught:
        SqlStore(Sqlite(tmp_path / "folder" / "store.db"), create=False)
    assert caught.value.hint
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("name", ["with space.db", "what?.db", "50%20.db", "a#b.db", "é日本.db", "a&b=c;d.db", "x"])
def test_the_store_is_the_file_of_that_very_name(tmp_path: Path, make_run: MakeRun, name: str) -> None:
    with closing(SqlStore(Sqlite(tmp_path / name), create=True)) as store:
        store.begin(make_run())
    assert name in {item.name for item in tmp_path.iterdir()}
    with closing(SqlStore(Sqlite(tmp_path / name), create=False)) as store:
        assert store.runs() == [make_run()]


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_run: MakeRun
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SqlStore(Sqlite(Path("here.db")), create=True)) as store:
        store.begin(make_run())
    assert (tmp_path / "here.db").exists()


# What is not a store.


def refused(path: Path, *, create: bool) -> StoreError:
    with pytest.raises(StoreError) as caught:
        SqlStore(Sqlite(path), create=create).close()
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


both_ways = pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])


@both_ways
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"notes of a person, longer than the header of a database\n" * 40)
    before = path.read_bytes()
    assert "not a database" in refused(path, create=create).message
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@both_ways
def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE photo (name)")
        raw.commit()
    before = path.read_bytes()
    assert "photo" in refused(path, create=create).message
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@both_ways
def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path, path: Path, make_run: MakeRun, create: bool) -> None:
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        store.begin(make_run())
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE opmark_meta SET value = ? WHERE key = 'version'", (str(VERSION + 1),))
        raw.commit()
    before = path.read_bytes()
    error = refused(path, create=create)
    assert f"version {VERSION + 1}" in error.message
    assert "upgrade" in (error.hint or "")
    assert path.read_bytes() == before


@both_ways
def test_a_store_without_its_version_is_refused(path: Path, make_run: MakeRun, create: bool) -> None:
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        store.begin(make_run())
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DELETE FROM opmark_meta")
        raw.commit()
    refused(path, create=create)


@both_ways
def test_a_folder_is_no_store(tmp_path: Path, create: bool) -> None:
    refused(tmp_path, create=create)


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "store.db", create=True)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("damage", [b"", b"\0" * 4096])
def test_a_damaged_store_is_an_error_with_a_hint(path: Path, make_run: MakeRun, damage: bytes) -> None:
    """Cut off behind its header, or zeroed there: whatever is tried with it ends in a message."""
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        store.begin(make_run())
    content = path.read_bytes()
    path.write_bytes(content[:4096] + damage)

    def look() -> None:
        with closing(SqlStore(Sqlite(path), create=False)) as store:
            store.runs()

    with pytest.raises(StoreError) as caught:
        look()
    assert str(path) in caught.value.message


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder, and somebody whom its permissions stop: root is stopped by none."""
    folder = Path(tempfile.mkdtemp())
    was_root = hasattr(os, "geteuid") and os.geteuid() == 0
    try:
        if was_root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        yield folder
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of another kind")
def test_a_read_only_folder_is_refused_before_anything_is_measured() -> None:
    with ordinary_user() as folder:
        folder.chmod(0o500)
        error = refused(folder / "store.db", create=True)
        assert list(folder.iterdir()) == []
    assert "ermission" in error.message


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of another kind")
def test_a_read_only_store_is_refused_before_anything_is_measured(make_run: MakeRun) -> None:
    with ordinary_user() as folder:
        path = folder / "store.db"
        with closing(SqlStore(Sqlite(path), create=True)) as store:
            store.begin(make_run())
        path.chmod(0o400)
        folder.chmod(0o500)
        refused(path, create=True)


def test_a_busy_store_says_so(path: Path, store: SqlStore, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.store.sqlite.BUSY_SECONDS", 0.05)
    store.begin(make_run())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as caught:
            SqlStore(Sqlite(path), create=True)
    assert "another process" in (caught.value.hint or "")


# What was found out about a machine.


def test_the_newest_finding_of_a_kind_and_a_chip_is_the_one_that_counts(store: SqlStore, path: Path) -> None:
    store.keep("peaks", "Fast 9000", "2030", {"flops": 1})
    store.keep("peaks", "Fast 9000", "2029", {"flops": 2})
    store.keep("peaks", "Slow 1", "2031", {"flops": 3})
    store.keep("noise", "Fast 9000", "2031", {"floor": [0.01, None]})
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert reader.kept("peaks", "Fast 9000") == {"flops": 2}
        assert reader.kept("noise", "Fast 9000") == {"floor": [0.01, None]}
        assert reader.kept("noise", "Slow 1") is None


def test_a_chip_survives_whatever_it_is_called(store: SqlStore) -> None:
    store.keep("peaks", HOSTILE, "2030", [1])
    assert store.kept("peaks", HOSTILE) == [1]


@pytest.fixture
def old(path: Path, make_run: MakeRun, make_record: MakeRecord) -> Record:
    """A store as the first version left it, with one record."""
    run, record = make_run(), make_record(1, [1e-6])
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        store.begin(run)
        store.append(run.id, record)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DROP TABLE finding")
        raw.execute("UPDATE opmark_meta SET value = '1' WHERE key = 'version'")
        raw.commit()
    return record


def version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return str(raw.execute("SELECT value FROM opmark_meta WHERE key = 'version'").fetchone()[0])


def test_a_store_of_the_first_version_is_read_and_left_as_it_is(path: Path, old: Record) -> None:
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        (run,) = reader.runs()
        assert reader.records(run.id) == [old]
        assert reader.kept("peaks", "Fast 9000") is None
    assert version(path) == "1"


def test_the_first_writer_brings_an_old_store_up_to_date_and_loses_nothing(path: Path, old: Record) -> None:
    with closing(SqlStore(Sqlite(path), create=True)) as writer:
        writer.keep("peaks", "Fast 9000", "2030", 1)
        (run,) = writer.runs()
        assert writer.records(run.id) == [old]
    assert version(path) == str(VERSION)
    with closing(SqlStore(Sqlite(path), create=False)) as reader:
        assert reader.kept("peaks", "Fast 9000") == 1
