"""Caches never return data that is older than the store."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from push_parts import fill as fill_here
from push_parts import packed
from showcase import CPU, Maker, fill, run
from sqlalchemy import delete

from opmark.dashboard.app import application
from opmark.dashboard.pages import compare
from opmark.dashboard.reader import LatestResults, Reader
from opmark.dashboard.run_cache import AnswerCache
from opmark.dashboard.uploads.store import receive
from opmark.errors import StoreError
from opmark.schema import Record
from opmark.store.sql import open_sql
from opmark.store.tables import BENCH_CASE

OLDER = Path(__file__).parents[1] / "store" / "data" / "version_2.sqlite"


def adds(*sizes: int) -> list[Record]:
    maker = Maker(1)
    return [maker.record("add", {"shape": [size]}, "torch-cpu", CPU) for size in sizes]


def sent(db: Path, one: Any, records: list[Record]) -> None:
    with closing(open_sql(db, create=True)) as store:
        if one not in store.runs():
            store.begin(one)
        store.extend(one.id, records)


def removed(db: Path, one: Any) -> None:
    with closing(open_sql(db, create=True)) as store:
        store.remove([one.id])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path / "a.db")
    yield made
    made.close()


def test_a_run_may_get_more_records_than_it_said(tmp_path: Path, connect: Any) -> None:
    """`opmark ab` says how many it makes for sure, and goes on until it knows."""
    db = tmp_path / "a.db"
    one, two = fill(db, [run(1, "one", adds(8, 16)), run(2, "two", adds(8, 16))])
    with connect(application(db)) as client:

        def told() -> tuple[int, int, int]:
            own = client.get(f"/api/runs/{one.id}").json()
            listed = next(r for r in client.get("/api/runs").json()["runs"] if r["run"]["id"] == one.id)
            both = client.get(f"/api/compare?a={one.id}&b={two.id}").json()["verdicts"]
            return len(own["items"]), sum(listed["statuses"].values()), both["page"]["rows"] + both["lone"][0]

        assert told() == (2, 2, 2)
        sent(db, one, adds(32))
        assert told() == (3, 3, 3)
        sent(db, one, adds(64))
        assert told() == (4, 4, 4)


def test_numbers_that_are_given_again_are_of_others(tmp_path: Path, reader: Reader) -> None:
    """A run that was removed and sent again with other records has the same record numbers."""
    (one,) = fill(tmp_path / "a.db", [run(1, "one", adds(8, 16))])
    broken = Maker(1).failed("add", {"shape": [64]}, "torch-cpu", "error", "no reason")
    before = reader.answer_state([one.id])
    assert (reader.summaries([one])[0].failed, len(reader.run_view(one).rows)) == (0, 2)
    removed(tmp_path / "a.db", one)
    sent(tmp_path / "a.db", one, [*adds(32), broken])
    assert reader.answer_state([one.id]) != before
    assert reader.summaries([one])[0].failed == 1
    assert {item.params["shape"][0] for item in reader.run_view(one).rows} == {32, 64}


def test_a_run_that_came_again_is_not_read_on(tmp_path: Path, reader: Reader) -> None:
    (one,) = fill(tmp_path / "a.db", [run(1, "one", adds(8, 16))])
    assert len(reader.run_view(one).rows) == 2
    removed(tmp_path / "a.db", one)
    sent(tmp_path / "a.db", one, adds(32, 64, 128))
    assert [item.params["shape"][0] for item in reader.run_view(one).rows] == [32, 64, 128]


def test_coverage_sees_what_has_the_numbers_of_others(tmp_path: Path, reader: Reader) -> None:
    skipped = [Maker(1).failed("exp", {"shape": [n]}, "torch-cpu", "skipped", "no reason") for n in (8, 16)]
    _, two = fill(tmp_path / "a.db", [run(1, "one", adds(8)), run(2, "two", skipped)])
    newest = LatestResults()
    assert list(newest.read(reader)) == ["add"]
    removed(tmp_path / "a.db", two)
    (three,) = fill(tmp_path / "a.db", [run(3, "three", [Maker(1).record("exp", {"shape": [8]}, "torch-cpu", CPU)])])
    assert newest.read(reader)["exp"]["torch-cpu"]["forward"].run == three.id


def test_coverage_knows_a_record_whose_case_nobody_stored(tmp_path: Path, reader: Reader) -> None:
    fill(tmp_path / "a.db", [run(1, "one", adds(8))])
    with closing(open_sql(tmp_path / "a.db", create=True)) as store, store.writing() as connection:
        connection.execute(delete(BENCH_CASE))
    assert list(LatestResults().read(reader)) == ["add"]


def test_what_is_read_ahead_goes_on_behind_what_cannot_be(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "a.db", [run(1, "same", adds(8)), run(2, "same", adds(16))])  # no case in common
    monkeypatch.setattr(reader, "_wait_for_quiet", lambda: True)
    done: list[Reader] = []
    assert compare.COMPARE_ENDPOINT.ahead
    reader.ahead = [compare.COMPARE_ENDPOINT.ahead, done.append]
    reader._read_newest()
    assert done == [reader]


def test_a_store_of_an_older_version_is_followed(tmp_path: Path, reader: Reader) -> None:
    shutil.copy(OLDER, tmp_path / "a.db")
    known = len(reader.runs())
    assert reader.store.copied
    assert reader.store is reader.store  # nobody wrote: no other copy
    own = fill_here(tmp_path / "own.db")
    receive(tmp_path / "a.db", packed(tmp_path / "own.db", own.id))
    assert len(reader.runs()) == known + 1
    assert not reader.store.copied


def test_a_file_that_is_replaced_leaves_nothing_open(tmp_path: Path, reader: Reader) -> None:
    """This holds even if a thread still reads from the old store."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this system does not list what is open")
    db = tmp_path / "a.db"

    def read_on(again: threading.Event, seen: threading.Event) -> None:
        store = reader.store
        with store.reading():
            seen.set()
            again.wait(10)
        store.runs()

    for n in range(6):
        for leftover in tmp_path.glob("a.db*"):
            leftover.unlink()
        fill(db, [run(n + 1, "one", adds(8))])
        again, seen = threading.Event(), threading.Event()
        thread = threading.Thread(target=read_on, args=(again, seen))
        thread.start()
        assert seen.wait(10)
        db.rename(tmp_path / "moved.db")
        fill(db, [run(n + 20, "two", adds(8))])
        assert [one.label for one in reader.runs()] == ["two"]
        again.set()
        thread.join()
    gone = [link for fd in folder.iterdir() if (link := _target(fd)).startswith(str(tmp_path)) and "deleted" in link]
    assert gone == []


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:
        return ""


def test_who_waits_for_one_answer_does_not_wait_for_another() -> None:
    known: AnswerCache[str, str] = AnswerCache(2)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert go_on.wait(10)
        return "slow"

    thread = threading.Thread(target=lambda: known.get("a", slow))
    thread.start()
    assert begun.wait(10)
    assert known.get("b", lambda: "quick") == "quick"
    go_on.set()
    thread.join()
    assert known.get("a", lambda: "anew") == "slow"
    with pytest.raises(ZeroDivisionError):
        known.get("c", lambda: str(1 // 0))
    assert known.get("c", lambda: "well") == "well"
    assert len(known._known) == 2


def test_a_store_that_breaks_is_no_word_about_a_case(db: Path, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise StoreError("a.db: cannot read the store: disk I/O error")

    with connect(application(db)) as client:
        case = client.get("/api/runs/one").json()["items"][0]["case"]
        monkeypatch.setattr("opmark.dashboard.pages.case.histories", broken)
        assert client.get(f"/api/cases/{case}").status_code == 503
