"""A store that goes away in the middle of a run: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server
from sqlalchemy import event

import opmark
from opmark.api.result import open_store, storage_line
from opmark.errors import StoreError
from opmark.schema import Environment, Record, Run
from opmark.store import backlog, sqlite
from opmark.store.backlog import merge_command, new_journal
from opmark.store.backlog import pending_journals as journals
from opmark.store.journal import JournaledStore
from opmark.store.merge import merge
from opmark.store.protocol import Store
from opmark.store.sql import open_sql
from opmark.store.sqlite import Sqlite

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]
PEAKS = {"chip": "x", "source": "here", "flops": {"float32": 1e9}, "levels": []}
CPU = Environment.of({"cpu": "x"})


def numbers(records: list[Record]) -> list[int]:
    return [record.task.case.params["shape"][0] for record in records]


def open_to_write(place: str, said: list[str]) -> JournaledStore:
    store = open_store(place, create=True, say=said.append)
    assert isinstance(store, JournaledStore)
    return store


@pytest.fixture
def started(postgres_server: Server) -> Iterator[Server]:
    """Running again when the test is over, whatever it did."""
    yield postgres_server
    if not postgres_server.running:
        postgres_server.start()


# A server that goes away.


def half_a_run(store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    store.add_environment(CPU)
    store.begin(make_run("run", description="said"))
    for n in range(3):
        store.append("run", make_record(n, [1.0 + n], environment=CPU.id))


def the_other_half(store: Store, make_record: MakeRecord) -> None:
    for n in range(3, 6):
        store.append("run", make_record(n, [1.0 + n], environment=CPU.id))
    store.note("run", "label", "noted later")
    store.keep("peaks", "x", "2025-01-01T00:00:00.000+00:00", PEAKS)


def assert_whole(place: str) -> None:
    with closing(open_sql(place)) as reader:
        (run,) = reader.runs()
        assert (run.label, run.description) == ("noted later", "said")
        assert numbers(reader.records("run")) == list(range(6))
        assert [figure.median for figure in reader.figures()] == [1.0 + n for n in range(6)]
        assert reader.environments([CPU.id]) == {CPU.id: CPU}
        assert [finding.body for finding in reader.findings()] == [PEAKS]


def test_a_server_that_comes_back_has_everything_at_the_end_of_the_run(
    started: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    said: list[str] = []
    with closing(open_to_write(postgres_url, said)) as store:
        half_a_run(store, make_run, make_record)
        started.stop()
        the_other_half(store, make_record)
        assert len(journals(postgres_url)) == 1
        assert [line for line in said if "is kept in" in line] == said[:1]
        # What this process wrote, it can read; it does not wait for the server.
        assert numbers(store.records("run")) == list(range(6))
        assert len(store.figures(runs=["run"])) == 6
        assert store.environments([CPU.id]) == {CPU.id: CPU}
        assert store.kept("peaks", "x") == PEAKS
        assert store.kept("peaks", "another") is None
        started.start()
    assert_whole(postgres_url)
    assert journals(postgres_url) == []
    assert len(said) == 2
    assert "3 records" in said[1]


def test_a_server_that_stays_away_gets_it_from_the_next_command_that_writes(
    started: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    said: list[str] = []
    with closing(open_to_write(postgres_url, said)) as store:
        half_a_run(store, make_run, make_record)
        started.stop()
        the_other_half(store, make_record)
    (journal,) = journals(postgres_url)
    assert str(journal) in said[-1]
    with pytest.raises(StoreError):
        open_to_write(postgres_url, said)
    assert journals(postgres_url) == [journal]
    started.start()
    told: list[str] = []
    open_store(postgres_url, say=told.append).close()
    assert str(journal) in told[0]
    assert "opmark merge" in told[0]
    with closing(open_sql(postgres_url)) as reader:
        assert numbers(reader.records("run")) == [0, 1, 2]  # who reads changes nothing
    with closing(open_to_write(postgres_url, said)):
        assert "3 records" in said[-1]
    assert_whole(postgres_url)
    assert journals(postgres_url) == []


def test_a_server_that_is_lost_before_the_run_begins_gets_it_all(
    started: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    with closing(open_to_write(postgres_url, [])) as store:
        started.stop()
        half_a_run(store, make_run, make_record)
        the_other_half(store, make_record)
        started.start()
    assert_whole(postgres_url)


def test_a_server_that_forgets_what_it_had_confirmed_is_told_again(
    started: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    """As servers do that confirm before they have written, or whose place another one takes."""
    started.execute(f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET synchronous_commit = off")
    with closing(open_to_write(postgres_url, [])) as store:
        half_a_run(store, make_run, make_record)
        started.stop()
        the_other_half(store, make_record)
        started.start()
        with closing(open_sql(postgres_url, create=True)) as reader:
            forgotten = 3 - len(reader.records("run"))
    assert forgotten > 0, "it forgot nothing: this test tests nothing"
    assert_whole(postgres_url)


def test_a_run_that_is_resumed_loses_nothing_either(
    started: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord
) -> None:
    with closing(open_to_write(postgres_url, [])) as store:
        half_a_run(store, make_run, make_record)
    with closing(open_to_write(postgres_url, [])) as store:
        assert [run.id for run in store.runs()] == ["run"]
        store.append("run", make_record(3, [4.0], environment=CPU.id))
        started.stop()
        the_other_half(store, make_record)
        started.start()
    assert_whole(postgres_url)


def test_a_flush_that_is_interrupted_is_done_again(
    started: Server, postgres_url: str, make_run: MakeRun, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_to_write(postgres_url, [])) as store:
        half_a_run(store, make_run, make_record)
        started.stop()
        the_other_half(store, make_record)
    started.start()

    def cut_short(into: Any, source: Any, **limits: Any) -> None:
        merge(into, source, **limits)
        raise KeyboardInterrupt  # all is written, and the journal is still there

    with monkeypatch.context() as patched:
        patched.setattr(backlog, "merge", cut_short)
        with pytest.raises(KeyboardInterrupt):
            open_to_write(postgres_url, [])
    assert len(journals(postgres_url)) == 1
    open_to_write(postgres_url, []).close()
    assert_whole(postgres_url)
    assert journals(postgres_url) == []


def test_a_journal_can_be_merged_by_name(
    started: Server, postgres_url: str, tmp_path: Path, make_run: MakeRun, make_record: MakeRecord
) -> None:
    with closing(open_to_write(postgres_url, [])) as store:
        started.stop()
        half_a_run(store, make_run, make_record)
        the_other_half(store, make_record)
    (journal,) = journals(postgres_url)
    elsewhere = str(tmp_path / "elsewhere.db")
    with closing(open_sql(elsewhere, create=True)) as into, closing(open_sql(journal)) as source:
        assert merge(into, source).records == 6
    assert_whole(elsewhere)


def test_opmark_run_goes_on_without_its_server(started: Server, postgres_url: str) -> None:
    """The whole of it: measured, lost after the first record, shown at the end, complete afterwards."""
    said: list[str] = []
    seen: list[Record] = []

    def lose(record: Record) -> None:
        seen.append(record)
        if len(seen) == 2:
            started.stop()

    result = opmark.run(
        "exp", params={"shape": [[1], [2], [3], [4]]}, backend="null", db=postgres_url, on_record=lose, say=said.append
    )
    assert [record.status for record in result.records] == ["ok"] * 4
    assert len(result.rows()) == 4
    assert sum("is kept in" in line for line in said) == 1
    (journal,) = result.journals
    assert result.exit_code == 1
    assert result.storage.startswith(f"run {result.run.id} kept in the journal {journal}, not yet in {postgres_url}: ")
    started.start()
    _, command, _ = result.storage.split("`")
    program = [sys.executable, "-m", "opmark.cli.main"]
    done = subprocess.run([*program, *shlex.split(command)[1:]], capture_output=True, text=True)
    assert (done.returncode, "that had waited" in done.stderr) == (0, True), done.stderr
    assert storage_line([result.run.id], postgres_url) == f"stored as run {result.run.id} in {postgres_url}"
    with closing(open_sql(postgres_url)) as reader:
        assert numbers(reader.records(result.run.id)) == [1, 2, 3, 4]
        assert reader.environments([result.records[0].environment])


def test_the_command_that_merges_has_no_password_and_a_place_for_it(tmp_path: Path) -> None:
    journal = tmp_path / "a journal.sqlite"
    command = merge_command(journal, "postgresql://ada:secret@host/lab?options=-csearch_path%3Dx")
    assert command == (
        f"PGPASSWORD=... opmark merge '{journal}' --db 'postgresql://ada@host/lab?options=-csearch_path%3Dx'"
    )
    assert merge_command(journal, "postgresql://ada@host/lab").startswith("opmark merge ")


# Files that cannot be written.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for 400 KB, where one can be mounted; else an ordinary one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True
    )
    yield folder
    if mounted and mounted.returncode == 0:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_the_disk(store: JournaledStore, folder: Path) -> None:
    if folder.is_mount():
        (folder / "filling").write_bytes(b"x" * shutil.disk_usage(folder).free)
        return
    event.listen(
        store.store.database.engine, "begin", lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1").fetchall()
    )


def test_a_full_disk_loses_nothing(small_disk: Path, make_run: MakeRun, make_record: MakeRecord) -> None:
    place, said = str(small_disk / "store.db"), list[str]()
    with closing(open_to_write(place, said)) as store:
        half_a_run(store, make_run, make_record)
        fill_the_disk(store, small_disk)
        noise = [float(n * 7919 % 1000) for n in range(40_000)]
        for n in range(3):
            store.append("run", make_record(n, [1.0]))  # there already
        store.append("run", make_record(6, noise))
        the_other_half(store, make_record)
        assert "full" in said[0] or "I/O" in said[0]
        assert numbers(store.records("run")) == [0, 1, 2, 6, 3, 4, 5]
        assert len(journals(place)) == 1
    with closing(sqlite3.connect(place)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    if small_disk.is_mount():
        assert len(journals(place)) == 1
        (small_disk / "filling").unlink()
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    open_to_write(place, said).close()
    with closing(open_sql(place)) as reader:
        assert sorted(numbers(reader.records("run"))) == list(range(7))
        assert len(reader.figures()) == 7
    assert journals(place) == []


def test_a_file_that_somebody_holds_for_too_long_loses_nothing(
    tmp_path: Path, make_run: MakeRun, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    place, said = str(tmp_path / "store.db"), list[str]()
    with closing(open_to_write(place, said)) as store:
        half_a_run(store, make_run, make_record)
        with closing(sqlite3.connect(place, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            the_other_half(store, make_record)
        assert "locked" in said[0]
    assert_whole(place)
    assert journals(place) == []


def test_a_mistake_is_no_reason_for_a_journal(tmp_path: Path, make_run: MakeRun, make_record: MakeRecord) -> None:
    place = str(tmp_path / "store.db")
    with closing(open_to_write(place, [])) as store:
        store.begin(make_run())
        with pytest.raises(StoreError):
            store.begin(make_run())
        with pytest.raises(StoreError):
            store.append("no such run", make_record(1))
    assert journals(place) == []


# Where journals are.


def test_a_journal_that_is_written_is_left_to_its_writer(
    tmp_path: Path, make_run: MakeRun, make_record: MakeRecord
) -> None:
    place, said = str(tmp_path / "store.db"), list[str]()
    with closing(new_journal(place)) as journal:
        journal.begin(make_run())
        journal.append(make_run().id, make_record(1))
        open_to_write(place, said).close()
        assert len(journals(place)) == 1
        assert said == []
        journal.append(make_run().id, make_record(2))
    open_to_write(place, said).close()
    with closing(open_sql(place)) as reader:
        assert numbers(reader.records(make_run().id)) == [1, 2]


def test_a_run_is_not_called_stored_while_somebody_else_has_its_journal(
    tmp_path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "_PATIENCE", 0.05)
    place = str(tmp_path / "store.db")
    with closing(new_journal(place)) as journal:  # locked until it is closed
        journal.begin(make_run("20200101-000000-0001"))
        assert backlog.journals_of(place, ["20200101-000000-0001"]) == journals(place)
        assert backlog.journals_of(place, ["29990101-000000-0001"]) == []  # younger than the journal
    (path,) = journals(place)
    assert backlog.journals_of(place, ["20200101-000000-0001"]) == [path]
    assert backlog.journals_of(place, ["20200101-000000-0002"]) == []
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    assert backlog.journals_of(place, ["20200101-000000-0001"]) == [path]
    assert storage_line(["20200101-000000-0001"], place).startswith("run 20200101-000000-0001 kept in the journal")


KILLED = """
import os, signal, sys
from opmark.schema import EFFORTS, Case, Record, Run, Settings, Task
from opmark.store.backlog import new_journal

