"""Who and what is refused to ask, on one of the databases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from postgres_server import Server
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from opmark.errors import StoreError, UserError
from opmark.schema import Run
from opmark.store.query import query
from opmark.store.sql import open_sql


def test_a_label_that_is_no_json_is_no_damaged_file(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    with closing(open_sql(tmp_path / "x.db", create=True)) as opened:
        opened.begin(make_run("one", label="no json"))
    with pytest.raises(UserError, match="query: the database says: malformed JSON") as caught:
        query(tmp_path / "x.db", "SELECT json_extract(label, '$.a') FROM runs")
    assert "damaged" not in str(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="limits can be set from Python 3.11")
def test_one_function_of_sqlite_is_not_given_much_to_do(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    with closing(open_sql(tmp_path / "x.db", create=True)) as opened:
        opened.begin(make_run("one"))
    with pytest.raises(UserError, match="too big"):
        query(tmp_path / "x.db", "SELECT length(hex(zeroblob(500000000)))")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no memory, or in another way")
@pytest.mark.parametrize("end", ["ORDER BY 1", ""], ids=["sorted", "many large rows at once"])
def test_a_statement_that_takes_all_memory_is_given_up(tmp_path: Path, make_run: Callable[..., Run], end: str) -> None:
    with closing(open_sql(tmp_path / "x.db", create=True)) as opened:
        opened.begin(make_run("one"))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    with pytest.raises(UserError, match="takes too much memory") as caught:
        query(tmp_path / "x.db", f"{endless} SELECT hex(zeroblob(4000000 + x)) FROM n {end}")
    assert "WHERE" in (caught.value.hint or "")


def test_one_function_that_would_take_hours_ends_with_its_time(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    with closing(open_sql(tmp_path / "x.db", create=True)) as opened:
        opened.begin(make_run("one"))
    endless = "SELECT instr(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || 'x')"
    with pytest.raises(UserError, match=r"not answered within 0\.5 s"):
        query(tmp_path / "x.db", endless, seconds=0.5)
    assert query(tmp_path / "x.db", "SELECT count(*) FROM runs")[1] == [(1,)]


def test_who_may_do_anything_on_a_server_is_refused_unless_that_is_said(
    postgres_url: str, postgres_server: Server
) -> None:
    open_sql(postgres_url, create=True).close()
    name = postgres_url.rpartition("/")[2]
    boss = postgres_server.address(name, "tester")
    with pytest.raises(UserError, match="`tester` is a superuser") as caught:
        query(boss, "SELECT 1")
    assert "--as-superuser" in (caught.value.hint or "")
    assert query(boss, "SELECT 1", as_superuser=True)[1] == [(1,)]
    postgres_server.execute("CREATE ROLE files LOGIN IN ROLE pg_read_server_files")
    postgres_server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO files", name)
    with pytest.raises(UserError, match="`files` is a member of pg_read_server_files"):
        query(postgres_server.address(name, "files"), "SELECT 1")


def test_a_server_that_cannot_be_reached_is_said_to_be(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    open_sql(postgres_url, create=True).close()

    def gone(self: Engine) -> None:
        raise OperationalError("connect", {}, psycopg.OperationalError("no more connections"))

    def before_it_connects(sql: str) -> None:
        monkeypatch.setattr(Engine, "raw_connection", gone)

    monkeypatch.setattr("opmark.store.query.refused_in", before_it_connects)
    with pytest.raises(StoreError, match="cannot read the store: no more connections"):
        query(postgres_url, "SELECT 1")
