"""Look at models of stored runs: `opmark model`."""

from __future__ import annotations

from dataclasses import replace

from opmark.analysis.layer_differences import LayerDifference, find_layer_differences
from opmark.analysis.rows import rows_of_records
from opmark.analysis.usability import UsabilityRow, usability
from opmark.api.requests import RunRequest, keywords_of, typed
from opmark.api.run import run_request
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


@keywords_of(RunRequest)
def diff(request: RunRequest) -> list[LayerDifference]:
    """Run models with the outputs of all their layers and return the first layer that differs, for each backend."""
    return diff_request(request)


def diff_request(request: RunRequest) -> list[LayerDifference]:
    if not request.ops:
        raise UserError("no model is named", "as in `opmark model diff model:bert-base --backend openvino-cpu`")
    params = {**(request.params or {}), "outputs": "layers"}
    return find_layer_differences(run_request(replace(request, params=params, compile_only=True, processes=1)).records)
