"""List, label and describe the runs of a store: `opmark runs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import Literal

from opmark.api.keywords import typed
from opmark.api.requests import talk
from opmark.api.result import open_store
from opmark.errors import InvalidParameter
from opmark.schema import Run
from opmark.schema.options import PathLike
from opmark.schema.run import RunSummary
from opmark.store.location import store_exists
from opmark.store.protocol import Store
from opmark.store.runs import find_run, names_one_of_several


@typed
def runs(
    *,
    last: int | None = None,
    label: str = "",
    op: str = "",
    upgrade: bool = False,
    db: PathLike | None = None,
) -> list[RunSummary]:
    """Return the runs of a store, newest first, with the number of their records and what these measured.

    `label` and `op` may contain `*` and `?`. `upgrade` converts a store of an older version.
    """
    return list_runs(last=last, label=label, op=op, upgrade=upgrade, db=db)[0]


def list_runs(
    *, last: int | None, label: str = "", op: str = "", upgrade: bool = False, db: PathLike | None = None
) -> tuple[list[RunSummary], int]:
    """Return the last runs, and the number of older ones that were left out."""
    from opmark.store.runs import having, summaries

    if last is not None and last < 1:
        raise InvalidParameter(f"last: expected at least 1, got {last}")
    with closing(open_store(db, create=upgrade and store_exists(db))) as store:
        found = [run for run in store.runs() if not label or fnmatchcase(run.label, label)]
        if op:
            measured = having(store, op)
            found = [run for run in found if run.id in measured]
        return summaries(store, found[:last]), len(found) - len(found[:last])


@typed
def label(run: str, text: str, *, say: Callable[[str], None] = talk, db: PathLike | None = None) -> Run:
    """Set the label of a run; an empty text removes it."""
    with closing(open_store(db, create=store_exists(db))) as store:
        this, text = find_run(store, run, to_change=True), text.strip()
        others = _check_label(store.runs(), this, text)
        noted = _note(store, this, "label", text)
    if others:
        listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        say(f"`{text}` is the label of {listed} too: it names the newest of them, `{text}~1` the one before")
    return noted


@typed
def describe_run(run: str, text: str, *, db: PathLike | None = None) -> Run:
    """Set the description of a run; an empty text removes it."""
    with closing(open_store(db, create=store_exists(db))) as store:
        return _note(store, find_run(store, run, to_change=True), "description", text.strip())


def _note(store: Store, run: Run, kind: Literal["label", "description"], text: str) -> Run:
    if not text.isprintable():
        raise InvalidParameter(f"{kind}: expected printable text on one line, got {text!a}")
    if getattr(run, kind) != text:
        store.note(run.id, kind, text)
    return find_run(store, run.id)


def _check_label(known: Sequence[Run], this: Run, text: str) -> list[str]:
    """Return the ids of other runs with this label. Refuses a label that names something else, such as the id of a
    run."""
    if names_one_of_several(text):
        raise InvalidParameter(
            f"label: `{text}` would be one of several runs", "choose one without ~NUMBER or @{...} that is no date"
        )
    if any(run.id == text for run in known):
        raise InvalidParameter(f"label: `{text}` is the id of a run", "choose another")
    return [run.id for run in known if text and run.label == text and run.id != this.id]
