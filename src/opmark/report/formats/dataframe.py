"""Results as tables of pandas or pyarrow, and as Parquet files, if those libraries are installed.

Nested values become columns with dots (`params.M`, `quantities.latency.warm.median`); groups stay together, in the
order in which they first occur. A name that is a value in one row and nested in another is one column of JSON text. The
type of a column never depends on how much of it is missing: whole numbers are `Int64` (pandas) and `int64` (arrow),
numbers `float64`, yes or no `boolean`, all else `string`. A list stays a list if all lists of its column hold whole
numbers, numbers, or texts. Other lists, columns of several kinds, and numbers that none of these types holds exactly,
are JSON text.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from opmark.errors import UserError
from opmark.files import whole_file
from opmark.report.formats.grid import Grid
from opmark.schema.comparison import Compared
from opmark.schema.history import History

Row = Mapping[str, Any]
Kind = Literal["whole", "number", "exact", "bool", "text", "wholes", "numbers", "texts", "json", "nothing"]
"""`exact`: a number that is neither an int64 nor a float64. `nothing`: also an empty list, which is of any kind."""

_PANDAS: dict[Kind, str] = {"whole": "Int64", "number": "float64", "bool": "boolean", "text": "string",
                            "json": "string", "wholes": "object", "numbers": "object", "texts": "object",
                            "nothing": "object"}  # fmt: skip
_ARROW: dict[Kind, str] = {"whole": "int64", "number": "float64", "bool": "bool_", "text": "string", "json": "string",
                           "nothing": "null"}  # fmt: skip

_KNOWN: tuple[tuple[Kind, frozenset[Kind], tuple[str, ...]], ...] = (
    ("number", frozenset({"whole", "number", "exact"}), (
        "metrics.*", "*.median", "*.fastest", "*.cycles", "*.overhead", "*.noise", "*.coverage", "*.steal", "*.load",
        "*.others", "*.max_abs_error", "*.max_rel_error", "compilation.cold", "compilation.cached", "cost.flops",
        "duration", "a", "b", "value", "level", "floor", "ratio", "low", "high", "p", "change.ratio", "change.low",
        "change.high", "change.p",
    )),
    ("bool", frozenset({"bool"}), ("change.sure",)),
    ("text", frozenset({"text"}), ("reason", "note", "label", "cache", "run.label", "run.revision")),
)  # fmt: skip
"""Columns that may be empty, or contain whole numbers by chance: their kind, the kinds that it accepts, and names."""
_encoder = msgspec.json.Encoder(decimal_format="number")
_LARGEST = 2**63
_EXACT = 2**53
"""Limit up to which a float64 holds every whole number."""


def to_pandas(what: Any, *, flat: bool = True) -> Any:
    """Return a `pandas.DataFrame` of a result, a comparison (a row for each case), histories (a row for each run of
    each series) or rows.

    If not `flat`, a nested value is one column of JSON text.
    """
    pandas = _library("pandas")
    columns = _columns(rows_of(what), flat=flat)
    made = {name: pandas.Series(values, dtype=_PANDAS[kind]) for name, (kind, values) in columns.items()}
    return pandas.DataFrame(made, columns=list(made))


def to_arrow(what: Any, *, flat: bool = True) -> Any:
    """Return a `pyarrow.Table` of the same as `to_pandas`."""
    arrow = _library("pyarrow")
    columns = _columns(rows_of(what), flat=flat)
    types = {name: _arrow_type(arrow, kind) for name, (kind, _) in columns.items()}
    arrays = [arrow.array(values, types[name]) for name, (_, values) in columns.items()]
    return arrow.table(arrays, schema=arrow.schema(list(types.items())))


def write_parquet(what: Any, path: str | Path) -> None:
    """Write a Parquet file completely or not at all; its folder is made if needed."""
    table, path = to_arrow(what), Path(path)
    parquet = _library("pyarrow.parquet")
    with whole_file(path) as file:
        parquet.write_table(table, file, compression="zstd")


def rows_of(what: Any) -> list[Row]:
    """Return plain rows, nested as `--json` prints them."""
    if isinstance(what, Compared):
        return _comparison_rows(what)
    if isinstance(what, History):
        return _history_rows(what)
    if isinstance(what, str | bytes | Mapping):
        raise _unknown(what)
    if not isinstance(what, Iterable):
        if callable(getattr(what, "rows", None)):
            return list(what.rows())
        raise _unknown(what)
    found: list[Row] = []
    for item in what:
        if isinstance(item, History):
            found += _history_rows(item)
        elif isinstance(item, Mapping):
            found.append(item)
        else:
            raise _unknown(item)
    return found


def _unknown(what: Any) -> UserError:
    return UserError(
        f"expected a result, a comparison, histories or a list of rows, got {type(what).__name__}",
        "as opmark.run, show, compare and history give them",
    )


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UserError(
            f"this takes {package}, which cannot be imported here: {error}",
            f"`pip install {package}`, or `pip install opmark[tables]`",
        ) from None


def _comparison_rows(what: Compared) -> list[Row]:
    sides = {"side_a": what.a, "side_b": what.b, "run_a": what.runs[0], "run_b": what.runs[1]}
    return [
        sides
        | {key: value for key, value in msgspec.to_builtins(pair).items() if key not in ("where", "processes")}
        | dict(zip(("where_a", "where_b"), pair.where, strict=True))
        | dict(zip(("processes_a", "processes_b"), pair.processes, strict=True))
        for pair in what.pairs
    ]


_SERIES_FIELDS = ("case", "op", "params", "phase", "backend", "implementation", "threads", "quantity", "cache", "chip")


def _history_rows(history: History) -> list[Row]:
    """Return a row for each run; `change` is filled if a new level begins there."""
    series = {name: getattr(history, name) for name in _SERIES_FIELDS}
    begins = {change.after.id: change for change in history.changes}
    found: list[Row] = []
    for point in history.points:
        change = begins.get(point.run.id)
        new_level = {name: getattr(change, name, None) for name in ("ratio", "low", "high", "p", "sure")}
        value = {name: getattr(point, name) for name in ("value", "low", "high", "processes", "environment")}
        found.append(series | {"run": msgspec.to_builtins(point.run)} | value | {"change": new_level})
    return found


class _Node:
    """A name in the tree of columns: whether it has values itself, and the names below it in their order."""

    def __init__(self) -> None:
        self.valued = False
        self.below: dict[Any, _Node] = {}

    def learn(self, row: Row, *, flat: bool) -> None:
        for key, value in row.items():
            node = self.below.setdefault(key, _Node())
            if flat and isinstance(value, Mapping):
                node.learn(value, flat=True)
            else:
                node.valued |= value is not None

    def columns(self, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the paths of columns. A group is a column itself only if some row has a value there, which would be
        lost."""
        for key, node in self.below.items():
            if node.below and not node.valued:
                yield from node.columns((*path, key))
            else:
                yield (*path, key)


