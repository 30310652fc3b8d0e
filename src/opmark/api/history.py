"""Where the level of a series changed, over many stored runs: `opmark history`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any

from opmark.analysis.history import MARGIN, Asked
from opmark.analysis.history import histories as histories_of
from opmark.api.common import PathLike, open_store
from opmark.errors import UserError
from opmark.runner.wanted import many
from opmark.schema.history import Histories, History


def history(
    ops: str | Sequence[str] = (),
    *,
    params: Mapping[str, Any] | None = None,
    case: str = "",
    backend: str | Sequence[str] = (),
    phase: str | Sequence[str] = (),
    quantity: str = "",
    label: str = "",
    since: str = "",
    last: int | None = None,
    sessions: bool = False,
    everything: bool = False,
    margin: float = MARGIN,
    db: PathLike | None = None,
) -> list[History]:
    """The series that are named, by operator, parameters or case; else all that changed, the newest change first.

    `everything`: also those that did not change. `opmark.to_pandas` makes a table of it, a row a run.
    """
    asked = _asked(ops, params, case, backend, phase, quantity, label, since, last, sessions=sessions)
    return _histories(asked, everything=everything, margin=margin, db=db).series
