"""Remove runs from a store: `opmark prune`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import NamedTuple

from opmark.api.history import parse_time
from opmark.api.keywords import typed
from opmark.api.result import open_store
from opmark.errors import InvalidParameter, UserError
from opmark.schema import Run
from opmark.schema.options import PathLike, split_names
from opmark.schema.run import RunSummary
from opmark.store.location import store_exists
from opmark.store.protocol import Store
from opmark.store.runs import find_run

_RECENT = "24h"


class Pruned(NamedTuple):
    runs: list[RunSummary]
    """The runs that were removed, or would be."""
    removed: bool
    parted: list[str]
    """Ids of runs that stay although they were measured in turns with a removed one."""
    compacted: str = ""
    """Message about the space that was given back to the disk."""
    running: tuple[str, ...] = ()
    """Ids of runs that began in the last day and lack records: somebody may still be measuring them."""

    @property
    def records(self) -> int:
        return sum(run.records for run in self.runs)


@typed
def prune(
    runs: str | Sequence[str] = (),
    *,
    before: str | None = None,
    label: str | None = None,
    keep_last: int | None = None,
    everything: bool = False,
    yes: bool = False,
    compact: bool = False,
    db: PathLike | None = None,
) -> Pruned:
    """Remove runs with their records; without `yes`, only return which ones would be removed.

    A run is removed if it is one of `runs` (if any are named), began before `before`, and has the `label`; the newest
    `keep_last` of these stay. Removing every run of a store takes `everything`, or all of their names.
    """
    from opmark.store.runs import summaries

    _check_texts(runs=runs, before=before, label=label)
    names = split_names(runs)
    narrowed = bool(names or before or label or keep_last is not None)
    _check(keep_last, narrowed=narrowed, everything=everything, compact=compact)
    with closing(open_store(db, create=yes and store_exists(db))) as store:
        known = store.runs()
        going = (
            _select_runs(store, known, names, before or "", label or "", keep_last) if narrowed or everything else []
        )
        if going and len(going) == len(known) and not everything and not names:
            raise UserError(
                f"these are all {len(known)} runs of the store; nothing was removed",
                "--all says that all of them are meant",
            )
        found = summaries(store, going)
        if yes and going:
            store.remove([run.id for run in going])
    return Pruned(
        found, yes and bool(going), _partners_left(known, going), _compact(compact and yes, db), _running(found)
    )


def remove(ids: Sequence[str], *, compact: bool = False, db: PathLike | None = None) -> Pruned:
    """Remove the runs with exactly these ids. Ids that no longer exist are ignored."""
    from opmark.store.runs import summaries

    with closing(open_store(db, create=store_exists(db))) as store:
        requested = set(ids)
        known = store.runs()
        going = [run for run in known if run.id in requested]
        found = summaries(store, going)
        store.remove([run.id for run in going])
    return Pruned(found, bool(going), _partners_left(known, going), _compact(compact, db), _running(found))


def _compact(requested: bool, db: PathLike | None) -> str:
    from opmark.store.sqlite import compact

    return compact(db) if requested else ""


def _check_texts(**given: str | Sequence[str] | None) -> None:
    """Refuse empty texts: they come from unset variables of scripts, and would select every run."""
    for name, value in given.items():
        if value is not None and (value == "" if isinstance(value, str) else "" in value):
            raise InvalidParameter(f"{name}: is empty; nothing was removed", "leave it out if it is not meant")


def _check(keep_last: int | None, *, narrowed: bool, everything: bool, compact: bool) -> None:
    if keep_last is not None and keep_last < 0:
        raise InvalidParameter(f"keep_last: expected 0 or more, got {keep_last}")
    if everything and narrowed:
        raise UserError("all of them, and only some, are two things", "give --all alone")
    if not narrowed and not everything and not compact:
        raise UserError(
            "no run is named", "as in `opmark prune RUN`, --before 2030-12-31, --label 'try*', --keep-last 30"
        )


def _select_runs(
    store: Store, known: Sequence[Run], names: Sequence[str], before: str, label: str, keep_last: int | None
) -> list[Run]:
    """Return the runs to remove, newest first."""
    named = {find_run(store, name, to_change=True).id for name in names}
    until = parse_time(before, name="before")
    fitting = [
        run
        for run in known
        if (not named or run.id in named)
        and (not until or run.started < until)
        and (not label or fnmatchcase(run.label, label))
    ]
    return fitting[keep_last or 0 :]


def _running(found: Sequence[RunSummary]) -> tuple[str, ...]:
    lately, now = parse_time(_RECENT), parse_time(datetime.now(timezone.utc).isoformat())
    return tuple(one.id for one in found if one.missing and lately < one.run.started <= now)


def _partners_left(known: Sequence[Run], going: Sequence[Run]) -> list[str]:
    sessions, ids = {run.session for run in going if run.session}, {run.id for run in going}
    return [run.id for run in known if run.session in sessions and run.id not in ids]
