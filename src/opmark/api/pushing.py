"""Stored runs sent to a dashboard. Nothing is taken away here, whatever becomes of it there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from fnmatch import fnmatchcase

from msgspec import Struct

from opmark.api.common import open_store
from opmark.api.delivering import Dashboard, Undelivered
from opmark.api.requests import talk
from opmark.errors import InvalidParameter, StoreError, UserError
from opmark.schema import Run
from opmark.schema.options import PathLike
from opmark.schema.pushed import Received
from opmark.store.find import find_run
from opmark.store.sending import Part, gzipped, parts, payload
from opmark.store.sql import SqlStore
from opmark.units import count_bytes, counted

RECORDS, BYTES = 5_000, 32 << 20
"""Of one upload, before it is packed: far below what a server takes, and soon sent again where a connection broke."""


class Pushed(Struct, frozen=True):
    run: Run
    records: int = 0
    """That were sent and are there."""
    new: int = 0
    """Of these, those that were not there before."""
    problem: str = ""
    """Why the rest could not be delivered."""


def push(
    url: str,
    *runs: str,
    label: str = "",
    everything: bool = False,
    token: str | None = None,
    insecure_http: bool = False,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> list[Pushed]:
    """Sends runs to the dashboard at `url`: the last one; or those named, or of a label (it may have `*` and `?`), or
    all, the oldest first. What is there already is left out there. One result for each run."""
    dashboard = Dashboard(url, token, insecure_http=insecure_http, say=say)
    with closing(open_store(db)) as store:
        if not isinstance(store, SqlStore):
            raise InvalidParameter("push: a store in memory holds no run", "name a file or a server with --db")
        chosen = _chosen(store, runs, label, everything=everything)
        return [_pushed(store, run, dashboard, say) for run in chosen]


def _chosen(store: SqlStore, names: tuple[str, ...], label: str, *, everything: bool) -> list[Run]:
    if bool(names) + bool(label) + everything > 1:
        raise InvalidParameter("push: expected runs, or --label, or --all, got several of these", "say which once")
    if not (label or everything):
        found = [find_run(store, name) for name in names or (None,)]
        return list({run.id: run for run in found}.values())
    chosen = [run for run in reversed(store.runs()) if everything or fnmatchcase(run.label, label)]
    if not chosen:
        what = f"no run has a label like `{label}`" if label else "the store holds no run yet"
        raise UserError(f"push: {what}", "`opmark runs` lists them")
    return chosen


def _pushed(store: SqlStore, run: Run, dashboard: Dashboard, say: Callable[[str], None]) -> Pushed:
    """The parts of a run, one after the other. A run that cannot be delivered does not keep the next from it."""
    name = f"{run.id} ({run.label})" if run.label else run.id
    sent = new = 0
    try:
        for part in parts(store, run.id, RECORDS, BYTES):
            received = _deliver(store, part, dashboard, name, say)
            _check(part, received)
            sent, new = sent + received.records, new + received.new
    except (Undelivered, StoreError) as error:
        say(f"{name}: not delivered: {error}")
        return Pushed(run, sent, new, error.message)
    say(f"{name}: {counted(new, 'new record')}" + (f", {sent - new} there already" if sent > new else ""))
    return Pushed(run, sent, new)


def _deliver(store: SqlStore, part: Part, dashboard: Dashboard, name: str, say: Callable[[str], None]) -> Received:
    body = gzipped(payload(store, part))
    say(f"{name}: sending {counted(part.records, 'record')}, {count_bytes(len(body))}")
    return dashboard.deliver(body)


def _check(part: Part, received: Received) -> None:
    """What it says is believed only where it can be."""
    run, records, new = received.run, received.records, received.new
    if (run, records) != (part.run.id, part.records) or not 0 <= new <= records:
        raise Undelivered(
            f"the dashboard says that it has {counted(records, 'record')} of `{run}`, {new} of them new; "
            f"sent were {part.records} of `{part.run.id}`",
            "is something between here and there that changes answers?",
        )
