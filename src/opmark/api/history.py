"""Find changes of level in series of stored runs: `opmark history`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone

from opmark.analysis.history import HistoryQuery, histories
from opmark.api.keywords import keywords_of
from opmark.api.requests import HistoryRequest
from opmark.api.result import open_store
from opmark.errors import UserError
from opmark.schema.history import Histories, History
from opmark.schema.options import split_names

_AGO = re.compile(r"(\d{1,5})\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


@keywords_of(HistoryRequest)
def history(request: HistoryRequest) -> list[History]:
    """Return the series that are named by operator, parameters or case; else all that changed, the newest change first.

    `everything` adds those that did not change. `opmark.report.formats.dataframe.to_pandas` makes a table of it, one
    row per run.
    """
    return history_request(request)[0].series


def history_request(
    request: HistoryRequest, begin: Callable[[int], None] = lambda cases: None
) -> tuple[Histories, bool]:
    """Return the series, and whether the request names them. `begin` is called with the number of cases."""
    query = HistoryQuery(
        split_names(request.ops), request.params or {}, request.case, split_names(request.backend),
        split_names(request.phase), request.quantity, request.label, parse_time(request.since), request.last,
        request.sessions,
    )  # fmt: skip
    with closing(open_store(request.db)) as store:
        found = histories(store, query, everything=request.everything, margin=request.margin, begin=begin)
    return found, query.named


def parse_time(text: str, now: datetime | None = None, name: str = "since") -> str:
    """Convert a date, a time or an age (`30d`) to the form in which runs store their start: ISO 8601 in UTC."""
    if not text:
        return ""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        then = (now or datetime.now(timezone.utc)) - timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
        return then.isoformat(timespec="milliseconds")
    try:
        then = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        utc = then.astimezone(timezone.utc) if then.tzinfo else then.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        raise UserError(
            f"{name}: expected a date or how long ago, got `{text}`", "as in 2030-12-31, 2030-12-31T18:00 or 30d"
        ) from None
    return utc.isoformat(timespec="milliseconds")
