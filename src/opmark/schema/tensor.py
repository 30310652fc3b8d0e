"""TensorSpec: the shape and element type of an input tensor, and the values that it may hold."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal

from msgspec import Struct

from opmark.schema.dtype import sizeof


class TensorSpec(Struct, frozen=True):
    """A tensor, filled with seeded uniform values between `low` and `high` unless `make` is given."""

    shape: tuple[int, ...]
    dtype: str
    low: float = -1.0
    """Smallest value."""
    high: float = 1.0
    """Values stay below this one; a float may be rounded up to it."""
    make: Callable[[Any], Any] | None = None
    """make(generator) -> array, for values that are not independent and uniform: sorted offsets, a positive definite
    matrix, indices that favour a few rows. `generator` is NumPy's; values still lie in [low, high]."""
    place: Literal["device", "host", "pinned"] = "device"
    """Where the tensor lies; `pinned` is page-locked host memory, which a device can read by itself."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * sizeof(self.dtype)
