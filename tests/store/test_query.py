"""SQL of a person: answered on both databases, and never obeyed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmark.errors import StoreError, UserError
from opmark.schema import Environment, Record, Run
from opmark.store.query import open_query, query
from opmark.store.sql import SqlStore
from opmark.store.tables import NAMES

HOSTILE = "'; DROP TABLE run; --\" \\ % ? :x %(z)s é\n日本 \u202egnp.exe"


@pytest.fixture(autouse=True)
def filled(store: SqlStore, make_run: Callable[..., Run], make_record: Callable[..., Record]) -> SqlStore:
    environment = Environment.of({"cpu": "x\0", "machine": "m", "threads": 2})
    store.begin(make_run("one", label="first"))
    store.note("one", "label", HOSTILE)
    store.add_environment(environment)
    store.append("one", make_record(1, [1.0, 3.0, 2.0], [5.0], op=HOSTILE, environment=environment.id))
    store.append("one", make_record(2, status="error", reason="broken\0"))
    store.keep("peaks", "x", "2030", 1)
    return store


def test_it_answers_with_columns_and_rows(place: str) -> None:
    asked = "SELECT op, quantity, median, samples, label FROM results WHERE median IS NOT NULL ORDER BY number, median"
    columns, rows = query(place, asked)
    assert columns == ["op", "quantity", "median", "samples", "label"]
    assert rows == [(HOSTILE, "quantity 0", 2.0, 3, HOSTILE), (HOSTILE, "quantity 1", 5.0, 1, HOSTILE)]


def test_a_record_without_a_measurement_has_a_row_all_the_same(place: str) -> None:
    asked = "SELECT status, reason, quantity, median FROM results WHERE status <> 'ok'"
    assert query(place, asked)[1] == [("error", "broken�", None, None)]


def test_every_view_answers_and_the_empty_answer_has_columns(place: str) -> None:
    for name in NAMES:
        columns, rows = query(place, f"SELECT * FROM {name} WHERE 1 = 0")
        assert len(columns) > 3
        assert rows == []


def test_a_limit_is_kept_and_an_endless_answer_ends(place: str) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    assert query(place, endless, 3)[1] == [(1,), (2,), (3,)]
    assert query(place, "SELECT id FROM runs", 0) == (["id"], [])
    with pytest.raises(UserError, match="not answered within"):
        query(place, f"SELECT count(*) FROM ({endless}) AS m", 3, seconds=0.2)


@pytest.mark.parametrize("end", ["", ";", " ; \n", "\n-- a comment"])
def test_how_a_statement_ends_does_not_matter(place: str, end: str) -> None:
    assert query(place, f"SELECT count(*) FROM runs{end}")[1] == [(1,)]


REFUSED = [
    "DELETE FROM run",
    "UPDATE run SET label = 'x'",
    "INSERT INTO opmark_meta VALUES ('a', 'b')",
    "INSERT INTO opmark_meta VALUES ('a', 'b') RETURNING *",
    "WITH gone AS (DELETE FROM run RETURNING *) SELECT * FROM gone",
    "DROP TABLE run",
    "DROP VIEW runs",
    "CREATE TABLE mine (x integer)",
    "CREATE TEMP TABLE mine (x integer)",
    "SELECT 1; DELETE FROM run",
    "SELECT 1; SELECT 2",
    "BEGIN",
    "COMMIT",
    "COMMIT; DELETE FROM run",
    "SELECT * INTO other FROM run",
    "SELECT * FROM run FOR UPDATE; DROP TABLE run",
    "ATTACH 'other.db' AS other",
    "PRAGMA writable_schema = ON",
    "PRAGMA journal_mode = DELETE",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "SELECT load_extension('x')",
    "COPY run TO PROGRAM 'cat > /dev/null'",
    "COPY run TO STDOUT",
    "SET default_transaction_read_only = off",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT \"pg_read_file\"('/etc/passwd')",
    "SELECT pg_catalog.pg_ls_dir('/')",
    "SELECT pg_terminate_backend(1)",
    "SELECT pg_read_file/* */('/etc/passwd')",
    "SELECT pg_read_file/* /* */ ' */('/etc/passwd')",
    "SELECT pg_read_file -- '\n('/etc/passwd')",
    "SELECT U&\"pg\\005fread_file\"('/etc/passwd')",
    "SELECT u&\"pg!005fread_file\" UESCAPE '!' ('/etc/passwd')",
    "SELECT E'\\'', pg_read_file('/etc/passwd'), ''",
    "SELECT $$ ' $$, pg_read_file('/etc/passwd'), ''",
    "SELECT '\\', pg_read_file('/etc/passwd'), ''",
    "SELECT lo_import('/etc/passwd')",
    "SELECT setval('run_number_seq', 9)",
    "SELECT nextval('run_number_seq')",
    "SELECT query_to_xml('delete from run', true, true, '')",
    "DO $$ BEGIN DELETE FROM run; END $$",
    "EXPLAIN ANALYZE DELETE FROM run",
    "CALL something()",
    "",
    "   ",
    "-- nothing",
    "nonsense",
    "SELECT * FROM no_such_table",
    "SELECT 'a\0b'",
    "SELECT '\ud800'",
]


def test_what_is_not_one_select_is_refused_and_changes_nothing(
    place: str, filled: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [f"SELECT * FROM {table} ORDER BY 1" for table in ("run", "opmark_meta", "run_note")]
    before = [query(place, table) for table in tables]
    files = {item.name for item in tmp_path.iterdir() if "-" not in item.name}
    for sql in REFUSED:
        with pytest.raises(UserError) as caught:
            pytest.fail(f"{sql!a} was answered: {query(place, sql)}")
        assert caught.value.message.startswith("query: "), sql
        assert caught.value.hint, sql
        assert [query(place, table) for table in tables] == before, sql
        assert {item.name for item in tmp_path.iterdir() if "-" not in item.name} == files, sql
    assert len(filled.records("one")) == 2


def test_ordinary_functions_are_not_taken_for_dangerous_ones(place: str) -> None:
    assert query(place, "SELECT lower('A'), round(1.5), coalesce(NULL, 'x'), length('abc')")[1][0][0] == "a"


def test_without_a_store_there_is_nothing_to_ask(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store yet"):
        query(tmp_path / "none.db", "SELECT 1")
    assert not (tmp_path / "none.db").exists()


def test_texts_comments_and_names_are_not_taken_for_functions(place: str) -> None:
    asked = "SELECT count(*) FROM records WHERE reason LIKE 'dblink (%' /* pg_read_file( */ -- pg_sleep(\n"
    assert query(place, asked)[1] == [(0,)]
    assert query(place, "SELECT 'it''s set_config(' AS \"lo_x -- y\"")[1] == [("it's set_config(",)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT interrupted FROM runs",
        'SELECT * FROM "unable to open"',
        "SELECT * FROM malformed",
        'SELECT 1 FROM "database is locked"',
        'SELECT 1 FROM "not authorized"',
        'SELECT 1 FROM "read-only"',
    ],
)
def test_the_words_of_a_statement_do_not_choose_the_message(place: str, sql: str) -> None:
    with pytest.raises(UserError, match="query: the database says: ") as caught:
        query(place, sql)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("one SELECT")


def test_rows_come_one_by_one_and_a_slow_reader_is_no_slow_database(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0
    monkeypatch.setattr("opmark.store.query.time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1200) SELECT x FROM n"
    with open_query(place, many, seconds=60.0) as (columns, rows):
        assert columns == ["x"]
        assert next(rows) == (1,)
        passed = 3600.0
        assert [x for (x,) in rows] == list(range(2, 1201))
    assert len(query(place, many, 1001)[1]) == 1001
