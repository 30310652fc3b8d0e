"""The common part of backends that compile ONNX models: ONNX Runtime, OpenVINO, TVM."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import Unsupported
from opmark.frameworks.cache_folder import fresh
from opmark.plugin import HostBackend
from opmark.schema.record import EXPORT_SECONDS, GraphCoverage

_MOST_BYTES = (2 << 30) - (1 << 20)
"""protobuf writes no message of 2 GiB; the rest is room for what is not a weight."""
_IN_PLACE = 1024
"""Weights of fewer bytes stay in the model: shapes may depend on them."""


class EngineBackend(HostBackend):
    def model(self, built: Any, inputs: Mapping[str, Any]) -> Any:
        """The ONNX model that an implementation has built, over tensors like these."""
        if not hasattr(built, "model"):
            raise Unsupported(f"{self.info.name} takes models, not {type(built).__name__}")
        return built.model({name: (tuple(value.shape), self.dtype(value)) for name, value in inputs.items()})


@contextmanager
def serialized(model: Any) -> Iterator[bytes | str]:
    """The model as bytes, or the path of a file that has the weights beside it, for a model that is too large for one
    message. The files are removed afterwards, when an engine has read them. The model itself stays as it is."""
    if sum(len(one.raw_data) for one in model.graph.initializer) <= _MOST_BYTES:
        yield model.SerializeToString()
        return
    folder = fresh()
    try:
        yield str(_write_with_weights_beside(model, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_with_weights_beside(model: Any, folder: Path) -> Path:
    from onnx import ModelProto, StringStringEntryProto, TensorProto

    weights = "weights"
    whole = ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    for name in ("opset_import", "metadata_props", "functions"):
        getattr(whole, name).extend(getattr(model, name))
    whole.graph.name = model.graph.name
    for name in ("node", "input", "output", "value_info", "sparse_initializer", "quantization_annotation"):
        getattr(whole.graph, name).extend(getattr(model.graph, name))
    with (folder / weights).open("wb") as file:
        for one in model.graph.initializer:
            if len(one.raw_data) < _IN_PLACE:
                whole.graph.initializer.append(one)
                continue
            place = {"location": weights, "offset": str(file.tell()), "length": str(len(one.raw_data))}
            outside = TensorProto(
                name=one.name, dims=one.dims, data_type=one.data_type, data_location=TensorProto.EXTERNAL
            )
            outside.external_data.extend(StringStringEntryProto(key=key, value=value) for key, value in place.items())
            whole.graph.initializer.append(outside)
            file.write(one.raw_data)
    path = folder / "model.onnx"
    path.write_bytes(whole.SerializeToString())
    return path


def as_type(array: Any, dtype: str) -> Any:
    """A C-contiguous array of this type, also of those that NumPy lacks."""
    return np.ascontiguousarray(array, numpy_dtype(dtype))


def numpy_dtype(dtype: str) -> Any:
    """NumPy knows no bfloat16 and no 8-bit floats; ml_dtypes, which ONNX and TVM bring, adds them."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def export_seconds(model: Any) -> float | None:
    """Return how long exporting an ONNX model took; None for one that was built node by node."""
    return next((float(entry.value) for entry in model.metadata_props if entry.key == EXPORT_SECONDS), None)


def cover(model: Any, strays: Mapping[str, int], names: Collection[str] | None = (), note: str = "") -> GraphCoverage:
    """Return how much of an ONNX model a backend has taken. `strays` has the number of nodes that something else
    computes, by type; `names` are their names in the model, None if unknown."""
    given = len(model.graph.node)
    flops: float | None = 1.0
    if strays:
        each = node_flops(model) if names is not None else {}
        total = sum(each.values())
        flops = 1.0 - sum(each.get(name, 0) for name in names or ()) / total if total else None
    return GraphCoverage(given, max(0, given - sum(strays.values())), flops, dict(strays), note)


def node_flops(model: Any) -> dict[str, int]:
    """Return the operations of products and convolutions by the name of the node; of others there are few. A node whose
    shapes the model does not state is left out."""
    graph = model.graph
    shapes = {one.name: tuple(one.dims) for one in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        shapes[value.name] = tuple(one.dim_value for one in value.type.tensor_type.shape.dim)
    found = {}
    for node in graph.node:
        inputs, output = [shapes.get(name, ()) for name in node.input], shapes.get(node.output[0], ())
        if node.op_type == "Conv" and len(inputs) > 1:
            found[node.name] = 2 * prod(output) * prod(inputs[1][1:])
        elif node.op_type in ("MatMul", "Gemm") and inputs[0]:
            across = any(one.name == "transA" and one.i for one in node.attribute)
            found[node.name] = 2 * prod(output) * inputs[0][-2 if across else -1]
    return found


def node_types(model: Any) -> tuple[str, ...]:
    """The types of the nodes of an ONNX model, in their order."""
    return tuple(node.op_type for node in model.graph.node)
