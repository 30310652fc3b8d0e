"""The values of an input as NumPy draws them, for frameworks whose tensors are made from arrays."""

from __future__ import annotations

from typing import Any

from opmark.schema import TensorSpec
from opmark.schema.dtype import DTYPES

BLOCK = 4_194_301
"""Random elements that a large tensor on the host repeats: drawing each would take longer than what is measured.

A prime, so that rows and blocks never fall together."""
_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float")


def make_values(spec: TensorSpec, seed: int) -> Any:
    """The NumPy array of a spec that makes its own values: the same on every backend."""
    import numpy as np

    assert spec.make is not None
    array = np.ascontiguousarray(spec.make(np.random.default_rng(seed)))
    if array.shape != spec.shape:
        raise ValueError(f"an input was made with shape {array.shape}, its operator says {spec.shape}")
    return array


def drawn(spec: TensorSpec, seed: int) -> Any:
    """A C-contiguous array that nobody else holds: the same values for the same seed, whoever asks.

    Its element type is the spec's where NumPy has that, and float32 for floats that NumPy lacks or draws only by
    rounding (float16, bfloat16, 8 bits): the caller casts. A spec that makes its own values gives them as they are
    made, so that also there the caller casts.
    """
    if spec.make:
        return make_values(spec, seed)
    import numpy as np

    generator, kind = np.random.default_rng(seed), DTYPES[spec.dtype].kind
    wide = spec.dtype in ("float64", "complex128")
    real: Any = "float64" if wide else "float32"
    own = {"float": real, "complex": "complex128" if wide else "complex64"}
    flat = np.empty(spec.elements, own.get(kind, spec.dtype))
    # The block is drawn where it belongs, so that nothing but the tensor itself takes memory.
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


def cast(array: Any, dtype: str) -> Any:
    """The array in this element type where NumPy has it; a float that NumPy lacks stays as it is."""
    import numpy as np

    try:
        return array.astype(np.dtype(dtype), order="C", copy=False)
    except TypeError:  # bfloat16 and 8-bit floats, unless a package has added them
        return array


def widen(array: Any) -> Any:
    """A copy that the reference can be compared with: float64 for floating-point types."""
    import numpy as np

    array = np.asarray(array)
    floating = array.dtype.kind == "f" or str(array.dtype) in _FLOATS
    return np.array(array, np.float64 if floating else None)


def poison_values(array: Any) -> Any:
    """An array of the same shape and type, filled with what no operator would leave there."""
    import numpy as np

    if array.dtype == bool:
        return np.full_like(array, 1)
    return np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else np.nan)
