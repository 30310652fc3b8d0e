"""opmark show --format, opmark export --format: a run as a table."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up import BOX, HOSTILE, made_run, record, store

from opmark.api.export import export
from opmark.plugin.registry import exporters
from opmark.report.formats.run_table import COLUMNS

pytestmark = pytest.mark.store

Command = Callable[..., Any]

FORMATS = ("table", "md", "csv", "json", "jsonl", "parquet")
MATMUL = {"M": 4, "N": 5, "K": 6}


@pytest.fixture
def filled(db: Path) -> Path:
    records = [record(1), record(1, process=1), record(2, op="matmul", params=MATMUL),
               record(3, op="exp", status="oom", reason="too much,\nby far")]  # fmt: skip
    store(db, made_run(1, "first", tasks=4, revision="abc"), records)
    return db


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_format_is_listed(main: Command) -> None:
    listed = {row["format"] for row in main("list", "formats", "--json").objects if row["command"] == "opmark export"}
    assert set(FORMATS) <= listed
    assert {name: exporters()[name].name for name in FORMATS} == {name: name for name in FORMATS}


@pytest.mark.parametrize("format", FORMATS)
def test_show_and_export_write_the_same(main: Command, filled: Path, tmp_path: Path, format: str) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    shown, exported = tmp_path / "a" / "shown", tmp_path / "b" / "exported"
    assert main("show", "first", "-f", format, "-o", f"{shown}.x").code == 0
    assert main("export", "first", "-f", format, "-o", f"{exported}.x").code == 0
    assert Path(f"{shown}.x").read_bytes() == Path(f"{exported}.x").read_bytes() != b""


@pytest.mark.parametrize(("name", "format"), [("a.csv", "csv"), ("a.MD", "md"), ("a.txt", "table"), ("a.json", "json")])
def test_the_ending_of_a_file_tells_the_format(
    main: Command, filled: Path, tmp_path: Path, name: str, format: str
) -> None:
    for command in ("show", "export"):
        assert main(command, "-o", str(tmp_path / name)).code == 0
        assert (tmp_path / name).read_text() == main("show", "-f", format).out
        (tmp_path / name).unlink()


def test_csv_has_a_row_a_measurement_in_full(main: Command, filled: Path) -> None:
    add, matmul, exp = rows(main("show", "-f", "csv").out)
    assert [*add][: len(COLUMNS)][:5] == [*COLUMNS][:5]
    assert (add["run"], add["label"], add["revision"], add["op"]) == (made_run(1).id, "first", "abc", "add")
    assert (add["processes"], add["samples"], add["quantity"], add["cache"]) == ("2", "14", "latency", "warm")
    assert (float(add["median"]), add["unit"], add["headline"]) == (1.03e-3, "s", "true")
    assert float(matmul["bytes_per_second"]) == 2_121_800 / 1.03e-3
    assert (matmul["params.M"], matmul["params.shape"], add["params.M"]) == ("4", "", "")
    assert json.loads(matmul["params"]) == MATMUL
    assert json.loads(add["params.shape"]) == [1]
    assert (exp["status"], exp["reason"], exp["median"], exp["quantity"]) == ("oom", "too much,\nby far", "", "")
    assert (add["machine"], add["torch"], add["environment"]) == ("box", "2.11.0", BOX.id)


def test_json_has_the_same_rows_with_parameters_as_they_are(main: Command, filled: Path) -> None:
    lines = main("show", "-f", "jsonl").objects
    assert json.loads(main("show", "-f", "json").out) == lines
    assert [list(line) for line in lines] == [list(COLUMNS)] * 3
    add, matmul, exp = lines
    assert (add["median"], add["headline"], matmul["params"], exp["median"]) == (1.03e-3, True, MATMUL, None)
    nested = main("show", "--json").objects
    assert [row["case"] for row in nested] == [line["case"] for line in lines]
    assert nested[0]["quantities"]["latency"]["warm"]["median"] == add["median"]


def test_parquet_has_the_same_rows_with_types(main: Command, filled: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    main("show", "-o", str(tmp_path / "a.parquet"))
    table = parquet.read_table(tmp_path / "a.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["median"], types["threads"], types["gpu"], types["headline"]) == ("double", "int64", "string", "bool")
    assert types["params.M"] == "int64"
    assert table.column("median").to_pylist() == [1.03e-3, 1.03e-3, None]


def test_types_do_not_depend_on_what_was_measured(main: Command, db: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    store(db, made_run(1), [record(1, status="error", reason="no")])
    store(db, made_run(2), [record(1)])
    store(db, made_run(3))
    schemas = []
    for number in (1, 2, 3):
        path = tmp_path / f"{number}.parquet"
        assert main("show", made_run(number).id, "-o", str(path)).code == 0
        table = parquet.read_table(path)
        assert len(table) == (1 if number < 3 else 0)
        schemas.append({f.name: f.type for f in table.schema if not f.name.startswith("params.")})
    assert schemas[0] == schemas[1] == schemas[2]
    assert list(schemas[0]) == list(COLUMNS)


def test_parquet_without_pyarrow_says_what_to_install(
    main: Command, filled: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = main("show", "-o", str(tmp_path / "a.parquet"))
    assert done.code == 2
    assert "pip install pyarrow" in done.err
    assert not (tmp_path / "a.parquet").exists()


def test_bytes_are_not_written_to_a_terminal(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.cli.output import write_out
    from opmark.errors import UserError

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(UserError, match="not text"):
        write_out(b"PAR1", None)


def test_markdown_is_rounded_for_people(main: Command, filled: Path) -> None:
    head, rule, add, _, exp = main("show", "-f", "md").out.splitlines()
    assert head.startswith("| operator | parameters | backend | phase |")
    assert head.count("|") == rule.count("|") == add.count("|")
    assert "| 1.03 ms |" in add
    assert "too much, by far" in exp


def test_the_table_is_what_show_prints(main: Command, filled: Path) -> None:
    assert main("show", "-f", "table").out == main("show").out == main("export", "-f", "table").out


@pytest.mark.parametrize("format", ["param", "opperf-md"])
def test_show_writes_formats_of_other_systems_too(main: Command, filled: Path, format: str) -> None:
    assert main("show", "-f", format).out == main("export", "-f", format).out != ""


def test_mistakes_are_named(main: Command, filled: Path, tmp_path: Path) -> None:
    done = main("show", "-f", "cvs")
    assert done.code == 2
    assert "did you mean `csv`?" in done.err
    assert main("export").code == 2
    assert main("show", "--json", "-f", "csv").code == 2
    assert main("show", "--numerics", "-o", str(tmp_path / "x.txt")).code == 2
    assert main("show", "nothing", "-f", "csv").code == 2
    (tmp_path / "file").write_text("")
    unwritable = main("show", "-o", str(tmp_path / "file" / "x.csv"))
    assert unwritable.code == 2
    assert "cannot be written" in unwritable.err


def test_a_run_with_nothing_in_it_has_no_row(main: Command, db: Path) -> None:
    store(db, made_run(1))
    assert main("show", "-f", "json").out == "[]\n"
    assert main("show", "-f", "csv").out == ",".join(COLUMNS) + "\n"
    assert main("show", "-f", "jsonl").out == ""
    assert main("show", "-f", "md").code == main("show").code == 0


def test_hostile_names_come_out_harmless_in_every_format(main: Command, db: Path) -> None:
    failed = record(2, op="exp", status="error", reason=HOSTILE)
    store(db, made_run(1, HOSTILE), [record(1, op=HOSTILE, params={HOSTILE: HOSTILE}), failed])
    for format in ("table", "md", "csv", "json", "jsonl"):
        done = main("show", "-f", format)
        assert done.code == 0
        assert not {"\x1b", "\x9b", "\u202e"} & set(done.out + done.err), format
    assert main("show", "-f", "jsonl").objects[0]["op"] == HOSTILE
    first, _ = rows(main("show", "-f", "csv").out)
    assert first["op"].startswith("'=")
    assert "<b>" not in main("show", "-f", "md").out
    assert len(main("show", "-f", "md").out.splitlines()) == 4
    for look in ("--long", "--numerics", "--json"):
        assert not {"\x1b", "\x9b", "\u202e"} & set(main("show", look).out), look


def test_the_library_gives_the_same_texts(filled: Path) -> None:
    ((name, text),) = export("first", format="csv", db=filled).items()
    assert name == f"{made_run(1).id}.csv"
    assert isinstance(text, str)
    assert len(rows(text)) == 3
