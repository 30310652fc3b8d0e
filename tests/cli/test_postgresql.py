"""The commands about stores, with a store on a PostgreSQL server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up import HOSTILE, made_run, record, store

from opmark.api.runs import runs
from opmark.store.location import display_address

pytestmark = pytest.mark.store

Command = Callable[..., Any]


@pytest.fixture
def server(postgres_url: str) -> str:
    """Three runs, one of them hostile."""
    store(postgres_url, made_run(1, "first", tasks=2), [record(1), record(2, status="oom", reason="no")])
    store(postgres_url, made_run(2, HOSTILE), [record(1, op=HOSTILE)])
    store(postgres_url, made_run(3, "last"), [record(3, op="exp")])
    return postgres_url


def test_runs_are_listed_labelled_and_described(main: Command, server: str) -> None:
    assert main("runs", "label", "last", "base", "--db", server).code == 0
    assert main("runs", "describe", "base", "it's one", "--db", server).code == 0
    newest, hostile, first = main("runs", "--json", "--db", server).objects
    assert (newest["label"], newest["description"], hostile["label"]) == ("base", "it's one", HOSTILE)
    assert (first["records"], first["failed"], first["machines"]) == (2, 1, ["box"])
    assert [one["id"] for one in main("runs", "--json", "--op", "e*", "--db", server).objects] == [made_run(3).id]
    assert main("runs", "--db", server).code == 0


def test_the_same_queries_are_answered_as_on_a_file(main: Command, server: str, db: Path) -> None:
    assert main("merge", server).err == f"{display_address(server)}: 3 new runs, 4 new records\n"
    for sql in (
        "select id, label, records from runs order by number",
        "select op, status, median, quantity, samples from results order by number",
        "select count(*) as n, avg(median) as centre from results",
    ):
        assert main("query", sql, "-f", "json", "--db", server).out == main("query", sql, "-f", "json").out
    views = main("query", "--views", "-f", "json").out
    assert main("query", "--views", "-f", "json", "--db", server).out == views


@pytest.mark.parametrize("sql", ["delete from run", "select 1; drop table run", "insert into run (id) values ('x')"])
def test_a_query_cannot_write(main: Command, server: str, sql: str) -> None:
    done = main("query", sql, "--db", server)
    assert done.code == 2
    assert done.err.startswith("error: query: ")
    assert len(runs(db=server)) == 3


def test_what_only_a_server_has_becomes_plain(main: Command, server: str) -> None:
    sql = "select 1.5::numeric as d, now() as t, '{\"a\": [1]}'::json as j, '\\x00ff'::bytea as b, array[1, 2] as l"
    (row,) = json.loads(main("query", sql, "-f", "json", "--db", server).out)
    assert (row["d"], row["j"], row["b"], row["l"]) == (1.5, {"a": [1]}, "00ff", [1, 2])
    assert row["t"].startswith("2")


def test_a_file_comes_into_a_server_and_is_pruned_there(main: Command, server: str, tmp_path: Path) -> None:
    file = tmp_path / "file.db"
    store(file, made_run(4, "file"), [record(1), record(2)])
    assert "1 new run, 2 new records" in main("merge", str(file), "--db", server).err
    assert main("merge", server, "--db", server).code == 2
    done = main("prune", "--label", "f*", "--compact", "--yes", "--db", server)
    assert done.code == 0
    assert "removed 2 runs with 4 records" in done.err
    assert "autovacuum" in done.err
    assert [one.id for one in runs(db=server)] == [made_run(3).id, made_run(2).id]


def test_a_run_is_shown_in_every_format(main: Command, server: str) -> None:
    for format in ("table", "md", "csv", "json", "jsonl"):
        assert main("show", "first", "-f", format, "--db", server).out != ""
