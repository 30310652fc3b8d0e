"""Runs taken out of a store, for good: `opmark prune`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import NamedTuple

from opmark.api.history import parse_time
from opmark.api.result import open_store
from opmark.errors import InvalidParameter, UserError
from opmark.schema import Run
from opmark.schema.options import PathLike, split_names
from opmark.schema.run import RunSummary
from opmark.store.location import store_exists
from opmark.store.protocol import Store
from opmark.store.runs import find_run

_LATELY = "24h"


class Pruned(NamedTuple):
    runs: list[RunSummary]
    """What was removed, or would be."""
    removed: bool
    parted: list[str]
    """Ids of runs that stay, and were measured in turns with one of these."""
    compacted: str = ""
    """What came of giving the space back."""
    running: tuple[str, ...] = ()
    """Ids of those that began lately and still miss records: somebody may be measuring them."""

    @property
    def records(self) -> int:
        return sum(run.records for run in self.runs)


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
    """Removes runs with their records; without `yes` it only says which these would be.

    A run goes if it is one of `runs` (where any is named), and older than `before`, and of that `label`; of all that
    would go the newest `keep_last` stay. Every run of a store goes only if `everything` says so, or all are named.
    """
    from opmark.store.runs import summaries

    _check_texts(runs=runs, before=before, label=label)
    names = split_names(runs)
    narrowed = bool(names or before or label or keep_last is not None)
    _check(keep_last, narrowed=narrowed, everything=everything, compact=compact)
    with closing(open_store(db, create=yes and store_exists(db))) as store:
        known = store.runs()
        going = _going(store, known, names, before or "", label or "", keep_last) if narrowed or everything else []
        if going and len(going) == len(known) and not everything and not names:
            raise UserError(
                f"these are all {len(known)} runs of the store; nothing was removed",
                "--all says that all of them are meant",
            )
        found = summaries(store, going)
        if yes and going:
            store.remove([run.id for run in going])
    return Pruned(found, yes and bool(going), _parted(known, going), _compacted(compact and yes, db), _running(found))


def remove(ids: Sequence[str], *, compact: bool = False, db: PathLike | None = None) -> Pruned:
    """Exactly these, by their whole ids; what is gone meanwhile is gone."""
    from opmark.store.runs import summaries

    with closing(open_store(db, create=store_exists(db))) as store:
        wanted = set(ids)
        known = store.runs()
        going = [run for run in known if run.id in wanted]
        found = summaries(store, going)
        store.remove([run.id for run in going])
    return Pruned(found, bool(going), _parted(known, going), _compacted(compact, db), _running(found))


def _compacted(wanted: bool, db: PathLike | None) -> str:
    from opmark.store.sqlite import compact

    return compact(db) if wanted else ""


def _check_texts(**given: str | Sequence[str] | None) -> None:
    """Nothing given is one thing, and an empty text another: a variable of a script that was never set."""
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


def _going(
    store: Store, known: Sequence[Run], names: Sequence[str], before: str, label: str, keep_last: int | None
) -> list[Run]:
    """Newest first, as they are known."""
    named = {find_run(store, name).id for name in names}
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
    lately, now = parse_time(_LATELY), parse_time(datetime.now(timezone.utc).isoformat())
    return tuple(one.id for one in found if one.missing and lately < one.run.started <= now)


def _parted(known: Sequence[Run], going: Sequence[Run]) -> list[str]:
    sessions, ids = {run.session for run in going if run.session}, {run.id for run in going}
    return [run.id for run in known if run.session in sessions and run.id not in ids]
