"""Tables of anything in every format."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import UnknownName, UserError
from opmark.report.formats import FORMATS, format_for, format_grid
from opmark.report.formats.grid import Grid, distinct, plain
from opmark.report.formats.markdown import escape_markdown
from opmark.report.text import harmless, json_line, printable

TEXTS = st.text(max_size=20) | st.sampled_from(
    ["=1", "+1", "-1", "@a", "'=1", "a|b", "\x1b[0m", "<i>", "`x`", "a\r\nb"]
)


def csv_rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "\nx", "＝1"])
def test_what_a_spreadsheet_would_compute_begins_with_an_apostrophe(text: str) -> None:
    (_, (cell,)) = csv_rows(str(format_grid(Grid(["a"], [[text]]), "csv")))
    assert cell.startswith("'")


def test_numbers_in_csv_are_numbers_in_full() -> None:
    values = [-1, 0.1 + 0.2, -2.5e-300, 2**70, True, None, math.nan, math.inf, [1, "a"], {"a": None}]
    (_, cells) = csv_rows(str(format_grid(Grid([*map(str, range(10))], [values]), "csv")))
    assert cells == ["-1", "0.30000000000000004", "-2.5e-300", str(2**70), "true", "", "", "", '[1,"a"]', '{"a":null}']


def test_heads_are_guarded_too() -> None:
    assert format_grid(Grid(["=1", "a,b", "\x1b"], []), "csv") == '\'=1,"a,b",\\x1b\n'


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_csv_keeps_rows_and_columns_apart_whatever_is_in_them(rows: list[tuple[str, str]]) -> None:
    found = csv_rows(str(format_grid(Grid(["a", "b"], rows), "csv")))
    assert len(found) == len(rows) + 1
    for (a, b), cells in zip(rows, found[1:], strict=True):
        assert len(cells) == 2
        for text, cell in ((a, cells[0]), (b, cells[1])):
            assert cell.removeprefix("'") == harmless(text).removeprefix("'")
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_tables_and_markdown_have_a_line_a_row_whatever_is_in_it(rows: list[tuple[str, str]]) -> None:
    grid = Grid(["a", "b"], rows)
    assert str(format_grid(grid, "table")).count("\n") == len(rows) + 1
    lines = str(format_grid(grid, "md")).removesuffix("\n").split("\n")
    assert len(lines) == len(rows) + 2
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3
        assert line.isprintable()


@given(st.text() | st.floats() | st.lists(st.text()))
def test_json_says_the_same_without_what_a_terminal_obeys(value: Any) -> None:
    line = json_line({"x": value})
    assert harmless(line) == line or not any(ord(one) < 0xA0 and not one.isprintable() for one in line)
    back = json.loads(line)["x"]
    assert back == (None if isinstance(value, float) and not math.isfinite(value) else value)


def test_both_json_formats_are_read_again() -> None:
    grid = Grid(["a", "b"], [[1, None], [0.5, {"c": [math.nan]}]])
    wanted = [{"a": 1, "b": None}, {"a": 0.5, "b": {"c": [None]}}]
    assert json.loads(str(format_grid(grid, "json"))) == wanted
    assert [json.loads(line) for line in str(format_grid(grid, "jsonl")).splitlines()] == wanted
    assert format_grid(Grid(["a"], []), "json") == "[]\n"


def test_a_table_has_numbers_to_the_right_and_knows_wide_signs() -> None:
    grid = Grid(["name", "n"], [["日本", 7], ["ab", 10], [None, None]])
    assert format_grid(grid, "table") == "name   n\n日本   7\nab    10\n\n"
    assert format_grid(Grid([], []), "table") == ""


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("layer_norm", "layer_norm"),
        ("_x_ *y* ~z~", "\\_x\\_ \\*y\\* \\~z\\~"),
        ("a|b`c`", "a\\|b\\`c\\`"),
        ("<script>&", "&lt;script&gt;&amp;"),
        ("![x](http://y)", "!\\[x\\](http:&#8203;//y)"),
        ("@org/team a@b.c @", "@&#8203;org/team a@&#8203;b.c @"),
        ("#12 o/r#7 GH-3 # x", "\\#&#8203;12 o/r\\#&#8203;7 GH-&#8203;3 \\# x"),
        ("HTTPS://x www.x.y ftp://z", "HTTPS:&#8203;//x www&#8203;.x.y ftp:&#8203;//z"),
        ("mailto:x", "mailto:&#8203;x"),
        ("$x$", "<span>$</span>x<span>$</span>"),
        ("a\nb\\|", "a b\\\\\\|"),
    ],
)
def test_markdown_takes_nothing_for_markup(text: str, cell: str) -> None:
    assert escape_markdown(text) == cell


def test_parquet_is_read_again() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    grid = Grid(["a", "b", "c"], [["x", None, 1], [None, None, 2]], {"b": "float64"})
    table = parquet.read_table(io.BytesIO(bytes(format_grid(grid, "parquet"))))  # type: ignore[arg-type]
    assert [str(field.type) for field in table.schema] == ["string", "double", "int64"]
    assert table.to_pylist() == [{"a": "x", "b": None, "c": 1}, {"a": None, "b": None, "c": 2}]
    nothing = parquet.read_table(io.BytesIO(bytes(format_grid(grid._replace(rows=[]), "parquet"))))  # type: ignore[arg-type]
    assert (nothing.column_names, len(nothing)) == (["a", "b", "c"], 0)


def test_what_a_database_gives_becomes_plain() -> None:
    day = datetime(2030, 1, 2, tzinfo=timezone.utc)
    given = (1, "a", None, True, Decimal("1.5"), Decimal(7), b"\x00\xff", day, {1: (Decimal(2),)}, memoryview(b"a"))
    assert [plain(value) for value in given] == [
        1, "a", None, True, 1.5, 7, "00ff", "2030-01-02T00:00:00+00:00", {"1": [2]}, "61",
    ]  # fmt: skip
    assert math.isnan(plain(Decimal("NaN")))


def test_columns_get_names_of_their_own() -> None:
    assert distinct(["a", "a", "b", "a"]) == ["a", "a_2", "b", "a_3"]


def test_the_format_is_as_told_or_as_the_file_is_called() -> None:
    assert format_for("csv", Path("x.json")) == "csv"
    assert format_for("", Path("x.JSONL")) == "jsonl"
    assert format_for("", Path("x")) == format_for("", None) == "table"
    with pytest.raises(UserError, match=r"no format is known by the ending `.xlsx`"):
        format_for("", Path("x.xlsx"))
    with pytest.raises(UnknownName):
        format_grid(Grid([], []), "xlsx")
    assert set(FORMATS) == {"table", "md", "csv", "json", "jsonl", "parquet"}


def test_what_cannot_be_seen_is_written_out() -> None:
    assert printable("a\x1b[0m\nb\u202e\x9b") == "a\\x1b[0m\\nb\\u202e\\x9b"
    assert harmless("a\x1b\n\tb\r") == "a\\x1b\n\tb\\r"
    assert printable("µ 日本 – ok") == harmless("µ 日本 – ok") == "µ 日本 – ok"


def test_decimal_numbers_are_written_in_full() -> None:
    long, huge, usual = Decimal("-0.12345678901234567890"), Decimal(2**70), Decimal("1.50")
    row = [plain(value) for value in (long, huge, usual, Decimal("3.0"), Decimal("NaN"))]
    assert row[2:4] == [1.5, 3]
    grid = Grid(["a", "b", "c", "d", "e"], [row])
    assert str(format_grid(grid, "csv")).splitlines()[1] == f"{long},{2**70},1.5,3,"
    assert format_grid(grid, "jsonl") == f'{{"a":{long},"b":{2**70},"c":1.5,"d":3,"e":null}}\n'
    assert f"{long}" in str(format_grid(grid, "table"))
    assert f"| {long} | {2**70} |" in str(format_grid(grid, "md"))
