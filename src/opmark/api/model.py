"""Look at models of stored runs: `opmark model`."""

from __future__ import annotations

from opmark.analysis.rows import rows_of_records
from opmark.analysis.usability import UsabilityRow, usability
from opmark.api.requests import typed
from opmark.api.show import show
from opmark.errors import UserError
from opmark.schema.options import PathLike


@typed
def matrix(run: str | None = None, *, db: PathLike | None = None) -> list[UsabilityRow]:
    """Return for each model and backend of a run which stage it reached: exported, compiled, ran, right."""
    result = show(run, db=db)
    found = usability(rows_of_records(result.records, result.run.id), result.environments)
    if not found:
        raise UserError(
            f"run {result.run.id} has no models", "`opmark run model:bert-base --backend all` makes one that has"
        )
    return found
