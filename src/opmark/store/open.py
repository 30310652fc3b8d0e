"""A store, wherever it is."""

from __future__ import annotations

from pathlib import Path

from opmark.errors import StoreError
from opmark.store.location import Told, address
from opmark.store.sql import SqlStore
from opmark.store.sqlite import Sqlite


def open_sql(told: Told = None, *, create: bool = False) -> SqlStore:
    where = address(told)
    if isinstance(where, Path):
        return SqlStore(Sqlite(_file(where)), create=create)
    from opmark.store.postgresql import Postgresql

    return SqlStore(Postgresql(where), create=create)


def _file(path: Path) -> Path:
    """An address of another kind is not the name of a file."""
    scheme, found, _ = str(path).partition(":/")
    if found and scheme.isalpha() and len(scheme) > 1:
        raise StoreError(f"{path}: a store is a file or postgresql://..., not {scheme}://...")
    return path
