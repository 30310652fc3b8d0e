"""Read a stored run: `opmark show`."""

from __future__ import annotations

from contextlib import closing

from opmark.api.keywords import typed
from opmark.api.result import Result, open_store, result_of
from opmark.schema.options import PathLike
from opmark.store.runs import find_run


@typed
def show(run: str | None = None, *, db: PathLike | None = None) -> Result:
    """Return a run by its id, the beginning of its id, or its label; without a name, the last one."""
    with closing(open_store(db)) as store:
        this = find_run(store, run)
        return result_of(store, this, store.records(this.id), db)
