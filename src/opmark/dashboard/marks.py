"""How far runs were read: by what is seen of the store at a glance, so that no record is read to know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, func, select

from opmark.store.sql import SqlStore
from opmark.store.tables import FINDING, RECORD, RUN

_AT_ONCE = 500
_Value = TypeVar("_Value")


class Place(NamedTuple):
    """A record, where it stands. SQLite gives the numbers of removed ones again: what stands there then is another."""

    number: int = 0
    run: str = ""
    task: str = ""
    started: str = ""


class Mark(NamedTuple):
    """While this stays the same, so does what was read of a run."""

    records: int = 0
    begun: int = 0
    """The number of the run itself: one that was removed and sent again mostly has another."""
    last: Place = Place()
    findings: int = 0
    """The number of the last thing found out about a machine, for who shows ceilings, which are of these."""


_PLACE = (RECORD.c.number, RECORD.c.run_id, RECORD.c.task_id, RECORD.c.started)


def counted(store: SqlStore, ids: Sequence[str]) -> dict[str, Mark]:
    """By run, without those that have no record."""
    rows: list[tuple[int, int]] = []
    with store.reading() as connection:
        for some in _parts(ids):
            query = select(func.count(), func.max(RECORD.c.number)).where(RECORD.c.run_id.in_(some))
            rows += [(count, newest) for count, newest in connection.execute(query.group_by(RECORD.c.run_id))]
    return marked(store, rows)


def marked(store: SqlStore, rows: Sequence[tuple[int, int]]) -> dict[str, Mark]:
    """By run, of how many records each has and the number of its last one."""
    counts = {newest: count for count, newest in rows}
    found: dict[str, Mark] = {}
    with store.reading() as connection:
        for some in _parts(list(counts)):
            query = select(RUN.c.number.label("begun"), *_PLACE).join(RUN, RUN.c.id == RECORD.c.run_id)
            for begun, *place in connection.execute(query.where(RECORD.c.number.in_(some))):
                last = Place(*place)
                found[last.run] = Mark(counts[last.number], begun, last)
    return found


def grown(connection: Connection, since: Place) -> set[str] | None:
    """The runs that were written to since then. None where that cannot be told: what was removed gave its numbers to
    others."""
    if place_at(connection, since.number) != since:
        return None
    # Not DISTINCT: SQLite would walk an index of all records for that, instead of the few behind the number.
    return set(connection.execute(select(RECORD.c.run_id).where(RECORD.c.number > since.number)).scalars())


def _parts(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def last_place(connection: Connection) -> Place:
    row = connection.execute(select(*_PLACE).order_by(RECORD.c.number.desc()).limit(1)).first()
    return Place(*row) if row else Place()


def place_at(connection: Connection, number: int) -> Place:
    """What stands at a number; the place of nothing where that is nothing."""
    row = connection.execute(select(*_PLACE).where(RECORD.c.number == number)).first()
    return Place(*row) if row else Place()


def findings(store: SqlStore) -> int:
    """The number of the last one."""
    with store.reading() as connection:
        return connection.execute(select(func.max(FINDING.c.number))).scalar() or 0
