"""Results as tables of pandas or pyarrow, where those are installed.

What is nested becomes columns with dots (`params.M`, `quantities.latency.warm.median`); groups stay together, in the
order in which the rows first have them. The type of a column never depends on how much of it is missing: whole numbers
are `Int64` (pandas) and `int64` (arrow), numbers `float64`, yes or no `boolean`, all else `string`. A list stays one
where all lists of its column hold numbers only, or texts only; other lists, and columns of several kinds, are JSON
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from opmark.errors import UserError
from opmark.schema.comparison import Compared
from opmark.schema.history import History

Row = Mapping[str, Any]
Kind = Literal["whole", "number", "bool", "text", "numbers", "texts", "json", "nothing"]

_PANDAS: dict[Kind, str] = {"whole": "Int64", "number": "float64", "bool": "boolean", "text": "string",
                            "json": "string", "numbers": "object", "texts": "object",
                            "nothing": "object"}  # fmt: skip
_ARROW: dict[Kind, str] = {"whole": "int64", "number": "float64", "bool": "bool_", "text": "string", "json": "string",
                           "nothing": "null"}  # fmt: skip

_KNOWN: tuple[tuple[Kind, frozenset[Kind], tuple[str, ...]], ...] = (
    ("number", frozenset({"whole", "number"}), (
        "metrics.*", "*.median", "*.fastest", "*.cycles", "*.overhead", "*.noise", "*.coverage", "*.steal", "*.load",
        "*.others", "*.max_abs_error", "*.max_rel_error", "compilation.cold", "compilation.cached", "cost.flops",
        "duration", "a", "b", "value", "level", "floor", "ratio", "low", "high", "p", "change.ratio", "change.low",
        "change.high", "change.p",
    )),
    ("bool", frozenset({"bool"}), ("change.sure",)),
    ("text", frozenset({"text"}), ("reason", "note", "label", "cache", "run.label", "run.revision")),
)  # fmt: skip
"""Of columns that may be missing throughout, or happen to be whole: the kind, and what it takes."""
_LARGEST = 2**63


def to_pandas(what: Any) -> Any:
    """A `pandas.DataFrame` of a result, a comparison (a row a case), histories (a row a run of each) or rows."""
    pandas = _library("pandas")
    columns = _columns(rows_of(what))
    made = {name: pandas.Series(values, dtype=_PANDAS[kind]) for name, (kind, values) in columns.items()}
    return pandas.DataFrame(made, columns=list(made))


def to_arrow(what: Any) -> Any:
    """A `pyarrow.Table` of the same."""
    arrow = _library("pyarrow")
    columns = _columns(rows_of(what))
    types = {name: _arrow_type(arrow, kind) for name, (kind, _) in columns.items()}
    arrays = [arrow.array(values, types[name]) for name, (_, values) in columns.items()]
    return arrow.table(arrays, schema=arrow.schema(list(types.items())))


def write_parquet(what: Any, path: str | Path) -> None:
    """A file that is whole or not there; its folder is made if need be."""
    table, path = to_arrow(what), Path(path)
    parquet = _library("pyarrow.parquet")
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            parquet.write_table(table, beside, compression="zstd")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def rows_of(what: Any) -> list[Row]:
    """Plain rows, nested as `--json` prints them."""
    if isinstance(what, Compared):
        return _compared(what)
    if isinstance(what, History):
        return _followed(what)
    if isinstance(what, str | bytes | Mapping):
        raise _unknown(what)
    if not isinstance(what, Iterable):
        if callable(getattr(what, "rows", None)):
            return list(what.rows())
        raise _unknown(what)
    found: list[Row] = []
    for item in what:
        if isinstance(item, History):
            found += _followed(item)
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
        wanted = name.partition(".")[0]
        raise UserError(
            f"this takes {wanted}, which cannot be imported here: {error}",
            f"`pip install {wanted}`, or `pip install opmark[tables]`",
        ) from None


def _compared(what: Compared) -> list[Row]:
    sides = {"side_a": what.a, "side_b": what.b, "run_a": what.runs[0], "run_b": what.runs[1]}
    return [
        sides
        | {key: value for key, value in msgspec.to_builtins(pair).items() if key not in ("where", "processes")}
        | dict(zip(("where_a", "where_b"), pair.where, strict=True))
        | dict(zip(("processes_a", "processes_b"), pair.processes, strict=True))
        for pair in what.pairs
    ]


_OF_SERIES = ("case", "op", "params", "phase", "backend", "implementation", "threads", "quantity", "cache", "chip")


def _followed(history: History) -> list[Row]:
    """A row a run; `change` is filled where a new level begins."""
    series = {name: getattr(history, name) for name in _OF_SERIES}
    begins = {change.after.id: change for change in history.changes}
    found: list[Row] = []
    for point in history.points:
        change = begins.get(point.run.id)
        told = {name: getattr(change, name, None) for name in ("ratio", "low", "high", "p", "sure")}
        value = {name: getattr(point, name) for name in ("value", "low", "high", "processes", "environment")}
        found.append(series | {"run": msgspec.to_builtins(point.run)} | value | {"change": told})
    return found


def _columns(rows: Sequence[Row]) -> dict[str, tuple[Kind, list[Any]]]:
    order: dict[str, Any] = {}
    flat = [_flat(row, order) for row in rows]
    found = {}
    for name in _walk(order):
        values = [row.get(name) for row in flat]
        kind = _kind(name, values)
        found[name] = (kind, [_as(kind, value) for value in values])
    return found


def _flat(row: Row, order: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Its values by column; `order` remembers which groups have which columns."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        below = order.setdefault(str(key), {})
        parts = _flat(value, below, f"{name}.") if isinstance(value, Mapping) else {name: value}
        for part in parts.keys() & found.keys():
            raise UserError(f"two values have the name `{part}` once what is nested is a column")
        found |= parts
    return found


def _walk(order: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """A group that has columns is none itself: where a row has nothing of it, they are missing."""
    for key, below in order.items():
        if below:
            yield from _walk(below, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _kind(name: str, values: Sequence[Any]) -> Kind:
    kinds = {_kind_of(value) for value in values if value is not None}
    for known, taken, patterns in _KNOWN:
        if kinds <= taken and any(fnmatchcase(name, pattern) for pattern in patterns):
            return known
    if not kinds:
        return "nothing"
    if kinds == {"whole", "number"}:
        return "number"
    if len(kinds - {"nothing"}) == 1 and kinds <= {"numbers", "texts", "nothing"}:
        return (kinds - {"nothing"}).pop()
    if kinds == {"nothing"}:
        return "json"  # empty lists, and nobody knows of what
    return kinds.pop() if len(kinds) == 1 else "json"


def _kind_of(value: Any) -> Kind:
    """An empty list is of any kind: `nothing`."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "whole" if -_LARGEST <= value < _LARGEST else "number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        inside = {_kind_of(item) for item in value}
        if inside <= {"whole", "number"}:
            return "numbers" if inside else "nothing"
        return "texts" if inside == {"text"} else "json"
    return "json"


def _as(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind == "json":
        return msgspec.json.encode(value).decode()
    if kind == "number":
        return float(value)
    if kind == "numbers":
        return [float(item) for item in value]
    return list(value) if kind == "texts" else value


def _arrow_type(arrow: Any, kind: Kind) -> Any:
    if kind in ("numbers", "texts"):
        return arrow.list_(arrow.float64() if kind == "numbers" else arrow.string())
    return getattr(arrow, _ARROW[kind])()
