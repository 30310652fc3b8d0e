from __future__ import annotations

from opmark.analysis.fits import Fitted, fits
from opmark.api.result import Result
from opmark.api.show import show
from opmark.schema.options import PathLike


def fit(run: str | Result | None = None, *, db: PathLike | None = None) -> list[Fitted]:
    """Latency and bandwidth of what communicates, over its sizes: one of each series of a run that differs only in
    size."""
    return fits((run if isinstance(run, Result) else show(run, db=db)).records)
