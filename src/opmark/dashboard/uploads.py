"""Runs from other machines: `opmark push` sends one, `receive` checks and stores it, or says why not."""

from __future__ import annotations

import logging
from contextlib import closing

from opmark.dashboard.arriving import arrived
from opmark.dashboard.limits import LIMITS, Limits
from opmark.dashboard.problems import Refused
from opmark.errors import StoreError
from opmark.schema.options import PathLike
from opmark.schema.pushed import Received
from opmark.store.database import Lost
from opmark.store.open import open_sql
from opmark.store.receiving import Taken, take_in

log = logging.getLogger("opmark.dashboard")

_TAKEN, _BROKEN, _BUSY = 409, 500, 503
"""Statuses of HTTP."""


def receive(db: PathLike | None, body: bytes, limits: Limits = LIMITS) -> Received:
    """The body as it arrived, inflated or not. All of it is stored, or nothing.

    `Refused` with its status: 413 too much, 422 not what it should be, 409 another run or record of that id is there,
    503 the store cannot be written just now, 500 it cannot be written at all.
    """
    found = arrived(body, limits)
    try:
        with closing(open_sql(db, create=True)) as store:
            return take_in(store, found)
    except Taken as taken:
        raise Refused(_TAKEN, taken.message, taken.hint) from None
    except Lost as lost:
        log.warning("an upload of run %s has to wait: %s", found.run.id, lost.message)
        raise Refused(
            _BUSY, "the store of this dashboard cannot be written just now", "nothing was stored; push it again later"
        ) from None
    except StoreError as error:
        log.error("an upload of run %s cannot be stored: %s", found.run.id, error.message)
        raise Refused(
            _BROKEN, "the store of this dashboard cannot be written", "nothing was stored; the server's log says why"
        ) from None
