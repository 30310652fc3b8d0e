"""The judge's end of memory on the host, without any framework: a file without a name that two processes map."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opmark.errors import Unsupported
from opmark.plugin import Arena, ArrayPlace, draw_values
from opmark.plugin.backend import widen
from opmark.schema import TensorSpec
from opmark.worker.verify.slices import take


class HostArena(Arena):
    def __init__(self, nbytes: int) -> None:
        self._descriptor = os.memfd_create("arena", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, nbytes)
        self._memory = mmap.mmap(self._descriptor, nbytes)
        self.descriptors = (self._descriptor,)
        self.handle = {"descriptor": self._descriptor, "nbytes": nbytes}

    def draw(self, place: ArrayPlace, spec: TensorSpec, seed: int) -> Any:
        drawn = draw_values(spec, seed, block=max(1, spec.elements))
        stored = _store_as(drawn, spec.dtype)
        np.copyto(self._array(place), stored)
        return stored, spec.dtype

    def poison(self, place: ArrayPlace) -> None:
        np.frombuffer(self._memory, np.uint8, place.nbytes, place.offset).fill(0xFF)

    def settle(self, places: Sequence[ArrayPlace]) -> None:
        """Nothing can change: the only process that maps this memory has been stopped, and has no children."""

    def read(self, place: ArrayPlace, positions: Mapping[int, Any]) -> Any:
        return _load_from(take(self._array(place), positions), place.dtype)

    def widen(self, copy: Any, positions: Mapping[int, Any]) -> Any:
        stored, dtype = copy
        return _load_from(take(stored, positions), dtype)

    def holds(self, place: ArrayPlace, copy: Any) -> bool:
        return bool(self._array(place).tobytes() == copy[0].tobytes())

    def close(self) -> None:
        os.close(self._descriptor)

    def _array(self, place: ArrayPlace) -> Any:
        kind = _storage_type(place.dtype)
        count = place.nbytes // kind.itemsize
        return np.frombuffer(self._memory, kind, count, place.offset).reshape(place.shape)


def _storage_type(dtype: str) -> Any:
    """Return NumPy's type for the bits of an element type; truth values are bytes, so that any byte can be read."""
    if dtype in ("bool", "bfloat16"):
        return np.dtype(np.uint8 if dtype == "bool" else np.uint16)
    if not hasattr(np, dtype):  # other packages may have taught `np.dtype` more names, in this process only
        raise Unsupported(f"{dtype} cannot be judged on a CPU: NumPy has no such type")
    return np.dtype(dtype)


def _store_as(array: Any, dtype: str) -> Any:
    if dtype != "bfloat16":
        return np.ascontiguousarray(array, _storage_type(dtype))
    # Round to nearest, ties to even, in the upper half of a float32.
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _load_from(stored: Any, dtype: str) -> Any:
    if dtype == "bool":
        return stored if (stored > 1).any() else stored.astype(bool)
    return widen((stored.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else stored)
