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
from opmark.plugin.registry import MODEL
from opmark.plugin.registry import operator as find_operator
from opmark.schema.options import PathLike

_AS_IN = "as in `opmark model diff model:bert-base --backend openvino-cpu`"


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
        raise UserError("no model is named", _AS_IN)
    for name in [request.ops] if isinstance(request.ops, str) else request.ops:
        operator = find_operator(name)
        if operator.category != MODEL:
            raise UserError(f"`{name}` is no model", _AS_IN)
        if "outputs" not in operator.by_name:
            raise UserError(
                f"the layers of `{name}` cannot be told apart", "a model in torch has layers; an ONNX file has none"
            )
    params = {**(request.params or {}), "outputs": "layers"}
    return find_layer_differences(run_request(replace(request, params=params, compile_only=True, processes=1)).records)
