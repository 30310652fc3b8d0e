"""Read-only SQL over the views of a store: `opmark query`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opmark.api.keywords import typed
from opmark.errors import InvalidParameter
from opmark.report.formats.dataframe import to_arrow, to_pandas
from opmark.report.formats.grid import Grid, distinct, plain
from opmark.schema.options import MeasureOptions, PathLike, options_of

SECONDS = 60.0
"""Default time limit of a query."""


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query, each a tuple of plain values."""

    columns: list[str]
    """Names are unique: a second column `name` is called `name_2`."""
    rows: list[tuple[Any, ...]]
    complete: bool = True
    """Whether the limit cut off no row."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def grid(self) -> Grid:
        return Grid(self.columns, self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per row."""
        return self.grid().records()

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`, with all columns even if there is no row."""
        return to_pandas(self._at_least_one(), flat=False).iloc[: len(self.rows)]

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""
        return to_arrow(self._at_least_one(), flat=False).slice(0, len(self.rows))

    def _at_least_one(self) -> list[dict[str, Any]]:
        return self.records() or [dict.fromkeys(self.columns)]


class QueryRows:
    """The rows of a query, read one by one from the database."""

    def __init__(self, columns: list[str], rows: Iterator[tuple[Any, ...]], limit: int | None) -> None:
        self.columns = distinct(columns)
        self.complete = True
        """Whether the limit cut off no row; known after the last row."""
        self._rows, self._limit = rows, limit

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for count, row in enumerate(self._rows):
            if count == self._limit:
                self.complete = False
                return
            yield tuple(map(plain, row))


@typed
@contextmanager
def stream_query(
    sql: str,
    *,
    limit: int | None = None,
    timeout: float = SECONDS,
    as_superuser: bool = False,
    db: PathLike | None = None,
) -> Iterator[QueryRows]:
    """Run a query and yield its rows one by one, for answers that do not fit into memory."""
    from opmark.store.query import open_query as ask

    if limit is not None and limit < 1:
        raise InvalidParameter(f"limit: expected at least 1, got {limit}")
    options_of(MeasureOptions)["timeout"].check(timeout)
    beyond = None if limit is None else limit + 1
    with ask(db, sql, beyond, timeout, as_superuser=as_superuser) as (columns, rows):
        yield QueryRows(columns, rows, limit)


@typed
def query(
    sql: str,
    *,
    limit: int | None = None,
    timeout: float = SECONDS,
    as_superuser: bool = False,
    db: PathLike | None = None,
) -> QueryResult:
    """Run a SELECT over the views `runs`, `records`, `results`, `cases`, `environments` and `findings`.

    `limit` is the largest number of rows, `timeout` a number of seconds. The query cannot change the store, whatever
    the SQL says. A superuser of PostgreSQL is not bound by read-only transactions, so that role needs `as_superuser`.
    """
    with stream_query(sql, limit=limit, timeout=timeout, as_superuser=as_superuser, db=db) as rows:
        found = list(rows)
        return QueryResult(rows.columns, found, rows.complete)


def view_columns(db: PathLike | None = None) -> dict[str, list[str]]:
    """Return the columns of every view that a query may use."""
    from opmark.store.tables import NAMES

    return {name: list(query(f"SELECT * FROM {name} WHERE 1 = 0", as_superuser=True, db=db).columns) for name in NAMES}
