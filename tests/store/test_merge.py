"""Stores brought together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.schema import Environment, Record, Run
from opmark.store import merge as merging
from opmark.store.memory import MemoryStore
from opmark.store.merge import merge
from opmark.store.protocol import Store
from opmark.store.sql import SqlStore, open_sql

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]
CPU = Environment.of({"cpu": "x"})
PEAKS = {"chip": "x", "source": "here", "flops": {"float32": 1e9}, "levels": []}


def at(year: int) -> str:
    return f"{year}-01-01T00:00:00.000+00:00"


@pytest.fixture(params=["into a file", "into a server"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SqlStore, SqlStore]]:
    """(into, source): a file and a server, and the other way round; two files have the simplest way of all."""
    places = [str(tmp_path / "file.db"), request.getfixturevalue("postgres_url")]
    if request.param == "into a server":
        places.reverse()
    with closing(open_sql(places[0], create=True)) as into, closing(open_sql(places[1], create=True)) as source:
        yield into, source


def everything(store: Store) -> list[tuple[Run, list[Record]]]:
    return [(run, store.records(run.id)) for run in store.runs()]


def fill(store: Store, make_run: MakeRun, make_record: MakeRecord) -> None:
    store.add_environment(CPU)
    for n, run in enumerate(("one", "two")):
        store.begin(make_run(run, started=at(2020 + n), label=run, description="said", session="s", revision="r"))
        store.extend(run, [make_record(m, [1.0 + m, 2.0], environment=CPU.id) for m in range(5 + n)])
    store.note("one", "label", "renamed")
    store.keep("peaks", "x", at(2025), PEAKS)


def test_everything_comes_over_as_it_was(
    pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_AT_ONCE", 2)
    into, source = pair
    fill(source, make_run, make_record)
    done = merge(into, source)
    assert (done.new, done.completed, done.there, done.records, done.findings) == (["one", "two"], [], [], 11, 1)
    assert everything(into) == everything(source)
    assert into.runs()[1].label == "renamed"
    assert into.figures() == source.figures()
    assert into.cases([make_record(1).task.case.id]) == source.cases([make_record(1).task.case.id])
    assert into.environments([CPU.id]) == {CPU.id: CPU}
    assert into.findings() == source.findings()


def test_twice_is_once(pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord) -> None:
    into, source = pair
    fill(source, make_run, make_record)
    merge(into, source)
    before = everything(into)
    for _ in range(2):
        done = merge(into, source)
        assert (done.new, done.completed, done.there, done.records, done.findings) == ([], [], ["one", "two"], 0, 0)
    back = merge(source, into)
    assert (back.there, back.records, back.findings) == (["one", "two"], 0, 0)
    assert everything(into) == before == everything(source)
    with into.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM run_note").scalar() == 3


def test_what_was_there_stays_and_old_runs_do_not_become_the_newest(
    pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord
) -> None:
    into, source = pair
    into.begin(make_run("mine", started=at(2035)))
    into.append("mine", make_record(1))
    into.keep("peaks", "x", at(2026), {**PEAKS, "source": "there"})
    fill(source, make_run, make_record)
    merge(into, source)
    assert [run.id for run in into.runs()] == ["mine", "two", "one"]
    assert into.kept("peaks", "x")["source"] == "there"


def test_half_a_run_is_completed(pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord) -> None:
    into, source = pair
    fill(source, make_run, make_record)
    into.begin(make_run("two", started=at(2021), label="two"))
    into.extend("two", [make_record(m, [1.0 + m, 2.0], environment=CPU.id) for m in (4, 2)])
    done = merge(into, source)
    assert (done.new, done.completed, done.records) == (["one"], ["two"], 9)
    by_task = [{r.task.id: r for r in store.records("two")} for store in (into, source)]
    assert by_task[0] == by_task[1]
    assert len(into.records("two")) == 6


@pytest.mark.parametrize("field", ["started", "command"])
def test_another_run_of_the_same_id_gets_another_id(
    pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord, field: str
) -> None:
    into, source = pair
    into.begin(make_run("one", **{field: "other"}))
    into.append("one", make_record(77))
    fill(source, make_run, make_record)
    done = merge(into, source)
    assert done.renamed == {"one": "one-2"}
    assert sorted(done.new) == ["one-2", "two"]
    assert into.records("one") == [make_record(77)]
    assert into.records("one-2") == source.records("one")
    again = merge(into, source)
    assert (again.new, again.there, again.renamed) == ([], ["one-2", "two"], {"one": "one-2"})


def test_the_last_word_on_a_run_counts_wherever_it_was_said(
    pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord
) -> None:
    into, source = pair
    fill(source, make_run, make_record)
    merge(into, source)
    into.note("one", "label", "here")
    merge(into, source)
    assert into.runs()[1].label == "here"
    source.note("two", "description", "there")
    merge(into, source)
    assert into.runs()[0].description == "there"


def test_a_merge_that_is_interrupted_leaves_whole_runs_and_is_done_again(
    pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, source = pair
    monkeypatch.setattr(merging, "_AT_ONCE", 2)
    fill(source, make_run, make_record)
    calls = []

    def failing(connection: object, rows: list[object]) -> int:
        calls.append(1)
        if len(calls) == 5:  # the second batch of the second run
            raise KeyboardInterrupt
        return whole(connection, rows)

    whole = into.add_records
    with monkeypatch.context() as patched:
        patched.setattr(into, "add_records", failing)
        with pytest.raises(KeyboardInterrupt):
            merge(into, source)
    assert [run.id for run in into.runs()] == ["one"]
    assert into.records("one") == source.records("one")
    assert merge(into, source).new == ["two"]
    assert everything(into) == everything(source)


def test_a_store_with_itself_is_nothing_new(tmp_path: Path, make_run: MakeRun, make_record: MakeRecord) -> None:
    place = tmp_path / "store.db"
    with closing(open_sql(place, create=True)) as into, closing(open_sql(place, create=True)) as source:
        fill(source, make_run, make_record)
        before = everything(into)
        assert merge(into, source).records == 0
        assert everything(into) == before


def test_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="memory"):
        merge(MemoryStore(), MemoryStore())


HOSTILE_IDS = ["/tmp/evil", "../x", "..", "", "\x1b[31m", "a\nb", "x" * 49, "C:\\x", "日本"]


def test_an_id_that_is_not_like_ours_becomes_one_and_always_the_same(
    pair: tuple[SqlStore, SqlStore], make_run: MakeRun, make_record: MakeRecord
) -> None:
    into, source = pair
    wanted = HOSTILE_IDS if source.database.shared is False else [name for name in HOSTILE_IDS if len(name) < 49]
    for number, name in enumerate(wanted):
        source.begin(make_run(name, started=at(2030 + number)))
        source.append(name, make_record(number))
    done = merge(into, source)
    assert sorted(done.renamed) == sorted(wanted)
    assert all(re.fullmatch(r"renamed-[0-9a-f]{16}", run.id) for run in into.runs())
    assert all(len(into.records(key)) == 1 for key in done.renamed.values())
    assert merge(into, source).new == []
