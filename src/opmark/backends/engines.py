"""What backends have in common that compile a model and whose tensors NumPy can look into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import psutil
from msgspec.structs import replace

from opmark.backends.numpy_cpu import NumpyBackend
from opmark.errors import Unsupported
from opmark.interfaces import BackendInfo, HostBackend
from opmark.schema import Launch, TensorSpec
from opmark.schema.dtype import FLOATS, INTS, is_float

_NUMPY = frozenset({*FLOATS, *INTS, "bool"} - {"bfloat16"})


class EngineBackend(HostBackend):
    """Of an engine this is left to say: how a tensor is made, and how it is seen as an array."""

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._draws = NumpyBackend(info, threads)

    def array(self, value: Any) -> Any:
        """As a NumPy array: of the tensor's own memory, unless a backend has its own way to write to it."""
        raise NotImplementedError

    def drawn(self, spec: TensorSpec, seed: int) -> Any:
        """The values of a tensor, as an array of its type: the same for every engine."""
        kind = numpy_dtype(spec.dtype)
        rounded = "float32" if spec.dtype not in _NUMPY else spec.dtype
        return self._draws.tensor(replace(spec, dtype=rounded), seed).astype(kind, copy=False)

    def dtype(self, value: Any) -> str:
        return str(self.array(value).dtype)

    def to_numpy(self, value: Any) -> Any:
        """A copy: the next call writes to the same memory."""
        return np.array(self.array(value), np.float64 if is_float(self.dtype(value)) else None)

    def thin(self, value: Any, most: int) -> Any:
        flat = self.array(value).reshape(-1)
        return flat[:: max(1, ceil(flat.size / most))]

    def poison(self, value: Any) -> None:
        array = self.array(value)
        array.fill(
            np.nan if is_float(str(array.dtype)) else 1 if array.dtype.kind == "b" else np.iinfo(array.dtype).max
        )

    def copy_into(self, target: Any, source: Any) -> None:
        self.array(target)[...] = self.array(source)

    def overwrite(self, nbytes: int) -> Launch:
        return self._draws.overwrite(nbytes)

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
        return built.model({name: (self.array(value).shape, self.dtype(value)) for name, value in inputs.items()})


def numpy_dtype(dtype: str) -> Any:
    """NumPy knows no bfloat16 and no 8-bit floats; ml_dtypes, which ONNX and TVM bring, adds them."""
    if dtype in _NUMPY:
        return np.dtype(dtype)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype))


def node_types(model: Any) -> tuple[str, ...]:
    """What an ONNX model consists of."""
    return tuple(node.op_type for node in model.graph.node)
