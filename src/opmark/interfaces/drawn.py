"""The values of an input as NumPy draws them, for frameworks whose tensors are made from arrays."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from opmark.interfaces.backend import BLOCK, made
from opmark.schema import TensorSpec
from opmark.schema.dtype import DTYPES


def drawn(spec: TensorSpec, seed: int) -> Any:
    """A C-contiguous array that nobody else holds: the same values for the same seed, whoever asks.

    Its element type is the spec's where NumPy has that, and float32 for floats that NumPy lacks or draws only by
    rounding (float16, bfloat16, 8 bits): the caller casts. A spec that makes its own values gives them as they are
    made, so that also there the caller casts.
    """
    if spec.make:
        return made(spec, seed)
    if spec.elements > BLOCK:
        return _repeated(spec, seed)
    import numpy as np

    generator, kind = np.random.default_rng(seed), DTYPES[spec.dtype].kind
    if kind in ("int", "bool"):
        return np.asarray(generator.integers(int(spec.low), int(spec.high), spec.shape, dtype=spec.dtype))
    wide = spec.dtype in ("float64", "complex128")
    pairs = (*spec.shape, 2) if kind == "complex" else spec.shape
    values: Any = np.asarray(generator.random(pairs, dtype="float64" if wide else "float32"))
    values *= spec.high - spec.low  # in place: no second copy of a large input
    values += spec.low
    return values.view("complex128" if wide else "complex64")[..., 0] if kind == "complex" else values


def _repeated(spec: TensorSpec, seed: int) -> Any:
    """Drawing every element of a large tensor takes longer than what is measured: it repeats a block."""
    import numpy as np

    block = drawn(replace(spec, shape=(BLOCK,)), seed)
    flat = np.empty(spec.elements, block.dtype)
    for start in range(0, spec.elements, BLOCK):
        flat[start : start + BLOCK] = block[: spec.elements - start]
    return flat.reshape(spec.shape)
