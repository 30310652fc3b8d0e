"""Look at models of stored runs, and write models as files: `opmark model`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opmark.analysis.layer_differences import LayerDifference, find_layer_differences
from opmark.analysis.rows import rows_of_records
from opmark.analysis.usability import UsabilityRow, usability
from opmark.api.extract import model_case
from opmark.api.keywords import keywords_of, typed
from opmark.api.program_requests import ModelExportRequest
from opmark.api.requests import RunRequest
from opmark.api.run import run_request
from opmark.api.show import show
from opmark.errors import TaskError, UnknownName, UserError
from opmark.files import check_writable
from opmark.models.facts import ModelExport, ask_child
from opmark.models.family import source_of
from opmark.plugin.registry import MODEL
from opmark.plugin.registry import operator as find_operator
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.options import PathLike

_FORMS = {"mlir": (".mlir", ".mlirbc"), "onnx": (".onnx",)}
"""Ends of the names of files, by the form that a model is written in."""
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


@keywords_of(ModelExportRequest)
def export(request: ModelExportRequest) -> ModelExport:
    """Write a model as a file that other compilers read, and return what was written."""
    return export_request(request)


def export_request(request: ModelExportRequest) -> ModelExport:
    known = {suffix: form for form, suffixes in _FORMS.items() for suffix in suffixes}
    if request.to not in _FORMS:
        raise UnknownName("form of a model", request.to, _FORMS)
    suffix = Path(request.output).suffix
    if known.get(suffix) != request.to:
        raise UserError(
            f"--output: a model in {request.to} is a file that ends in {' or '.join(_FORMS[request.to])}, got "
            f"`{request.output}`", f"as in -o model{_FORMS[request.to][0]}",
        )  # fmt: skip
    path = Path(request.output).absolute()
    if not path.parent.is_dir():
        raise UserError(f"--output: there is no folder `{path.parent}`", "create it first")
    check_writable(path)
    case = model_case(request.model, request.params, request.size)
    source = source_of(case.op.removeprefix(MODEL_PREFIX))
    assert source is not None
    try:
        found: ModelExport = ask_child("export", source, case.params, ModelExport, to=request.to, path=str(path))
    except TaskError as error:
        raise UserError(error.message, error.hint) from None
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
