"""Read-only SQL over the views of a store: `opmark query`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opmark.api.common import PathLike, check_timeout
from opmark.errors import InvalidParameter
from opmark.report.formats.grid import Grid, distinct, plain
from opmark.tabular import to_arrow, to_pandas

SECONDS = 60.0
"""After which a query is given up, if nothing else is said."""


@dataclass(frozen=True)
class Answer:
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
        return to_pandas(self._some()).iloc[: len(self.rows)]

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        return to_arrow(self._some()).slice(0, len(self.rows))

    def _some(self) -> list[dict[str, Any]]:
        return self.records() or [dict.fromkeys(self.columns)]


def query(sql: str, *, limit: int | None = None, timeout: float = SECONDS, db: PathLike | None = None) -> Answer:
    """The answer to a SELECT over the views `runs`, `records`, `results`, `cases`, `environments` and `findings`.

    `limit`: rows at most; `timeout`: seconds that it may take. Nothing can be changed by it, whatever the SQL says.
    """
    from opmark.store.query import query as ask

    if limit is not None and limit < 1:
        raise InvalidParameter(f"limit: expected at least 1, got {limit}")
    check_timeout(timeout)
    columns, rows = ask(db, sql, None if limit is None else limit + 1, timeout)
    found = [tuple(map(plain, row)) for row in rows]
    return Answer(distinct(columns), found[:limit], limit is None or len(found) <= limit)
