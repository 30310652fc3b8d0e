"""Where the level of a series changed, over many stored runs: `opmark history`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any

from opmark.analysis.history import Asked, histories
from opmark.api.common import open_store
from opmark.errors import UserError
from opmark.schema.history import Histories, History
from opmark.schema.options import PathLike, split_names
from opmark.stats.change_point import MARGIN

_AGO = re.compile(r"(\d{1,5})\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


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
    asked = Asked(
        split_names(ops),
        params or {},
        case,
        split_names(backend),
        split_names(phase),
        quantity,
        label,
        moment(since),
        last,
        sessions,
    )
    return follow(asked, everything=everything, margin=margin, db=db).series


def follow(
    asked: Asked,
    *,
    everything: bool = False,
    margin: float = MARGIN,
    db: PathLike | None = None,
    begin: Callable[[int], None] = lambda cases: None,
) -> Histories:
    """The same, with how many were looked at. `begin` is told how many cases there are."""
    if not 0 <= margin < 1:
        raise UserError(f"margin: expected a share from 0 to 1, got {margin:g}", "0.02 is 2 %")
    with closing(open_store(db)) as store:
        return histories(store, asked, everything=everything, margin=margin, begin=begin)


def moment(text: str, now: datetime | None = None, name: str = "since") -> str:
    """A date, a time or how long ago, as runs tell when they were started: UTC, ISO 8601."""
    if not text:
        return ""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        then = (now or datetime.now(timezone.utc)) - timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
        return then.isoformat(timespec="milliseconds")
    try:
        then = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UserError(
            f"{name}: expected a date or how long ago, got `{text}`", "as in 2030-12-31, 2030-12-31T18:00 or 30d"
        ) from None
    utc = then.astimezone(timezone.utc) if then.tzinfo else then.replace(tzinfo=timezone.utc)
    return utc.isoformat(timespec="milliseconds")
