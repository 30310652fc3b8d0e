"""Evaluate the accuracy of models on labelled data: `opmark evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from opmark.analysis.evaluation import AccuracyRow, accuracy_rows
from opmark.api.keywords import keywords_of
from opmark.api.program_requests import EvaluateRequest
from opmark.api.requests import RunRequest
from opmark.api.result import Result
from opmark.api.run import run_request
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.models.family import source_of
from opmark.models.zoo_source import ZooSource
from opmark.plugin.registry import dataset_names
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.evaluation import DataChoice
from opmark.schema.options import split_names

_AS_IN = "as in --data imagenet:/data/imagenet/val; `opmark list datasets` lists all of them"


@keywords_of(EvaluateRequest)
def evaluate(request: EvaluateRequest) -> list[AccuracyRow]:
    """Return the accuracy of models on labelled data, one row per backend and element type, each compared with the
    reference on the same samples."""
    return evaluate_request(request)[0]


def evaluate_request(request: EvaluateRequest) -> tuple[list[AccuracyRow], Result]:
    data = choose_data(request.data, request.data_percent, request.data_option)
    backends = split_names(request.backend)
    if request.reference:  # first, so that a reader of the stored run knows it too
        backends = [request.reference, *(name for name in backends if name != request.reference)]
    shared = ("ops", "params", "size", "python", "threads", "seed", "verify", "timeout", "compile_timeout", "label",
              "db", "resume", "on_start", "on_record", "say")  # fmt: skip
    result = run_request(
        RunRequest(
            **{name: getattr(request, name) for name in shared},
            backend=backends,
            effort="quick",
            processes=1,
            data_choice=data,
        )
    )
    rows = accuracy_rows(result.records, _reference_name(request.reference, result), request.margin)
    return [replace(row, notes=(*row.notes, *warn_of_random_weights(row))) for row in rows], result


def warn_of_random_weights(row: AccuracyRow) -> list[str]:
    source = source_of(row.op.removeprefix(MODEL_PREFIX)) if row.op.startswith(MODEL_PREFIX) else None
    if not isinstance(source, ZooSource) or row.params.get("weights") or source.model.weights or source.model.file:
        return []
    return [f"{row.op} has random weights, so that its figures are those of chance: -p weights=FILE loads trained ones"]


def _reference_name(reference: str, result: Result) -> str:
    """Return the reference as records name it: `NAME/VARIANT` may be the plain name, and each interpreter adds its
    own."""
    names = [record.task.backend for record in result.records]
    return reference if reference in names else next(iter(names), "")


def choose_data(data: str, percent: float = 100.0, options: object = ()) -> DataChoice:
    """Return the data that `NAME` or `NAME:PATH` stands for, with options as `KEY=VALUE` or as a mapping."""
    name, colon, path = data.partition(":")
    if not name:
        raise UserError("--data: no data is named", _AS_IN)
    if name not in dataset_names():
        raise UnknownName("data set", name, dataset_names(), "opmark list datasets")
    if colon and not path:
        raise UserError(f"--data {data}: nothing stands behind the colon", _AS_IN)
    if path and not Path(path).expanduser().exists():
        raise UserError(
            f"--data: there is no file or folder {path}",
            "a path is taken from the folder that opmark runs in; opmark downloads no data",
        )
    absolute = str(Path(path).expanduser().absolute()) if path else ""
    return DataChoice(name, absolute, percent, _parse_options(options))


def _parse_options(options: object) -> dict[str, str]:
    if isinstance(options, Mapping):
        return {str(key): str(value) for key, value in options.items()}
    found = {}
    for text in [options] if isinstance(options, str) else options:  # type: ignore[attr-defined]
        key, equals, value = str(text).partition("=")
        if not (key and equals and value):
            raise InvalidParameter(f"--data-option: expected NAME=VALUE, got `{text}`", "as in vocab=vocab.txt")
        found[key.strip()] = value.strip()
    return found
