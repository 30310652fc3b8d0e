"""opmark prune"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import typer
from made_up import HOSTILE, made_run, record, store
from msgspec.structs import replace

import opmark
from opmark.api.prune import prune, remove
from opmark.api.runs import runs
from opmark.cli.prune import prune as command
from opmark.errors import InvalidParameter, UserError

pytestmark = pytest.mark.store

Command = Callable[..., Any]


@pytest.fixture
def five(db: Path) -> Path:
    """Labels: `try`, `nightly`, `try`, `nightly`, none; a run has as many records as its number."""
    for number, label in enumerate(("try", "nightly", "try", "nightly", ""), 1):
        store(db, made_run(number, label, tasks=number), [record(n) for n in range(1, number + 1)])
    return db


def left(db: Path) -> list[int]:
    return sorted(int(one.id[-4:], 16) for one in runs(db=db))


def test_a_script_is_told_what_would_go_and_nothing_does(main: Command, five: Path) -> None:
    done = main("prune", made_run(2).id, made_run(1).id)
    assert done.code == 2
    assert [line.split()[0] for line in done.out.splitlines()] == ["run", made_run(2).id, made_run(1).id]
    assert done.err == (
        "error: 2 runs with 3 records would be removed; nothing was\nhint: --yes removes them without asking\n"
    )
    assert left(five) == [1, 2, 3, 4, 5]


def test_what_is_named_goes_and_only_that(main: Command, five: Path) -> None:
    done = main("prune", made_run(5).id, "--yes")
    assert (done.code, done.err) == (0, "removed 1 run with 5 records\n")
    assert made_run(5).id in done.out
    assert left(five) == [1, 2, 3, 4]
    assert [len(opmark.show(made_run(n).id, db=five).records) for n in (1, 4)] == [1, 4]
    with closing(sqlite3.connect(five)) as connection:
        assert connection.execute("select count(*) from record").fetchone() == (10,)


@pytest.mark.parametrize(
    ("options", "stay"),
    [
        (("--before", "2030-01-03"), [3, 4, 5]),
        (("--before", "2030-01-03T12:00"), [4, 5]),
        (("--label", "try"), [2, 4, 5]),
        (("--label", "n*", "--before", "2030-01-03"), [1, 3, 4, 5]),
        (("--keep-last", "2"), [4, 5]),
        (("--label", "try", "--keep-last", "1"), [2, 3, 4, 5]),
        (("try~0", "try~1", "--before", "2030-01-02"), [2, 3, 4, 5]),
        (("--all",), []),
    ],
)
def test_options_narrow_what_goes(main: Command, five: Path, options: tuple[str, ...], stay: list[int]) -> None:
    assert main("prune", *options).code == 2
    assert left(five) == [1, 2, 3, 4, 5]
    assert main("prune", *options, "--yes").code == 0
    assert left(five) == stay


@pytest.mark.parametrize("options", [("--before", "2999-01-01"), ("--label", "*"), ("--keep-last", "0")])
def test_everything_goes_only_if_that_is_said(main: Command, five: Path, options: tuple[str, ...]) -> None:
    done = main("prune", *options, "--yes")
    assert done.code == 2
    assert "these are all 5 runs of the store; nothing was removed" in done.err
    assert "--all" in done.err
    assert left(five) == [1, 2, 3, 4, 5]


def test_the_only_run_goes_where_it_is_named(main: Command, db: Path) -> None:
    store(db, made_run(1, "only"))
    assert main("prune", "only", "--yes").code == 0
    assert left(db) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no run is named"),
        (("--yes",), "no run is named"),
        (("--all", "--label", "try"), "two things"),
        (("--keep-last", "-1"), "keep_last: expected 0 or more"),
        (("--before", "yesterday"), "before: expected a date"),
        (("nothing",), "no run named `nothing`"),
        (("try",), "the label `try` is of 2 runs"),
        (("", "--yes"), "runs: is empty"),
        ((" ", "--yes"), "empty text"),
        (("--before", "", "--keep-last", "1", "--yes"), "before: is empty"),
        (("--label", "", "--keep-last", "1", "--yes"), "label: is empty"),
        (("--all", "--label", "", "--yes"), "label: is empty"),
    ],
)
def test_mistakes_remove_nothing(main: Command, five: Path, options: tuple[str, ...], said: str) -> None:
    done = main("prune", *options)
    assert done.code == 2
    assert said in done.err
    assert left(five) == [1, 2, 3, 4, 5]


def test_no_empty_name_removes_the_only_run(main: Command, db: Path) -> None:
    store(db, made_run(1, "only"))
    assert main("prune", "", "--yes").code == 2
    assert left(db) == [1]


def test_what_was_shown_goes_by_its_id_and_by_nothing_else(
    main: Command, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the run is gone, and others begin like it and are called like it."""
    shown = made_run(1)
    store(db, shown)
    store(db, made_run(2))

    def meanwhile(*_: object, **__: object) -> bool:
        assert remove([shown.id], db=db).removed
        store(db, replace(made_run(3), id=f"{shown.id}-2"))
        store(db, replace(made_run(4), label=shown.id))
        return True

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", meanwhile)
    done = main("prune", shown.id)
    assert (done.code, done.err) == (0, "gone already; nothing was removed\n")
    assert len(runs(db=db)) == 3


