"""What is of stores in SQLite files alone: where they are, who else has them open, what is no store."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from opmark.errors import StoreError
from opmark.schema import Record, Run
from opmark.store.sql import SqlStore, open_sql
from opmark.store.sqlite import Sqlite

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(Sqlite(path), create=True)) as opened:
        yield opened


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


# A place for it.


def test_the_file_comes_with_the_first_thing_to_store(tmp_path: Path, make_run: MakeRun) -> None:
    path = tmp_path / "new" / "folder" / "store.db"
    with closing(SqlStore(Sqlite(path), create=True)) as store:
        assert not path.exists()
        assert list(path.parent.iterdir()) == []
        store.begin(make_run())
        assert path.exists()


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
    assert refused(path, create=create).message == f"{path}: is a text file, not a store (an SQLite file)"
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@both_ways
@pytest.mark.parametrize(
    ("content", "name"),
    [(b"\x1f\x8b\x08", "a gzip file"), (b'{"a": 1}', "a JSON file"), (b"PGDMP\x01", "a dump of PostgreSQL"),
     (bytes(range(256)), "some other file")],
)  # fmt: skip
def test_a_mislabelled_file_is_called_what_it_is(tmp_path: Path, create: bool, content: bytes, name: str) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    assert refused(path, create=create).message == f"{path}: is {name}, not a store (an SQLite file)"
    assert path.read_bytes() == content


def test_an_empty_file_is_called_empty_and_becomes_a_store_when_it_is_written(
    tmp_path: Path, make_run: Callable[..., Run]
) -> None:
    path = tmp_path / "store.db"
    path.touch()
    assert "is an empty file" in refused(path, create=False).message
    with closing(open_sql(path, create=True)) as store:
        store.begin(make_run())
    with closing(open_sql(path)) as store:
        assert len(store.runs()) == 1


@both_ways
def test_a_folder_is_called_a_folder(tmp_path: Path, create: bool) -> None:
    found = refused(tmp_path, create=create)
    assert found.message == f"{tmp_path}: is a folder, not a store"


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
def test_a_folder_is_no_store(tmp_path: Path, create: bool) -> None:
    refused(tmp_path, create=create)


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "store.db", create=True)
    assert (tmp_path / "file").read_text() == "x"


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


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of another kind")
def test_a_store_where_nobody_can_write_can_be_read(make_run: MakeRun) -> None:
    """As on a share for archives."""
    with ordinary_user() as folder:
        path = folder / "store.db"
        with closing(SqlStore(Sqlite(path), create=True)) as store:
            store.begin(make_run())
        path.chmod(0o400)
        folder.chmod(0o500)
        with closing(SqlStore(Sqlite(path), create=False)) as reader:
            assert reader.runs() == [make_run()]
        # The file is opened as a query opens it, which starts an interpreter that such a user may not have.
        with closing(Sqlite(path).read_only()) as connection:
            assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        assert [item.name for item in folder.iterdir()] == [path.name]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of another kind")
def test_an_old_store_where_nobody_can_write_can_be_read() -> None:
    with ordinary_user() as folder:
        path = Path(shutil.copy(Path(__file__).parent / "data" / "version_2.sqlite", folder / "store.db"))
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        path.chmod(0o400)
        folder.chmod(0o500)
        with closing(SqlStore(Sqlite(path), create=False)) as reader:
            assert reader.runs()
        assert [item.name for item in folder.iterdir()] == [path.name]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of another kind")
def test_who_cannot_write_takes_no_file_for_unchangeable_that_needs_no_log() -> None:
    """Others may write to it: what they write is seen, and their locks are respected."""
    with ordinary_user() as folder:
        path = folder / "store.db"
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("CREATE TABLE some (n)")
        writer = sqlite3.connect(path, isolation_level=None)
        folder.chmod(0o500)
        with closing(writer), closing(Sqlite(path).read_only()) as reader:
            writer.execute("PRAGMA journal_mode=MEMORY")
            writer.execute("INSERT INTO some VALUES (1)")
            assert reader.execute("SELECT n FROM some").fetchall() == [(1,)]
            writer.execute("INSERT INTO some VALUES (2)")
            assert reader.execute("SELECT n FROM some").fetchall() == [(1,), (2,)]


def test_a_busy_store_says_so(path: Path, store: SqlStore, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.store.sqlite.BUSY_SECONDS", 0.05)
    store.begin(make_run())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as caught:
            SqlStore(Sqlite(path), create=True)
    assert "another process" in (caught.value.hint or "")
