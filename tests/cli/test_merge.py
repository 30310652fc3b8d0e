"""opmark merge"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from made_up import made_run, record, store

import opmark
from opmark.api.merge import merge
from opmark.api.runs import runs
from opmark.errors import InvalidParameter
from opmark.store.merge import Merged

pytestmark = pytest.mark.store

Command = Callable[..., Any]


@pytest.fixture
def others(tmp_path: Path) -> tuple[Path, Path]:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    store(one, made_run(1, "one", tasks=2), [record(1), record(2)])
    store(two, made_run(2, "two"), [record(1)])
    return one, two


def test_runs_of_several_stores_come_together_once(main: Command, db: Path, others: tuple[Path, Path]) -> None:
    store(db, made_run(3, "here"), [record(1)])
    done = main("merge", *map(str, others))
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{others[0]}: 1 new run, 2 new records\n{others[1]}: 1 new run, 1 new record\n"
    assert [one.label for one in runs(db=db)] == ["here", "two", "one"]
    again = main("merge", *map(str, others))
    assert again.code == 0
    assert "0 new runs, 1 there already, 0 new records" in again.err
    assert [one.records for one in runs(db=db)] == [1, 1, 2]
    assert len(opmark.show("one", db=db).records) == 2


def test_a_store_is_made_where_there_is_none(main: Command, db: Path, others: tuple[Path, Path]) -> None:
    assert main("merge", str(others[0])).code == 0
    assert [one.label for one in runs(db=db)] == ["one"]


def test_the_others_are_left_as_they_are(main: Command, others: tuple[Path, Path]) -> None:
    before = [path.read_bytes() for path in others]
    main("merge", *map(str, others))
    assert [path.read_bytes() for path in others] == before


def test_what_is_no_store_is_said_and_nothing_is_written(main: Command, db: Path, others: tuple[Path, Path]) -> None:
    text, foreign = others[0].with_name("text.db"), others[0].with_name("foreign.db")
    text.write_text("no database, but long enough to be taken for one" * 20)
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("create table theirs (x)")
    for wrong in (text, foreign, others[0].with_name("missing.db")):
        done = main("merge", str(others[0]), str(wrong))
        assert done.code == 2, wrong
        assert str(wrong) in done.err
        assert not db.exists()


def test_a_store_is_not_merged_into_itself(main: Command, db: Path, tmp_path: Path) -> None:
    store(db, made_run(1))
    link = tmp_path / "link.db"
    link.symlink_to(db)
    for name in (str(db), str(link), str(tmp_path / "x" / ".." / db.name)):
        (tmp_path / "x").mkdir(exist_ok=True)
        done = main("merge", name)
        assert done.code == 2
        assert "is the store itself" in done.err


def test_what_is_damaged_is_left_out_and_named(main: Command, db: Path, others: tuple[Path, Path]) -> None:
    with closing(sqlite3.connect(others[0])) as connection, connection:
        connection.execute("UPDATE record SET body = x'0300' WHERE number = 1")
    done = main("merge", *map(str, others))
    assert done.code == 1
    first, reason, second = done.err.splitlines()
    assert first == f"{others[0]}: 1 new run, 1 new record"
    assert reason.startswith(f"{others[0]}: left out: record 1: ")
    assert second == f"{others[1]}: 1 new run, 1 new record"
    assert [one.records for one in runs(db=db)] == [1, 1]


def test_the_library_tells_what_came(db: Path, others: tuple[Path, Path]) -> None:
    one, two = merge(*others, db=db)
    assert (one.new, one.records, two.new, two.records) == ([made_run(1).id], 2, [made_run(2).id], 1)
    with pytest.raises(InvalidParameter, match="no store to merge"):
        merge(db=db)


def test_a_password_is_not_printed(main: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.api.merge.merge", lambda *_, **__: [Merged()])
    done = main("merge", "postgresql://ada:secret@host/lab")
    assert done.err == "postgresql://ada@host/lab: 0 new runs, 0 new records\n"