def test_a_run_that_may_still_be_running_is_named(main: Command, db: Path) -> None:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    store(db, replace(made_run(1, tasks=2), started=now), [record(1)])
    store(db, replace(made_run(2, tasks=1), started=now), [record(1)])
    store(db, made_run(3, tasks=2), [record(1)])
    done = main("prune", *(made_run(n).id for n in (1, 2, 3)))
    assert f"may still be running: {made_run(1).id}\n" in done.err


def test_nothing_of_that_kind_is_no_mistake(main: Command, five: Path) -> None:
    done = main("prune", "--label", "none*", "--yes")
    assert (done.code, done.out, done.err) == (0, "", "no run is of that kind; nothing was removed\n")


@pytest.mark.parametrize(("answer", "stay"), [("y", [1, 2, 3, 4]), ("n", [1, 2, 3, 4, 5])])
def test_a_person_is_asked(
    main: Command, five: Path, monkeypatch: pytest.MonkeyPatch, answer: str, stay: list[int]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text) or answer == "y")
    assert main("prune", made_run(5).id).code == 0
    assert asked == ["Remove 1 run with 5 records for good?"]
    assert left(five) == stay


def test_the_other_side_of_a_session_is_named(main: Command, db: Path) -> None:
    store(db, made_run(1, session="s"))
    store(db, made_run(2, session="s"))
    store(db, made_run(3))
    done = main("prune", made_run(1).id)
    assert f"measured in turns with one of these, and to stay: {made_run(2).id}\n" in done.err


def test_the_room_is_given_back(main: Command, five: Path) -> None:
    many = [record(n, samples=[n * 1e-6 * i for i in range(1, 2000)]) for n in range(1, 60)]
    store(five, made_run(6, tasks=59), many)
    assert main("prune", made_run(6).id, "--yes").code == 0
    large = five.stat().st_size
    done = main("prune", "--compact")
    assert done.code == 0
    assert " before, " in done.err
    assert five.stat().st_size < large / 2
    assert left(five) == [1, 2, 3, 4, 5]
    assert main("prune", made_run(5).id, "--yes", "--compact").err.startswith("removed 1 run with 5 records\n")


def test_hostile_labels_are_matched_and_printed_and_not_obeyed(main: Command, db: Path) -> None:
    store(db, made_run(1, HOSTILE))
    store(db, made_run(2, "x'; drop table run; --"))
    done = main("prune", "--label", "=1+1*", "--yes")
    assert done.code == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(done.out + done.err)
    assert left(db) == [2]
    assert main("prune", "x'; drop table run; --", "--yes").code == 0
    assert left(db) == []


def test_without_a_store_nothing_is_made(main: Command, db: Path) -> None:
    assert main("prune", "--all", "--yes").code == 2
    assert not db.exists()


def test_the_library_says_first_and_removes_only_with_yes(five: Path) -> None:
    found = prune(label="try", db=five)
    assert ([one.id for one in found.runs], found.records, found.removed) == (
        [made_run(3).id, made_run(1).id],
        4,
        False,
    )
    assert left(five) == [1, 2, 3, 4, 5]
    assert prune(label="try", yes=True, db=five).removed
    assert left(five) == [2, 4, 5]
    with pytest.raises(UserError, match="no run is named"):
        prune(yes=True, db=five)
    with pytest.raises(InvalidParameter):
        prune(keep_last=-1, yes=True, db=five)


def test_the_command_has_the_names_of_the_function() -> None:
    names = inspect.signature(command).parameters.keys()
    assert names == inspect.signature(prune).parameters.keys()


def test_who_interrupts_the_question_keeps_all(main: Command, five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", interrupted)
    assert main("prune", made_run(5).id).code == 130
    assert left(five) == [1, 2, 3, 4, 5]
