"""Partial, cached and updated answers are the same as those that are read completely."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from showcase import CPU, Maker, fill, run
from sqlalchemy import event, inspect, text

from opmark.api.compare import compare
from opmark.api.items import CaseCache, refresh_view, view_stored_run
from opmark.dashboard import run_cache
from opmark.dashboard.app import application
from opmark.dashboard.items import Filters, ItemRequest, select_items, select_stored_items
from opmark.dashboard.pages.compare import compare_runs
from opmark.dashboard.reader import LatestResults, Reader
from opmark.dashboard.response import ResponseCache
from opmark.store.runs import find_run, summaries
from opmark.store.sql import open_sql

FILTERS = (
    {},
    {"op": "matmul"},
    {"status": "failed"},
    {"backend": "torch-cpu", "dtype": "float32"},
    {"phase": "backward"},
)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("sort", ["", "time", "-time"])
@pytest.mark.parametrize("label", ["showcase", "nightly~0", "failures", "one", "base"])
def test_a_page_of_a_run_is_the_same_however_it_is_read(db: Path, label: str, sort: Any, filters: Any) -> None:
    with closing(open_sql(db)) as store:
        one = find_run(store, label)
        wanted = ItemRequest(Filters(**filters), sort, 1, 5)
        found = select_stored_items(store, one, CaseCache(), wanted)
        looked = view_stored_run(store, one)
        if found is not None:
            assert found == select_items(looked, wanted)
        assert found is not None or any(item.processes > 1 for item in looked.rows)


def test_a_page_that_needs_all_or_has_several_processes_is_not_read_in_part(tmp_path: Path) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    records = [maker.record("add", {"shape": [8]}, "torch-cpu", CPU, process=process) for process in range(3)]
    (one,) = fill(db, [run(1, "one", records)])
    with closing(open_sql(db)) as store:
        assert select_stored_items(store, one, CaseCache(), ItemRequest(Filters(), "", 1, 5)) is None
        assert select_stored_items(store, one, CaseCache(), ItemRequest(Filters(q="add"), "", 1, 5)) is None
        assert select_stored_items(store, one, CaseCache(), ItemRequest(Filters(), "share", 1, 5)) is None


def test_a_growing_run_is_read_on(tmp_path: Path) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    records = [
        maker.record("add", {"shape": [size]}, "torch-cpu", CPU, process=process)
        for process in range(3)
        for size in (8, 16, 32)
    ]
    (one,) = fill(db, [run(1, "one", records[:2])])
    known = CaseCache()
    with closing(open_sql(db, create=True)) as store:
        looked, last = view_stored_run(store, one, known), run_cache._read_mark(store, one.id).last.number
        for record in records[2:]:
            store.append(one.id, record)
            newest = run_cache._read_mark(store, one.id).last.number
            looked, last = refresh_view(store, looked, last, newest, known), newest
            assert looked == view_stored_run(store, one)
    assert [item.processes for item in looked.rows] == [3, 3, 3]


def test_what_is_removed_is_noticed(tmp_path: Path) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    records = [maker.record("add", {"shape": [n]}, "torch-cpu", CPU) for n in (8, 16, 32)]
    (one,) = fill(db, [run(1, "one", records)])
    reader = Reader(db)
    assert reader.summaries([one])[0].records == len(reader.run_view(one).rows) == 3
    with closing(open_sql(db, create=True)) as store:
        store.remove([one.id])
        assert reader.runs() == []
        store.begin(one)
        store.extend(one.id, records[:1])
    assert reader.summaries(reader.runs())[0].records == len(reader.run_view(one).rows) == 1
    reader.close()


def test_a_comparison_is_that_of_the_command(db: Path) -> None:
    reader = Reader(db)
    a, b = reader.run("base"), reader.run("new")
    assert compare_runs(reader, a, b, "", 0.03) == compare("base", "new", db=db, margin=0.03, unlike=True)
    reader.close()


def test_coverage_knows_the_last_try_of_each_kind(db: Path) -> None:
    reader = Reader(db)
    with reader.store.reading() as connection:
        query = (
            "SELECT op, backend, phase, max(number) FROM record WHERE status != 'skipped' GROUP BY op, backend, phase"
        )
        plain = connection.execute(text(query)).all()
    best: dict[tuple[str, str, str], int] = {}
    for op, backend, phase, number in plain:
        kind = (op, backend.partition("@")[0].partition("/")[0], phase)
        best[kind] = max(number, best.get(kind, 0))
    tried = LatestResults().read(reader)
    assert {
        (op, name, phase): one.number
        for op, own in tried.items()
        for name, p in own.items()
        for phase, one in p.items()
    } == best
    reader.close()


def test_what_was_skipped_last_was_tried_before(tmp_path: Path) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    first = maker.record("add", {"shape": [8]}, "torch-cpu", CPU)
    later = maker.failed("add", {"shape": [8]}, "torch-cpu", "skipped", "no reason")
    only = maker.failed("exp", {"shape": [8]}, "torch-cpu", "skipped", "no reason")
    one, _ = fill(db, [run(1, "one", [first]), run(2, "two", [later, only])])
    reader = Reader(db)
    found = LatestResults().read(reader)
    assert list(found) == ["add"]
    assert found["add"]["torch-cpu"]["forward"].run == one.id
    reader.close()


def test_counting_reads_no_record(db: Path) -> None:
    """The database answers from its indexes alone."""
    reader = Reader(db)
    asked: list[tuple[str, Any]] = []
    event.listen(
        reader.store.database.engine, "before_cursor_execute", lambda c, u, sql, values, *_: asked.append((sql, values))
    )
    reader.summaries(reader.runs())
    counting = [(sql, values) for sql, values in asked if "count(" in sql]
    with reader.store.reading() as connection:
        plans = [str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all()) for sql, values in counting]
    # Two indexes count once, to see whether one is damaged; then the statuses are counted.
    for plan, name in zip(plans, ("record_outcome", "sqlite_autoindex_record_1", "record_outcome"), strict=True):
        assert f"COVERING INDEX {name}" in plan
    asked.clear()
    summaries(reader.store, reader.runs())
    assert sum("count(" in sql for sql, _ in asked) == 1
    reader.close()


def test_an_older_store_gets_the_index_from_its_next_writer(tmp_path: Path) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    (one,) = fill(db, [run(1, "one", [maker.record("add", {"shape": [8]}, "torch-cpu", CPU)])])

    def indexes(*, create: bool) -> set[str | None]:
        with closing(open_sql(db, create=create)) as store:
            return {index["name"] for index in inspect(store.database.engine).get_indexes("record")}

    with closing(open_sql(db, create=True)) as store, store.writing() as connection:
        connection.execute(text("DROP INDEX record_outcome"))
    assert "record_outcome" not in indexes(create=False)
    reader = Reader(db)
    assert reader.summaries([one])[0].records == 1
    reader.close()
    assert "record_outcome" in indexes(create=True)


def test_an_answer_is_made_once_until_something_is_new(
    tmp_path: Path, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, maker = tmp_path / "a.db", Maker(1)
    records = [maker.record("add", {"shape": [n]}, "torch-cpu", CPU) for n in (8, 16)]
    one, _ = fill(db, [run(1, "one", records), run(2, "two", records[:1])])
    made: list[object] = []
    get = ResponseCache.get
    monkeypatch.setattr(
        ResponseCache, "get", lambda self, key, make: get(self, key, lambda: (made.append(key), make())[1])
    )
    with connect(application(db)) as client:
        pages = [client.get(f"/runs/{one.id}").text for _ in range(3)]
        assert len(made) == 1
        assert pages[0] == pages[2]
        with closing(open_sql(db, create=True)) as store:
            store.note(one.id, "label", "renamed")
        assert "renamed" in client.get(f"/runs/{one.id}").text
        assert len(made) == 2
        assert client.get(f"/api/runs/{one.id}").json()["run"]["label"] == "renamed"
        assert client.get(f"/runs/{one.id}?op=nothing").text != pages[0]


def test_a_browser_that_has_a_page_is_told_so(client: Any) -> None:
    first = client.get("/runs/showcase")
    again = client.get("/runs/showcase", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    other = client.get("/runs/showcase?sort=time", headers={"if-none-match": first.headers["etag"]})
    assert other.status_code == 200


def test_kept_answers_are_bounded() -> None:
    kept_pages = ResponseCache(most=100)
    for number in range(20):
        assert kept_pages.get(number, lambda: b"x" * 30) == b"x" * 30
    assert len(kept_pages._pages) == 3
    with pytest.raises(ZeroDivisionError):
        kept_pages.get("broken", lambda: bytes(1 // 0))
    assert "broken" not in kept_pages._pages


def test_a_length_of_thousands_of_digits_is_refused(guarded: Any, token: str) -> None:
    headers = {"authorization": f"Bearer {token}", "content-length": "9" * 5000}
    assert guarded.post("/api/runs", headers=headers, content=b"x").status_code == 413


def test_boxes_that_scroll_can_be_reached_by_keys(client: Any) -> None:
    for path in ("/", "/runs/showcase", "/compare?a=base&b=new", "/coverage"):
        page = client.get(path).text
        assert page.count('class="scroll"') == page.count('class="scroll" tabindex="0" role="region" aria-label="') > 0


def test_a_revision_is_short(tmp_path: Path, connect: Any) -> None:
    from msgspec.structs import replace

    maker = Maker(1)
    own, records = run(1, "one", [maker.record("add", {"shape": [8]}, "torch-cpu", CPU)])
    fill(tmp_path / "a.db", [(replace(own, revision="0123456789" * 4), records)])
    with connect(application(tmp_path / "a.db")) as client:
        assert ">0123456789</code>" in client.get("/runs/one").text


def test_runs_are_found_by_backend_and_status(tmp_path: Path) -> None:
    from opmark.dashboard.pages.runs import RunsQuery, view_runs

    db, maker = tmp_path / "a.db", Maker(1)
    well = maker.record("add", {"shape": [8]}, "torch-cpu", CPU)
    badly = maker.failed("add", {"shape": [8]}, "jax-cpu", "error", "no reason")
    one, two = fill(db, [run(1, "one", [well]), run(2, "two", [well, badly])])
    reader = Reader(db)

    def found(**asked: str) -> list[str]:
        return [summary.run.id for summary in view_runs(reader, RunsQuery(**asked)).runs]

    assert found(backend="torch-cpu") == [two.id, one.id]
    assert found(backend="jax-cpu") == found(status="error") == found(backend="torch-cpu", status="error") == [two.id]
    assert found(backend="jax") == found(backend="jax-cpu", q="one") == []
    reader.close()
