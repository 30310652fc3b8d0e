"""What backends have in common that compile a model of ONNX and whose tensors NumPy can look into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import psutil

from opmark.errors import Unsupported
from opmark.interfaces import HostBackend, drawn
from opmark.schema import Launch, TensorSpec
from opmark.schema.dtype import is_float


class EngineBackend(HostBackend):
    """Of an engine this is left to say: how a tensor is made, what its type is, how it is seen as an array."""

    def array(self, value: Any) -> Any:
        """As a NumPy array: the tensor's own memory, unless the engine has another way to write to it."""
        raise NotImplementedError

    def dtype(self, value: Any) -> str:
        raise NotImplementedError

    def to_numpy(self, value: Any) -> Any:
        """A copy: the next call may write to the same memory."""
        array = self.array(value)
        return np.array(array, np.float64 if is_float(str(array.dtype)) else None)

    def thin(self, value: Any, most: int) -> Any:
        flat = self.array(value).reshape(-1)
        return flat[:: max(1, ceil(flat.size / most))]

    def poison(self, value: Any) -> None:
        array = self.array(value)
        array.fill(1 if array.dtype == bool else np.iinfo(array.dtype).max if array.dtype.kind in "iu" else np.nan)

    def copy_into(self, target: Any, source: Any) -> None:
        self.array(target)[...] = self.array(source)

    def overwrite(self, nbytes: int) -> Launch:
        scratch = np.zeros(nbytes, np.uint8)
        return partial(np.add, scratch, 1, out=scratch)  # read, then written: stores alone may go around the caches

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        raise Unsupported(f"{self._info.name} has no automatic differentiation")

    def available_bytes(self) -> int | None:
        return int(psutil.virtual_memory().available)

    def model(self, built: Any, inputs: Mapping[str, Any]) -> Any:
        """The ONNX model that an implementation has built, over tensors like these."""
        if not hasattr(built, "model"):
            raise Unsupported(f"{self._info.name} takes models, not {type(built).__name__}")
        return built.model({name: (tuple(value.shape), self.dtype(value)) for name, value in inputs.items()})


def values(spec: TensorSpec, seed: int) -> Any:
    """Of a tensor, as an array of its type."""
    return drawn(spec, seed).astype(numpy_dtype(spec.dtype), copy=False)


def numpy_dtype(dtype: str) -> Any:
    """NumPy knows no bfloat16 and no 8-bit floats; ml_dtypes, which ONNX and TVM bring, adds them."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def node_types(model: Any) -> tuple[str, ...]:
    """What an ONNX model consists of."""
    return tuple(node.op_type for node in model.graph.node)
