"""TensorSpec: what an input tensor looks like and which values it may hold."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from opmark.schema.dtype import sizeof


class TensorSpec(Struct, frozen=True):
    """Filled with seeded uniform values from the operator's domain: never constant, never out of range."""

    shape: tuple[int, ...]
    dtype: str
    low: float = -1.0
    """Smallest value."""
    high: float = 1.0
    """Values stay below this one; a float may be rounded up to it."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * sizeof(self.dtype)
