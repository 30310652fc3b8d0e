"""Read-only SQL over the views of a store: `opmark query`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opmark.errors import InvalidParameter
from opmark.report.formats.dataframe import to_arrow, to_pandas
from opmark.report.formats.grid import Grid, distinct, plain
from opmark.schema.options import MeasureOptions, PathLike, options_of

SECONDS = 60.0
"""After which a query is given up, if nothing else is said."""


@dataclass(frozen=True)
class QueryResult:
    """What a query gave: as many rows, each a tuple of plain values."""

    columns: list[str]
    """No two of one name: the second is called `name_2`."""
    rows: list[tuple[Any, ...]]
    complete: bool = True
    """Whether there is no row beyond the limit."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def grid(self) -> Grid:
        return Grid(self.columns, self.rows)

    def records(self) -> list[dict[str, Any]]:
        """A dictionary a row."""
        return self.grid().records()

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; the columns are there also where no row is."""
        return to_pandas(self._some(), flat=False).iloc[: len(self.rows)]

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        return to_arrow(self._some(), flat=False).slice(0, len(self.rows))

    def _some(self) -> list[dict[str, Any]]:
        return self.records() or [dict.fromkeys(self.columns)]


class QueryRows:
    """What a query gives, row by row as it comes."""

    def __init__(self, columns: list[str], rows: Iterator[tuple[Any, ...]], limit: int | None) -> None:
        self.columns = distinct(columns)
        self.complete = True
        """Whether no row was left beyond the limit; known when all have come."""
        self._rows, self._limit = rows, limit

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for count, row in enumerate(self._rows):
            if count == self._limit:
                self.complete = False
                return
            yield tuple(map(plain, row))


@contextmanager
def asking(
    sql: str,
    *,
    limit: int | None = None,
    timeout: float = SECONDS,
    as_superuser: bool = False,
    db: PathLike | None = None,
) -> Iterator[QueryRows]:
    """For answers that are larger than the memory."""
    from opmark.store.query import open_query as ask

    if limit is not None and limit < 1:
        raise InvalidParameter(f"limit: expected at least 1, got {limit}")
    options_of(MeasureOptions)["timeout"].check(timeout)
    beyond = None if limit is None else limit + 1
    with ask(db, sql, beyond, timeout, as_superuser=as_superuser) as (columns, rows):
        yield QueryRows(columns, rows, limit)


def query(
    sql: str,
    *,
    limit: int | None = None,
    timeout: float = SECONDS,
    as_superuser: bool = False,
    db: PathLike | None = None,
) -> QueryResult:
    """The answer to a SELECT over the views `runs`, `records`, `results`, `cases`, `environments` and `findings`.

    `limit`: rows at most; `timeout`: seconds that it may take. Nothing in the store can be changed by it, whatever the
    SQL says. `as_superuser`: also as a role of PostgreSQL that nothing on its server holds back.
    """
    with asking(sql, limit=limit, timeout=timeout, as_superuser=as_superuser, db=db) as rows:
        found = list(rows)
        return QueryResult(rows.columns, found, rows.complete)


def view_columns(db: PathLike | None = None) -> dict[str, list[str]]:
    """The columns of every view that a query may name."""
    from opmark.store.tables import NAMES

    return {name: list(query(f"SELECT * FROM {name} WHERE 1 = 0", as_superuser=True, db=db).columns) for name in NAMES}
