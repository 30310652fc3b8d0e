"""Latency and bandwidth of communication over its sizes: `opmark fit`."""

from __future__ import annotations

from opmark.analysis.fits import Fitted, fit_view, fits
from opmark.api.keywords import typed
from opmark.api.result import Result
from opmark.api.show import show
from opmark.schema.options import PathLike

__all__ = ["Fitted", "fit", "fit_view"]


@typed
def fit(run: str | Result | None = None, *, db: PathLike | None = None) -> list[Fitted]:
    """Fit latency and bandwidth to the communication operators of a run: one fit per series of cases that differ only
    in size."""
    return fits((run if isinstance(run, Result) else show(run, db=db)).records)
