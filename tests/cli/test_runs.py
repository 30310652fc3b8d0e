"""opmark runs"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from made_up import HOSTILE, made_run, record, store

import opmark
from opmark.api.runs import describe_run, label, runs
from opmark.errors import InvalidParameter

pytestmark = pytest.mark.store

Command = Callable[..., Any]

OLDER = Path(__file__).parents[1] / "store" / "data" / "version_2.sqlite"


@pytest.fixture
def three(db: Path) -> Path:
    """Of the third one task is missing and one failed."""
    store(db, made_run(1, "first", version="0.5.0"), [record(1)])
    store(db, made_run(2, "nightly", tasks=2), [record(1), record(2, op="exp", backend="null-device")])
    store(
        db,
        made_run(3, "nightly", tasks=3, revision="a" * 40 + "+"),
        [record(1), record(2, status="error", reason="no")],
    )
    return db


def test_runs_are_listed_newest_first_with_what_became_of_them(main: Command, three: Path) -> None:
    done = main("runs")
    lines = [[cell.strip() for cell in line.split("  ")] for line in done.out.splitlines()]
    head, third, second, first = lines
    assert done.code == 0
    assert [line[0] for line in (third, second, first)] == [made_run(n).id for n in (3, 2, 1)]
    assert "started (UTC)" in head
    assert {"2 of 3", "aaaaaaaaaaaa+", "2030-01-03 00:00:00"} <= set(third)
    assert "null, null-device" in second
    assert "0.5.0" in first


def test_json_tells_all_of_it(main: Command, three: Path) -> None:
    newest, *_ = main("runs", "--json").objects
    assert newest["id"] == made_run(3).id
    assert (newest["tasks"], newest["records"], newest["missing"], newest["failed"]) == (3, 2, 1, 1)
    assert newest["statuses"] == {"error": 1, "ok": 1}
    assert (newest["backends"], newest["machines"], newest["chips"]) == (["null"], ["box"], ["AMD EPYC"])
    assert newest["revision"] == "a" * 40 + "+"


def test_fewer_are_listed_where_that_is_asked_for(main: Command, three: Path) -> None:
    assert [one["id"] for one in main("runs", "--json", "--last", "1").objects] == [made_run(3).id]
    assert "and 2 older" in main("runs", "--last", "1").err
    assert len(main("runs", "--json", "--label", "night*").objects) == 2
    assert [one["id"] for one in main("runs", "--json", "--op", "e?p").objects] == [made_run(2).id]
    assert main("runs", "--label", "none").err == "no run of that kind\n"
    assert main("runs", "--last", "-1").code == 2


def test_all_are_listed_with_0(main: Command, db: Path) -> None:
    for number in range(1, 24):
        store(db, made_run(number))
    assert len(main("runs", "--json").objects) == 20
    assert len(main("runs", "--json", "--last", "0").objects) == 23


def test_without_a_store_or_a_run_it_is_said(main: Command, db: Path) -> None:
    assert main("runs").code == 2
    assert not db.exists()
    store(db, made_run(1))
    assert main("prune", "--all", "--yes").code == 0
    done = main("runs")
    assert (done.code, done.out, done.err) == (0, "", "the store holds no run yet\n")


def test_a_label_is_given_changed_and_taken_away(main: Command, three: Path) -> None:
    assert main("runs", "label", "first", "base line").err == f"run {made_run(1).id} is `base line`\n"
    assert opmark.show("base line", db=three).run.id == made_run(1).id
    assert main("runs", "label", "base line", "").err == f"run {made_run(1).id} has no label\n"
    assert main("show", "base line").code == 2


def test_a_label_of_several_runs_is_warned_of_and_counted(main: Command, three: Path) -> None:
    done = main("runs", "label", "first", "nightly")
    assert done.code == 0
    assert done.err.startswith("warning: `nightly` is the label of")
    assert main("runs", "label", "nightly", "x").code == 2
    assert main("runs", "describe", "nightly~2", "the oldest").err == f"run {made_run(1).id}: the oldest\n"
    assert main("runs", "--json", "--last", "0").objects[2]["description"] == "the oldest"


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "nightly~1", made_run(2).id])
def test_a_label_that_could_not_be_asked_for_or_printed_is_refused(main: Command, three: Path, text: str) -> None:
    done = main("runs", "label", "first", text)
    assert done.code == 2
    assert done.err.startswith("error: label: ")
    assert "\x1b" not in done.err
    assert opmark.show("first", db=three).run.label == "first"


def test_an_unknown_run_is_not_labelled(main: Command, three: Path) -> None:
    done = main("runs", "label", "frist", "x")
    assert done.code == 2
    assert "did you mean `first`?" in done.err


def test_the_store_may_be_named_before_or_behind_the_subcommand(main: Command, three: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    store(other, made_run(9))
    assert main("runs", "--db", str(other), "label", "2030", "one").code == 0
    assert main("runs", "describe", "one", "two", "--db", str(other)).code == 0
    (only,) = main("runs", "--json", "--db", str(other)).objects
    assert (only["label"], only["description"]) == ("one", "two")
    assert main("runs", "--last", "2", "label", "first", "x").code == 2


def test_what_a_label_says_is_printed_and_not_obeyed(main: Command, db: Path) -> None:
    store(db, made_run(1, HOSTILE, description=HOSTILE), [record(1, backend=HOSTILE)])
    done = main("runs")
    assert len(done.out.splitlines()) == 2
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(done.out)
    assert "\\x1b[31m" in done.out
    assert main("runs", "--json").objects[0]["label"] == HOSTILE
    assert not {"\x1b", "\x9b", "\u202e"} & set(main("runs", "--json").out)
    assert not {"\x1b", "\x9b", "\u202e"} & set(main("show").err)


def test_an_older_store_is_brought_up_to_date_where_that_is_asked_for(main: Command, db: Path) -> None:
    copyfile(OLDER, db)
    before = db.read_bytes()
    assert main("runs").code == 0
    assert db.read_bytes() == before
    done = main("runs", "--upgrade")
    assert done.code == 0
    assert done.err.startswith("the store is up to date\n")
    assert db.read_bytes() != before


def test_the_library_lists_labels_and_describes_as_the_command_does(three: Path) -> None:
    assert [one.id for one in runs(db=three)] == [made_run(n).id for n in (3, 2, 1)]
    assert runs(label="first", db=three)[0].records == 1
    said: list[str] = []
    assert label("first", "nightly", say=said.append, db=three).label == "nightly"
    assert len(said) == 1
    assert describe_run(made_run(1).id, " x ", db=three).description == "x"
    with pytest.raises(InvalidParameter, match="last: expected at least 1"):
        runs(last=0, db=three)


def test_a_store_in_memory_is_summed_up_too() -> None:
    from opmark.store.memory import MemoryStore
    from opmark.store.runs import having, summaries

    store = MemoryStore()
    run = made_run(1, tasks=2)
    store.begin(run)
    store.extend(run.id, [record(1), record(2, op="exp", status="oom")])
    (found,) = summaries(store, store.runs())
    assert (found.records, found.failed, found.missing, found.backends) == (2, 1, 0, ("null",))
    assert having(store, "e*") == {run.id}
    assert having(store, "mat*") == set()


@pytest.mark.parametrize("command", [("runs",), ("runs", "--op", "add"), ("prune", "first", "--yes")])
def test_no_record_is_read_for_a_list(
    main: Command, three: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """There may be a million of them."""

    def read(*_: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("opmark.store.sql.SqlStore.records", read)
    monkeypatch.setattr("opmark.store.sql.SqlStore.figures", read)
    assert main(*command).code == 0
