"""Writes a model as a file that other compilers read. Only a child process imports this."""

from __future__ import annotations

from math import prod
from pathlib import Path

import onnx
from onnx.external_data_helper import convert_model_to_external_data

from opmark.errors import UserError
from opmark.models.facts import ModelExport
from opmark.models.source import ModelSource
from opmark.plugin import Params

_MOST_IN_ONE_FILE = 1 << 30
"""Protocol buffers hold at most 2 GiB."""


def export_model(source: ModelSource, params: Params, to: str, path: str) -> ModelExport:
    if source.framework != "torch":
        raise UserError(
            f"`{source.name}` is no model of torch, and only these are exported", "its file is a graph already"
        )
    if to == "mlir":
        from opmark.models.mlir_export import write_module

        return write_module(source, params, Path(path))
    return _write_onnx(source, params, Path(path))


def _write_onnx(source: ModelSource, params: Params, path: Path) -> ModelExport:
    from opmark.models.export import ExportedModel
    from opmark.schema.record import EXPORT_SECONDS

    model = ExportedModel(source, params).model({
        name: (spec.shape, spec.dtype) for name, spec in source.inputs(params).items()
    })  # fmt: skip
    seconds = next((float(one.value) for one in model.metadata_props if one.key == EXPORT_SECONDS), 0.0)
    held = sum(len(one.raw_data) for one in model.graph.initializer)
    files = [str(path)]
    if held > _MOST_IN_ONE_FILE:
        convert_model_to_external_data(model, location=f"{path.name}.data")
        files.append(f"{path}.data")
    onnx.save(model, path)
    weights = sum(prod(one.dims) for one in model.graph.initializer)
    return ModelExport(tuple(files), seconds, len(model.graph.node), weights)
