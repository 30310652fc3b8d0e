"""opmark query"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up import HOSTILE, made_run, record, store

from opmark.api.query import QueryResult, query
from opmark.errors import InvalidParameter, UserError
from opmark.store.tables import NAMES

pytestmark = pytest.mark.store

Command = Callable[..., Any]

PER_OP = "select op, count(*) as n from records group by op order by op"


@pytest.fixture
def filled(db: Path) -> Path:
    store(db, made_run(1, "first"), [record(1), record(2), record(3, op="exp")])
    return db


def test_the_answer_is_a_table(main: Command, filled: Path) -> None:
    done = main("query", PER_OP)
    assert (done.code, done.out, done.err) == (0, "op   n\nadd  2\nexp  1\n", "")


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("csv", "op,n\nadd,2\nexp,1\n"),
        ("json", '[\n{"op":"add","n":2},\n{"op":"exp","n":1}\n]\n'),
        ("jsonl", '{"op":"add","n":2}\n{"op":"exp","n":1}\n'),
        ("md", "| op | n |\n| --- | ---: |\n| add | 2 |\n| exp | 1 |\n"),
    ],
)
def test_it_is_written_in_every_format(main: Command, filled: Path, format: str, text: str, tmp_path: Path) -> None:
    assert main("query", PER_OP, "-f", format).out == text
    path = tmp_path / "new" / f"answer.{format}"
    assert main("query", PER_OP, "-o", str(path)).out == ""
    assert path.read_text() == text


def test_parquet_is_bytes(main: Command, filled: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "answer.parquet"
    assert main("query", PER_OP, "-o", str(path)).code == 0
    assert parquet.read_table(path).to_pylist() == [{"op": "add", "n": 2}, {"op": "exp", "n": 1}]


def test_an_unknown_format_is_named(main: Command, filled: Path) -> None:
    done = main("query", PER_OP, "-f", "cvs")
    assert done.code == 2
    assert done.err == "error: no format of tables named `cvs`\nhint: did you mean `csv`?\n"


def test_a_limit_is_kept_and_said(main: Command, filled: Path) -> None:
    done = main("query", "select op from records", "--limit", "2", "-f", "jsonl")
    assert len(done.objects) == 2
    assert done.err == "these are the first 2 rows; --limit gives more\n"
    assert main("query", "select op from records", "--limit", "3").err == ""


def test_sql_may_come_from_standard_input(main: Command, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PER_OP + ";\n"))
    assert main("query", "-").out == "op   n\nadd  2\nexp  1\n"


def test_the_views_are_listed(main: Command, filled: Path) -> None:
    found = {row["view"]: row["columns"].split(", ") for row in main("query", "--views", "-f", "jsonl").objects}
    assert tuple(found) == NAMES
    assert {"id", "label", "records"} <= set(found["runs"])
    assert {"median", "quantity", "params"} <= set(found["results"])


@pytest.mark.parametrize(
    "sql",
    ["delete from run", "drop view runs", "insert into run (id) values ('x')", "update run set label = 'x'",
     "pragma journal_mode = delete", "attach 'other.db' as other", "select 1; delete from run", "vacuum"],
)  # fmt: skip
def test_what_would_write_is_refused_and_nothing_is_changed(main: Command, filled: Path, sql: str) -> None:
    before = query("select * from runs", db=filled)
    done = main("query", sql)
    assert done.code == 2
    assert done.err.startswith("error: query: ")
    assert "hint: " in done.err
    assert query("select * from runs", db=filled) == before


@pytest.mark.parametrize("sql", ["", "  ", "selekt 1", "select nothing from runs", "select * from nowhere"])
def test_what_is_no_query_is_said(main: Command, filled: Path, sql: str) -> None:
    done = main("query", sql)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_it_is_given_up_in_time(main: Command, filled: Path) -> None:
    forever = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    done = main("query", forever, "--timeout", "0.2")
    assert done.code == 2
    assert "not answered within 0.2 s" in done.err
    assert main("query", PER_OP, "--timeout", "0").code == 2


def test_an_output_that_cannot_be_written_is_said(main: Command, filled: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = main("query", PER_OP, "-o", str(tmp_path / "file" / "x.csv"))
    assert done.code == 2
    assert "cannot be written" in done.err


def test_without_a_store_there_is_no_answer(main: Command, db: Path) -> None:
    assert main("query", PER_OP).code == 2
    assert not db.exists()


def test_hostile_names_come_out_harmless_in_every_format(main: Command, db: Path) -> None:
    store(db, made_run(1, HOSTILE), [record(1, op=HOSTILE)])
    sql = "select op, label from records"
    for format in ("table", "md", "csv", "json", "jsonl"):
        assert not {"\x1b", "\x9b", "\u202e"} & set(main("query", sql, "-f", format).out), format
    assert main("query", sql, "-f", "jsonl").objects == [{"op": HOSTILE, "label": HOSTILE}]
    _, (op, _) = csv.reader(io.StringIO(main("query", sql, "-f", "csv").out))
    assert op.startswith("'=1+1|`<b>")
    table = main("query", sql).out
    assert len(table.splitlines()) == 2
    cell = main("query", "select op from records", "-f", "md").out.splitlines()[2]
    assert "<b>" not in cell
    assert "=1+1\\|\\`&lt;b&gt;" in cell


def test_numbers_that_json_does_not_have_are_null(main: Command, filled: Path) -> None:
    sql = "select 9e999 as far, -9e999 as near, 0.1 as some, null as none"
    assert main("query", sql, "-f", "json").out == '[\n{"far":null,"near":null,"some":0.1,"none":null}\n]\n'
    assert main("query", sql, "-f", "csv").out == "far,near,some,none\n,,0.1,\n"


def test_columns_of_one_name_are_kept_apart(filled: Path) -> None:
    found = query("select 1 as a, 2 as a, 3 as a_2", db=filled)
    assert found.columns == ["a", "a_2", "a_2_2"]
    assert found.records() == [{"a": 1, "a_2": 2, "a_2_2": 3}]


def test_the_library_gives_rows_and_tables(filled: Path) -> None:
    found = query(PER_OP, db=filled)
    assert (found.columns, found.rows, list(found), len(found)) == (
        ["op", "n"], [("add", 2), ("exp", 1)], [("add", 2), ("exp", 1)], 2,
    )  # fmt: skip
    assert found.complete
    assert not query(PER_OP, limit=1, db=filled).complete
    with pytest.raises(InvalidParameter):
        query(PER_OP, limit=0, db=filled)
    with pytest.raises(UserError):
        query("delete from run", db=filled)


@pytest.mark.parametrize("where", ["", " having 1 = 0"])
def test_tables_have_their_columns_also_where_no_row_is(filled: Path, where: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = query(f"select op, count(*) as n from records group by op{where}", db=filled)
    frame, table = found.to_pandas(), found.to_arrow()
    assert list(frame.columns) == table.column_names == ["op", "n"]
    assert len(frame) == len(table) == len(found) == (0 if where else 2)


def test_blobs_are_hexadecimal(filled: Path) -> None:
    (row,) = query("select x'00ff' as b", db=filled)
    assert row == ("00ff",)
    assert json.loads(json.dumps(row)) == ["00ff"]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_rows_are_written_as_they_come(main: Command, filled: Path, format: str, tmp_path: Path) -> None:
    """And a file that is not complete is not there."""
    endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select x from n"
    printed = main("query", endless, "-f", format, "--timeout", "0.3")
    assert printed.code == 2
    assert "not answered within 0.3 s" in printed.err
    assert printed.out.count("\n") > 1000
    output = tmp_path / f"rows.{format}"
    assert main("query", endless, "-o", str(output), "--timeout", "0.3").code == 2
    assert not [item for item in tmp_path.iterdir() if item.name.startswith((".", "rows"))]


def test_json_in_an_answer_is_not_taken_apart(filled: Path) -> None:
    pytest.importorskip("pyarrow")
    answer = QueryResult(["a", "a.b"], [({"b": 1}, 2), (3, 4)])
    assert answer.to_arrow().to_pydict() == {"a": ['{"b":1}', "3"], "a.b": [2, 4]}
