"""The common part of backends that compile ONNX models: ONNX Runtime, OpenVINO, TVM."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import Unsupported
from opmark.frameworks.cache_folder import fresh
from opmark.plugin import HostBackend

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


def node_types(model: Any) -> tuple[str, ...]:
    """The types of the nodes of an ONNX model, in their order."""
    return tuple(node.op_type for node in model.graph.node)
