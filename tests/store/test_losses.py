"""What may happen to a store, and to its journals, during a run: nothing is lost, and nothing goes where it does not
belong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from postgres_server import Server
from sqlalchemy import event

from opmark.api.result import open_store
from opmark.errors import StoreError
from opmark.schema import Record, Run
from opmark.store import postgresql
from opmark.store.backlog import flush, new_journal, path_of
from opmark.store.backlog import pending_journals as journals
from opmark.store.journal import JournaledStore
from opmark.store.protocol import StoreUnreachable
from opmark.store.sql import open_sql
from opmark.store.sqlite import Sqlite

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]


def numbers(records: list[Record]) -> list[int]:
    return sorted(record.task.case.params["shape"][0] for record in records)


def open_to_write(place: str, said: list[str]) -> JournaledStore:
    store = open_store(place, create=True, say=said.append)
    assert isinstance(store, JournaledStore)
    return store


def stored(place: str, run_id: str) -> list[int]:
    with closing(open_sql(place)) as reader:
        return numbers(reader.records(run_id))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what is temporary, of this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# Full disks.


@pytest.fixture
def one_disk(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Small, with the store and the user's state on it; what is temporary is elsewhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("only who may mount has a small disk")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def leave_room(disk: Path, count: int) -> None:
    (disk / "filling").write_bytes(b"x" * (shutil.disk_usage(disk).free - count))


@pytest.mark.parametrize("room", [0, 40_000, 120_000])
def test_a_disk_that_is_full_for_its_journal_too_loses_nothing(
    one_disk: Path, temporary: Path, make_run: MakeRun, make_record: MakeRecord, room: int
) -> None:
    place, said, run_id = str(one_disk / "store.db"), list[str](), make_run().id
    noise = [float(n * 7919 % 1000) for n in range(20_000)]
    with closing(open_to_write(place, said)) as store:
        store.begin(make_run())
        store.append(run_id, make_record(0))
        leave_room(one_disk, room)
        for n in range(1, 8):
            store.append(run_id, make_record(n, noise))
        assert numbers(store.records(run_id)) == list(range(8))
    (found,) = journals(place)
    assert found.is_relative_to(temporary)
    assert str(found) in said[-1]
    (one_disk / "filling").unlink()
    subprocess.run(["mount", "-o", "remount,size=16m", str(one_disk)], check=True)
    open_to_write(place, said).close()
    assert stored(place, run_id) == list(range(8))
    assert journals(place) == []


def test_a_journal_that_fills_its_disk_is_followed_by_another(
    tmp_path: Path, temporary: Path, make_run: MakeRun, make_record: MakeRecord
) -> None:
    place, said, run_id = str(tmp_path / "store.db"), list[str](), make_run().id
    with closing(open_to_write(place, said)) as store:
        store.begin(make_run())
        store.append(run_id, make_record(0))
        full(store.store.database)
        store.append(run_id, make_record(1))
        full(store._journals[0].store.database)
        for n in range(2, 5):
            store.append(run_id, make_record(n, [float(n)]))
        assert len(journals(place)) == 2
        assert numbers(store.records(run_id)) == list(range(5))
        assert len(store.figures(runs=[run_id])) == 5
    open_to_write(place, said).close()
    assert stored(place, run_id) == list(range(5))
    assert journals(place) == []


def full(database: object) -> None:
    """As if no page could be added, for who inserts."""
    assert isinstance(database, Sqlite)

    def refuse(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO record"):
            raise StoreUnreachable("database or disk is full")

    event.listen(database.engine, "before_cursor_execute", refuse)


def test_no_folder_for_a_journal_is_said(
    tmp_path: Path, temporary: Path, make_run: MakeRun, make_record: MakeRecord
) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    (temporary / f"opmark-journals-{os.geteuid()}").write_text("nor here")
    with closing(open_to_write(str(tmp_path / "store.db"), [])) as store:
        store.begin(make_run())
        full(store.store.database)
        with pytest.raises(StoreError, match="disk is full; and no journal can be made either"):
            store.append(make_run().id, make_record(1))


# Files that others take away.


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_file_that_is_gone_loses_nothing(
    tmp_path: Path, make_run: MakeRun, make_record: MakeRecord, what: str
) -> None:
    path, said, run_id = tmp_path / "store.db", list[str](), make_run().id
    with closing(open_to_write(str(path), said)) as store:
        store.begin(make_run())
        store.append(run_id, make_record(0))
        take_away(path)
        if what == "replaced":
            with closing(open_sql(path, create=True)) as other:
                other.begin(make_run("another"))
        for n in range(1, 4):
            store.append(run_id, make_record(n))
        assert "somebody moved, removed or replaced it" in said[0]
        assert numbers(store.records(run_id)) == list(range(4))
    (journal,) = journals(str(path))
    with closing(open_sql(journal)) as reader:
        assert numbers(reader.records(run_id)) == list(range(4))
    said.clear()
    open_to_write(str(path), said).close()
    assert "of another store" in said[0]
    assert "opmark merge" in said[0]
    assert journals(str(path)) == [journal]


def take_away(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


# Whose journal it is.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql:///db?host=/srv/one", "postgresql:///db?host=/srv/two"),
        ("postgresql://h/db?options=-csearch_path%3Da", "postgresql://h/db?options=-csearch_path%3Db"),
        ("postgresql://h:5433/db", "postgresql://h/db"),
    ],
)
def test_addresses_that_lead_elsewhere_have_journals_of_their_own(one: str, other: str) -> None:
    with closing(new_journal(one)):
        assert len(journals(one)) == 1
        assert journals(other) == []


@pytest.mark.parametrize(
    "same", ["postgres://h:5432/db", "postgresql+psycopg://h/db", "postgresql://h/db?password=x", "postgresql://h/db"]
)
def test_addresses_that_lead_to_the_same_share_their_journals(same: str) -> None:
    with closing(new_journal("postgresql://h/db")):
        assert len(journals(same)) == 1


def test_a_journal_does_not_go_into_another_store_of_the_same_address(
    place: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    with closing(open_sql(place, create=True)) as store:
        store.begin(make_run("first"))
        mine = store.identity
    assert mine
    with closing(open_sql(place)) as reader:
        assert reader.identity == mine
    with closing(new_journal(place, "of another")) as journal:
        journal.begin(make_run())
    said: list[str] = []
    open_to_write(place, said).close()
    assert "of another store" in said[0]
    assert len(journals(place)) == 1
    with closing(open_sql(place)) as reader:
        assert [run.id for run in reader.runs()] == ["first"]


def test_a_journal_of_an_older_version_comes_in_and_is_gone(tmp_path: Path) -> None:
    place, said = str(tmp_path / "store.db"), list[str]()
    journal = new_journal(place)
    path = path_of(journal)
    journal.close()
    shutil.copy(Path(__file__).parent / "data" / "version_2.sqlite", path)
    open_to_write(place, said).close()
    assert journals(place) == []
    with closing(open_sql(place)) as reader:
        assert reader.runs()


def test_the_writer_of_a_journal_waits_for_who_looks_at_it(tmp_path: Path, make_run: MakeRun) -> None:
    with closing(new_journal("a.db")) as journal:
        assert isinstance(journal.database, Sqlite)
        with journal.database.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            assert raw.execute("PRAGMA busy_timeout").fetchone() == (30_000,)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives folders away")
def test_a_temporary_folder_of_somebody_else_is_not_used(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    folder = temporary / f"opmark-journals-{os.geteuid()}"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(StoreError, match="of another user"):
        new_journal("a.db")
    folder.rmdir()
    (temporary / "elsewhere").mkdir()
    folder.symlink_to(temporary / "elsewhere")
    with pytest.raises(StoreError):
        new_journal("a.db")
    assert list((temporary / "elsewhere").iterdir()) == []


# Records that the store refuses.


def test_records_of_a_run_that_somebody_removed_are_kept(
    place: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    said, run_id = list[str](), make_run().id
    with closing(open_to_write(place, said)) as store:
        store.begin(make_run())
        store.append(run_id, make_record(0))
        with closing(open_sql(place, create=True)) as other:
            other.remove([run_id])
        for n in range(1, 4):
            store.append(run_id, make_record(n))
        assert "is kept in" in said[0]
    assert stored(place, run_id)[-3:] == [1, 2, 3]
    assert journals(place) == []


def test_a_table_that_somebody_locks_loses_nothing(
    postgres_server: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    import psycopg

    monkeypatch.setattr(postgresql, "LOCK_SECONDS", 0.2)
    said, run_id = list[str](), make_run().id
    with closing(open_to_write(postgres_url, said)) as store:
        store.begin(make_run())
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE record IN ACCESS EXCLUSIVE MODE")
            store.append(run_id, make_record(1))
            assert numbers(store.records(run_id)) == [1]
        assert "lock timeout" in said[0]
    assert stored(postgres_url, run_id) == [1]


def test_a_note_that_is_told_again_does_not_replace_a_newer_one(
    postgres_server: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    run_id = make_run().id
    with closing(open_to_write(postgres_url, [])) as store:
        store.begin(make_run())
        store.note(run_id, "label", "older")
        with closing(open_sql(postgres_url, create=True)) as other:
            other.note(run_id, "label", "newer")
        postgres_server.stop()
        try:
            store.append(run_id, make_record(1))
        finally:
            postgres_server.start()
    with closing(open_sql(postgres_url)) as reader:
        assert [run.label for run in reader.runs()] == ["newer"]


def test_what_no_text_can_hold_is_told_again_too(
    postgres_server: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    half, run_id = "half \ud800", make_run().id
    with closing(open_to_write(postgres_url, [])) as store:
        store.begin(make_run(command=half))
        store.note(run_id, "label", half)
        store.keep("peaks", "x", "2030", {"said": half})
        store.append(run_id, make_record(1, [1.0], reason=half))
        postgres_server.stop()
        try:
            store.append(run_id, make_record(2))
            assert numbers(store.records(run_id)) == [1, 2]
        finally:
            postgres_server.start()
    assert stored(postgres_url, run_id) == [1, 2]


def test_what_was_measured_is_not_kept_in_memory(place: str, make_run: MakeRun, make_record: MakeRecord) -> None:
    import tracemalloc

    with closing(open_to_write(place, [])) as store:
        store.begin(make_run())
        for n in range(20):
            store.append(make_run().id, make_record(n, [1.0] * 1000))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(20, 220):
            store.append(make_run().id, make_record(n, [float(i + n) for i in range(1000)]))
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert grown < 200 * 1000  # one of them has 24 KB


def test_flushing_twice_does_no_harm(tmp_path: Path, make_run: MakeRun, make_record: MakeRecord) -> None:
    with closing(open_sql(tmp_path / "store.db", create=True)) as store:
        store.begin(make_run())
        for _ in range(2):
            journal = new_journal(tmp_path / "store.db", store.identity)
            journal.begin(make_run())
            journal.append(make_run().id, make_record(1))
            flush(store, journal, lambda message: None)
        assert numbers(store.records(make_run().id)) == [1]
