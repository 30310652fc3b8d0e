"""What is of stores on PostgreSQL alone: who may connect and write, and what the address says."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from postgres_server import Server
from sqlalchemy import inspect, text

from opmark.errors import StoreError
from opmark.schema import Record, Run
from opmark.store.postgresql import Postgresql
from opmark.store.sql import open_sql

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Run]


def setting(url: str, name: str, *, writes: bool = True) -> str:
    with closing(Postgresql(url)) as database, database.engine.execution_options(writes=writes).begin() as connection:
        return str(connection.execute(text(f"SHOW {name}")).scalar_one())


def test_a_writer_waits_for_a_lock_half_a_minute(postgres_url: str) -> None:
    assert setting(postgres_url, "lock_timeout") == "30s"
    assert setting(postgres_url, "lock_timeout", writes=False) == "0"


def test_what_the_address_says_counts(postgres_url: str) -> None:
    own = f"{postgres_url}?options=-clock_timeout%3D7s%20-csearch_path%3Dpg_temp&connect_timeout=3"
    assert setting(own, "lock_timeout") == "7s"
    assert setting(own, "search_path") == "pg_temp"
    with closing(Postgresql(own)) as database, database.engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        assert raw.info.get_parameters()["connect_timeout"] == "3"
        assert raw.prepare_threshold is None


def test_the_client_speaks_utf8_whatever_the_user_is_used_to(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, make_run: MakeRun
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with closing(open_sql(postgres_url, create=True)) as store:
        store.begin(make_run(label="日本"))
        assert [run.label for run in store.runs()] == ["日本"]


@pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_is_refused(postgres_server: Server, encoding: str, create: bool) -> None:
    name = f"in_{encoding.lower()}_{'w' if create else 'r'}"
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match=encoding) as caught:
        open_sql(postgres_server.address(name), create=create)
    assert "createdb -E UTF8 -T template0" in (caught.value.hint or "")


def hint(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        open_sql(url, create=True)
    return caught.value.hint or ""


def test_createdb_is_the_answer_to_a_database_that_is_missing_and_to_nothing_else(postgres_server: Server) -> None:
    assert "createdb" in hint(postgres_server.address("nowhere"))
    assert "createdb" not in hint(postgres_server.address("postgres", "nobody_at_all"))


# Who may write.


@pytest.fixture
def reader(postgres_server: Server, postgres_url: str, make_run: MakeRun) -> str:
    """The address of a store for somebody who may only read it."""
    with closing(open_sql(postgres_url, create=True)) as store:
        store.begin(make_run())
    name = postgres_url.rpartition("/")[2]
    role = f"reader_{name}"
    postgres_server.execute(f"CREATE ROLE {role} LOGIN")
    postgres_server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", name)
    return postgres_server.address(name, role)


def test_who_may_only_read_is_told_before_anything_is_measured(reader: str, make_run: MakeRun) -> None:
    with closing(open_sql(reader)) as store:
        assert store.runs() == [make_run()]
    with pytest.raises(StoreError, match="may not write") as caught:
        open_sql(reader, create=True)
    assert "GRANT" in (caught.value.hint or "")


def test_who_may_insert_but_not_count_is_told_too(postgres_server: Server, postgres_url: str, reader: str) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres_server.execute(f"GRANT INSERT ON ALL TABLES IN SCHEMA public TO reader_{name}", name)
    with pytest.raises(StoreError, match="may not write"):
        open_sql(reader, create=True)
    postgres_server.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO reader_{name}", name)
    open_sql(reader, create=True).close()


def test_an_index_that_is_missing_is_made_by_who_owns_the_table(
    postgres_server: Server, postgres_url: str, reader: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    for what in ("INSERT ON ALL TABLES", "USAGE ON ALL SEQUENCES"):
        postgres_server.execute(f"GRANT {what} IN SCHEMA public TO reader_{name}", name)
    postgres_server.execute("DROP INDEX record_outcome", name)

    def indexes(url: str) -> set[str | None]:
        with closing(open_sql(url, create=True)) as store:
            return {index["name"] for index in inspect(store.database.engine).get_indexes("record")}

    assert "record_outcome" not in indexes(reader)  # and nobody fails for it
    assert "record_outcome" in indexes(postgres_url)


def test_a_server_that_can_only_be_read_is_told(postgres_server: Server, postgres_url: str, make_run: MakeRun) -> None:
    with closing(open_sql(postgres_url, create=True)) as store:
        store.begin(make_run())
    name = postgres_url.rpartition("/")[2]
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with closing(open_sql(postgres_url)) as store:
        assert store.runs() == [make_run()]
    with pytest.raises(StoreError, match="can only be read"):
        open_sql(postgres_url, create=True)


def test_a_driver_without_its_library_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    really = builtins.__import__

    def broken(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "psycopg":
            raise ImportError("no pq wrapper available.\n- couldn't import psycopg 'c' implementation")
        return really(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(StoreError, match="no pq wrapper") as caught:
        Postgresql("postgresql://host/db")
    assert "opmark[postgresql]" in (caught.value.hint or "")