def _columns(rows: Sequence[Row], *, flat: bool) -> dict[str, tuple[Kind, list[Any]]]:
    tree = _Node()
    for row in rows:
        tree.learn(row, flat=flat)
    found: dict[str, tuple[Kind, list[Any]]] = {}
    for path in tree.columns():
        name = ".".join(map(str, path))
        if name in found:
            raise UserError(f"two values have the name `{name}` once what is nested is a column")
        values = [_value_at(row, path) for row in rows]
        kind = _kind(name, values)
        found[name] = (kind, [_convert(kind, value) for value in values])
    return found


def _value_at(row: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        if not isinstance(row, Mapping):
            return None
        row = row.get(key)
    return row


def _kind(name: str, values: Sequence[Any]) -> Kind:
    kinds = {_kind_of(value) for value in values if value is not None}
    for known, accepted, patterns in _KNOWN:
        if kinds <= accepted and any(fnmatchcase(name, pattern) for pattern in patterns):
            return known
    if not kinds:
        return "nothing"
    if kinds == {"whole", "number"}:
        return "number" if all(map(_is_exact, values)) else "json"
    lists = kinds - {"nothing"}
    if lists == {"wholes", "numbers"}:
        return "numbers" if all(_is_exact(item) for value in values for item in value or ()) else "json"
    if len(lists) == 1 and lists <= {"wholes", "numbers", "texts"}:
        return lists.pop()
    alone = kinds.pop() if len(kinds) == 1 else "json"
    return "json" if alone in ("nothing", "exact") else alone  # the kind of items of empty lists is unknown


def _is_exact(value: Any) -> bool:
    """Whether a float64 holds the value exactly."""
    return not isinstance(value, int) or abs(value) <= _EXACT


def _kind_of(value: Any) -> Kind:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "whole" if -_LARGEST <= value < _LARGEST else "exact"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return _kind_of_list(value)
    return "exact" if isinstance(value, Decimal) else "json"


def _kind_of_list(items: Sequence[Any]) -> Kind:
    inside = {_kind_of(item) for item in items}
    if not inside:
        return "nothing"
    if inside == {"whole"}:
        return "wholes"
    if inside <= {"whole", "number"}:
        return "numbers" if all(map(_is_exact, items)) else "json"
    return "texts" if inside == {"text"} else "json"


def _convert(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind == "json":
        return _encoder.encode(value).decode()
    if kind == "number":
        return float(value)
    if kind == "numbers":
        return [float(item) for item in value]
    return list(value) if kind in ("wholes", "texts") else value


def _arrow_type(arrow: Any, kind: Kind) -> Any:
    inside = {"wholes": "int64", "numbers": "float64", "texts": "string"}.get(kind)
    return arrow.list_(getattr(arrow, inside)()) if inside else getattr(arrow, _ARROW[kind])()


def parquet_bytes(grid: Grid) -> bytes:
    """Return a Parquet file; a column of a known kind has its type even if it is empty."""
    table = to_arrow(grid.records() or [dict.fromkeys(grid.columns)], flat=False)
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    for place, field in enumerate(table.schema):
        if field.name in grid.kinds and field.type != (kind := getattr(arrow, grid.kinds[field.name])()):
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    file = io.BytesIO()
    parquet.write_table(table.slice(0, len(grid.rows)), file, compression="zstd")
    return file.getvalue()
