"""The room of what was removed, given back to the disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from opmark.errors import StoreError
from opmark.store.location import Told, address
from opmark.store.sqlite import BUSY_SECONDS
from opmark.units import count_bytes


def compact(told: Told = None) -> str:
    """What came of it, for people. Who else uses the file is waited for; a server does it by itself."""
    where = address(told)
    if isinstance(where, str):
        return "PostgreSQL gives the room to new records by itself (autovacuum); VACUUM FULL returns it to the disk"
    before = _size(where)
    try:
        with closing(sqlite3.connect(f"{where.resolve().as_uri()}?mode=rw", timeout=BUSY_SECONDS, uri=True)) as file:
            file.execute("VACUUM")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise StoreError(
            f"{where}: cannot be made smaller: {error}", "it takes as much free room as the store; nothing is lost"
        ) from None
    return f"{where}: {count_bytes(before)} before, {count_bytes(_size(where))} now"


def _size(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