journal = new_journal(sys.argv[1])
journal.begin(Run("run", "2030", "plan", 1))
task = Task(Case.of("add", {"shape": [1]}, "forward"), "null", "null", Settings(1, "quick", EFFORTS["quick"]))
journal.append("run", Record(task, "ok"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_a_journal_that_is_brought_in(tmp_path: Path) -> None:
    place, said = str(tmp_path / "store.db"), list[str]()
    assert subprocess.run([sys.executable, "-c", KILLED, place], timeout=60).returncode == -9
    open_to_write(place, said).close()
    assert "1 record" in said[0]
    with closing(open_sql(place)) as reader:
        assert numbers(reader.records("run")) == [1]
    assert journals(place) == []


def test_a_journal_is_of_one_store_whatever_the_password(tmp_path: Path) -> None:
    with closing(new_journal("postgresql://me:secret@host/db")) as journal:
        journal.keep("peaks", "x", "2030", 1)
        assert len(journals("postgresql://me:another@host/db")) == 1
        assert journals("postgresql://me@host/other") == []
        assert isinstance(journal.database, Sqlite)
        assert journal.database.path.is_relative_to(os.environ["XDG_STATE_HOME"])
        assert b"secret" not in journal.database.path.read_bytes()


def test_where_the_state_cannot_be_written_the_temporary_folder_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_run: MakeRun
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "state").write_text("a file where a folder should be")
    with closing(new_journal("a.db")) as journal:
        journal.begin(make_run())
        (found,) = journals("a.db")
        assert found.parent.parent == tmp_path
    (tmp_path / f"opmark-journals-{os.geteuid()}").rename(tmp_path / "gone")
    (tmp_path / f"opmark-journals-{os.geteuid()}").write_text("nor here")
    with pytest.raises(StoreError, match="no journal can be made either"):
        new_journal("a.db")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_left_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(new_journal("a.db")) as journal:
        journal.keep("peaks", "x", "2030", 1)
        assert isinstance(journal.database, Sqlite)
        path = journal.database.path
    assert journals("a.db") == [path]
    os.chown(path, 12345, 12345)
    assert journals("a.db") == []


def test_a_damaged_journal_is_said_and_left(tmp_path: Path, make_run: MakeRun) -> None:
    place, said = str(tmp_path / "store.db"), list[str]()
    with closing(new_journal(place)) as journal:
        journal.begin(make_run())
    (path,) = journals(place)
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    open_to_write(place, said).close()
    assert "left as it is" in said[0]
    assert str(path) in said[0]
    assert path.exists()
