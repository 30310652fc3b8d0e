from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from opmark.api.result import open_store
from opmark.api.runs import _other
from opmark.errors import InvalidParameter
from opmark.schema.options import PathLike

if TYPE_CHECKING:
    from opmark.store.merge import Merged


def merge(*others: PathLike, db: PathLike | None = None) -> list[Merged]:
    """Brings the runs of other stores into this one; what is there already is left out. One result for each.

    All of them are opened before anything is written.
    """
    from opmark.store.merge import merge as merge_stores

    if not others:
        raise InvalidParameter("no store to merge is named", "as in opmark merge other.db")
    with ExitStack() as opened:
        sources = [opened.enter_context(closing(_other(other, db))) for other in others]
        into = opened.enter_context(closing(open_store(db, create=True)))
        return [merge_stores(into, source) for source in sources]
