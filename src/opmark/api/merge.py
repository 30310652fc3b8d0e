"""Runs of other stores, brought into one: `opmark merge`."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from opmark.api.keywords import typed
from opmark.api.result import open_store
from opmark.errors import InvalidParameter
from opmark.schema.options import PathLike
from opmark.store.location import address, display_address
from opmark.store.protocol import Store

if TYPE_CHECKING:
    from opmark.store.merge import Merged

__all__ = ["display_address", "merge"]


@typed
def merge(*others: PathLike, db: PathLike | None = None) -> list[Merged]:
    """Copy the runs of other stores into this one, except those that it has already. Returns one result per store.

    All stores are opened before anything is written.
    """
    from opmark.store.merge import merge as merge_stores

    if not others:
        raise InvalidParameter("no store to merge is named", "as in opmark merge other.db")
    with ExitStack() as stack:
        sources = [stack.enter_context(closing(_open_other(other, db))) for other in others]
        into = stack.enter_context(closing(open_store(db, create=True)))
        return [merge_stores(into, source) for source in sources]


def _open_other(other: PathLike, db: PathLike | None) -> Store:
    """Open a store to merge from; it must not be the one that is merged into."""
    source, target = address(other), address(db)
    if source == target or (isinstance(source, Path) and isinstance(target, Path) and _same_file(source, target)):
        raise InvalidParameter(
            f"{display_address(other)}: is the store itself", "--db says which store the others come into"
        )
    return open_store(other)


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
