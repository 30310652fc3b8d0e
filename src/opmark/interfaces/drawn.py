"""The values of an input as NumPy draws them, for frameworks whose tensors are made from arrays."""

from __future__ import annotations

from typing import Any

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
    import numpy as np

    generator, kind = np.random.default_rng(seed), DTYPES[spec.dtype].kind
    wide = spec.dtype in ("float64", "complex128")
    real: Any = "float64" if wide else "float32"
    own = {"float": real, "complex": "complex128" if wide else "complex64"}
    flat = np.empty(spec.elements, own.get(kind, spec.dtype))
    # Drawing every element of a large tensor takes longer than what is measured: it repeats a block. That is drawn
    # where it belongs, so that nothing but the tensor itself takes memory.
    block = flat[:BLOCK]
    if kind in own:
        values = block.view(real)
        generator.random(out=values, dtype=real)
        values *= spec.high - spec.low
        values += spec.low
    else:
        block[...] = generator.integers(int(spec.low), int(spec.high), block.shape, dtype=spec.dtype)
    for start in range(BLOCK, flat.size, BLOCK):
        flat[start : start + BLOCK] = block[: flat.size - start]
    return flat.reshape(spec.shape)
