"""The common part of backends that compile ONNX models: ONNX Runtime, OpenVINO, TVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opmark.errors import Unsupported
from opmark.plugin import HostBackend


class EngineBackend(HostBackend):
    def model(self, built: Any, inputs: Mapping[str, Any]) -> Any:
        """The ONNX model that an implementation has built, over tensors like these."""
        if not hasattr(built, "model"):
            raise Unsupported(f"{self.info.name} takes models, not {type(built).__name__}")
        return built.model({name: (tuple(value.shape), self.dtype(value)) for name, value in inputs.items()})


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
