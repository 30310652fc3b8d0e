"""TensorSpec: what an input tensor looks like and which values it may hold."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal

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
    make: Callable[[Any], Any] | None = None
    """make(generator) -> array, for what independent uniform values cannot be: a sorted list of offsets, a positive
    definite matrix, indices that favour a few rows. `generator` is NumPy's; values still lie in [low, high]."""
    place: Literal["device", "host", "pinned"] = "device"
    """Where it lies; `pinned` is host memory that stays where it is, so that a device can fetch it by itself."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * sizeof(self.dtype)
