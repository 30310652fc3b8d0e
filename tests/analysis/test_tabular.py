"""Results as tables of pandas and pyarrow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.errors import UserError
from opmark.report.formats.dataframe import rows_of, to_arrow, to_pandas, write_parquet
from opmark.schema.comparison import Compared, Pairing
from opmark.schema.history import History, HistoryPoint, LevelChange, RunAt

ROWS = [
    {"op": "exp", "params": {"shape": [2, 3], "dtype": "float32"}, "n": 1, "ok": True, "memory": None, "tags": []},
    {
        "op": None,
        "params": {"M": 8},
        "n": None,
        "ok": None,
        "memory": {"peak": 1.5},
        "tags": ["llm"],
        "more": [{"a": 1}],
    },
]
COLUMNS = ["op", "params.shape", "params.dtype", "params.M", "n", "ok", "memory.peak", "tags", "more"]


def pairing(**fields: Any) -> Pairing:
    given = {
        "case": "0" * 16, "op": "exp", "params": "4", "phase": "forward", "where": ("torch-cpu", "numpy-cpu"),
        "quantity": "latency", "cache": "warm", "a": 1.0, "b": 2.0, "processes": (5, 7), "ratio": 2.0, "low": 1.9,
        "high": 2.1, "p": 1e-9, "verdict": "slower", "floor": 0.0,
    }  # fmt: skip
    return Pairing(**{**given, **fields})


def compared(*pairs: Pairing) -> Compared:
    return Compared("old", "new", ("r1", "r2"), True, 0.01, 0.0, pairs, None)


def history() -> History:
    runs = [RunAt(f"r{i}", f"2030-01-0{i + 1}", "nightly") for i in range(3)]
    points = tuple(HistoryPoint(run, 1e-3, 1, "e") for run in runs)
    change = LevelChange(runs[0], runs[1], 1.0, 2.0, 2.0, 1.9, 2.1, 1e-9)
    return History(
        "c", "exp", "4", "forward", "torch-cpu", "torch", 2, "latency", "warm", "chip", points, 1.0, (change,)
    )


@pytest.fixture
def result() -> Any:
    return opmark.run("exp", size="small", backend="null", effort="quick", db=":memory:")


@pytest.fixture(params=["pandas", "pyarrow"])
def columns(request: pytest.FixtureRequest) -> Callable[[Any], dict[str, list[Any]]]:
    """What a table of either library holds, by column; what is missing is None."""
    library = pytest.importorskip(request.param)

    def read(what: Any) -> dict[str, list[Any]]:
        if request.param == "pyarrow":
            return dict(to_arrow(what).to_pydict())
        frame = to_pandas(what)
        missing = {name: frame[name].map(lambda v: not isinstance(v, list) and bool(library.isna(v))) for name in frame}
        return {
            name: [None if gone else value for value, gone in zip(frame[name], missing[name], strict=True)]
            for name in frame
        }

    return read


def test_what_is_nested_is_columns_and_groups_stay_together(columns: Callable[[Any], dict[str, list[Any]]]) -> None:
    found = columns(ROWS)
    assert list(found) == COLUMNS
    assert found["op"] == ["exp", None]
    assert found["params.shape"] == [[2.0, 3.0], None]
    assert found["params.M"] == [None, 8]
    assert found["n"] == [1, None]
    assert found["ok"] == [True, None]
    assert found["memory.peak"] == [None, 1.5]
    assert found["tags"] == [[], ["llm"]]
    assert found["more"] == [None, '[{"a":1}]']


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([1, "a"], ["1", '"a"']),
        ([True, 2], ["true", "2"]),
        ([[1], ["a"]], ["[1]", '["a"]']),
        ([[1, "a"], None], ['[1,"a"]', None]),
        ([[], []], ["[]", "[]"]),
        ([2**63, 1], [str(2**63), "1"]),
        ([2**80, None], [str(2**80), None]),
        ([2**53 + 1, 0.5], [str(2**53 + 1), "0.5"]),
        ([2**53, 0.5], [2.0**53, 0.5]),
        ([[2**53 + 1], [0.5]], [f"[{2**53 + 1}]", "[0.5]"]),
        ([[2**53 + 1], []], [[2**53 + 1], []]),
        ([5, {"a": 1}], ["5", '{"a":1}']),
        ([{"a": {"b": 1}}, "text", None], ['{"a":{"b":1}}', '"text"', None]),
        ([{}, None], ["{}", None]),
        ([{}, 1], ["{}", "1"]),
        ([Decimal("0.12345678901234567890"), 1], ["0.12345678901234567890", "1"]),
        ([2**63 - 1, None], [2**63 - 1, None]),
        ([(1, 2), None], [[1.0, 2.0], None]),
        ([None, None], [None, None]),
    ],
)
def test_values(columns: Callable[[Any], dict[str, list[Any]]], values: list[Any], held: list[Any]) -> None:
    assert columns([{"x": value} for value in values]) == {"x": held}


def test_no_rows_are_an_empty_table(columns: Callable[[Any], dict[str, list[Any]]]) -> None:
    assert columns([]) == {}


def test_types_do_not_depend_on_what_is_missing() -> None:
    pytest.importorskip("pandas")
    full, empty = compared(pairing(a=1, note="x")), compared(pairing(a=None, b=None, ratio=None, low=None, p=None))
    assert dict(to_pandas(full).dtypes) == dict(to_pandas(empty).dtypes)
    whole = to_pandas([{"n": 1}])["n"].dtype
    assert whole == to_pandas([{"n": 1}, {"n": None}])["n"].dtype
    assert str(whole) == "Int64"


def test_types_of_arrow_do_not_either() -> None:
    pytest.importorskip("pyarrow")
    full, empty = compared(pairing(a=1)), compared(pairing(a=None, b=None, ratio=None, low=None, p=None, cache=None))
    assert to_arrow(full).schema == to_arrow(empty).schema
    assert str(to_arrow([{"n": 1}]).schema.field("n").type) == "int64"


def test_a_result(result: Any, columns: Callable[[Any], dict[str, list[Any]]]) -> None:
    found = columns(result)
    assert found["op"] == ["exp"]
    (median,) = found["quantities.latency.warm.median"]
    assert median == result.rows()[0]["quantities"]["latency"]["warm"]["median"]


def test_a_result_by_its_methods(result: Any) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert list(result.to_pandas()["op"]) == ["exp"]
    assert result.to_arrow().column_names == list(result.to_pandas().columns)
    assert to_arrow(result).schema == result.to_arrow().schema
    assert list(to_pandas(result.rows()).columns) == list(result.to_pandas().columns)


def test_a_comparison_is_a_row_a_case(columns: Callable[[Any], dict[str, list[Any]]]) -> None:
    found = columns(compared(pairing(), pairing(op="add", ratio=None, a=None, verdict="undecided")))
    assert found["op"] == ["exp", "add"]
    assert found["side_b"] == ["new", "new"]
    assert (found["where_b"], found["processes_a"]) == (["numpy-cpu"] * 2, [5, 5])
    assert found["ratio"] == [2.0, None]


def test_histories_are_a_row_a_run(columns: Callable[[Any], dict[str, list[Any]]]) -> None:
    found = columns([history(), history()])
    assert found["run.id"] == ["r0", "r1", "r2"] * 2
    assert found["change.ratio"] == [None, 2.0, None] * 2
    assert found["change.sure"] == [None, True, None] * 2
    assert columns(history())["op"] == ["exp"] * 3


@pytest.mark.parametrize("what", [3, "rows", {"op": "exp"}, [1], None])
def test_what_is_no_table_is_said(what: Any) -> None:
    with pytest.raises(UserError, match="expected a result, a comparison, histories or a list of rows, got"):
        rows_of(what)


def test_two_values_of_one_name_are_not_mixed_up() -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(UserError, match=r"two values have the name `a\.b`"):
        to_arrow([{"a": {"b": 1}, "a.b": 2}])


@pytest.mark.parametrize(("make", "library"), [(to_pandas, "pandas"), (to_arrow, "pyarrow")])
def test_a_library_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any], library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=f"takes {library}, which cannot be imported") as raised:
        make(ROWS)
    assert raised.value.hint == f"`pip install {library}`, or `pip install opmark[tables]`"


def test_parquet_there_and_back(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "new" / "rows.parquet"
    write_parquet(ROWS, path)
    assert parquet.read_table(path).equals(to_arrow(ROWS))
    assert [found.name for found in path.parent.iterdir()] == ["rows.parquet"]


def test_parquet_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_parquet(ROWS, tmp_path / "file" / "rows.parquet")


def test_lists_of_whole_numbers_are_that() -> None:
    arrow = pytest.importorskip("pyarrow")
    schema = to_arrow([{"a": [1, 2], "b": [1, 2.5], "c": ["x"]}]).schema
    assert [schema.field(name).type.value_type for name in "abc"] == [arrow.int64(), arrow.float64(), arrow.string()]


def test_what_is_not_to_be_flat_is_json() -> None:
    pytest.importorskip("pyarrow")
    found = to_arrow([{"a": {"b": 1}, "a.b": 2}], flat=False).to_pydict()
    assert found == {"a": ['{"b":1}'], "a.b": [2]}


def test_two_that_write_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    seen = set()
    opened = Path.open

    def watched(self: Path, *arguments: Any, **options: Any) -> Any:
        seen.add(self.name)
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", watched)
    write_parquet(ROWS, tmp_path / "a.parquet")
    write_parquet(ROWS, tmp_path / "a.parquet")
    assert len(seen) == 2
    assert [item.name for item in tmp_path.iterdir()] == ["a.parquet"]
