"""What is stored, looked at again: `opmark show`, `export`, `rank`, `coverage`, `fit`."""

from __future__ import annotations

from contextlib import closing

from opmark.api.result import Result, open_store, result_of
from opmark.schema.options import PathLike
from opmark.store.runs import find_run


def show(run: str | None = None, *, db: PathLike | None = None) -> Result:
    """A stored run: the last one, or one by its id (or the beginning of it) or its label."""
    with closing(open_store(db)) as store:
        this = find_run(store, run)
        return result_of(store, this, store.records(this.id), db)
