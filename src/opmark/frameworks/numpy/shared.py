"""NumPy's arrays in memory that is shared with the judge."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from opmark.plugin import ArrayPlace, SharedTensors


class SharedArrays(SharedTensors):
    def __init__(self, handle: Mapping[str, Any], threads: int) -> None:
        self._memory = mmap.mmap(handle["descriptor"], handle["nbytes"])

    def view(self, place: ArrayPlace) -> Any:
        kind = self._dtype(place.dtype)
        return np.frombuffer(self._memory, kind, place.nbytes // kind.itemsize, place.offset).reshape(place.shape)

    def blank(self, place: ArrayPlace) -> Any:
        return np.zeros(place.shape, self._dtype(place.dtype))

    def describe(self, output: Any) -> tuple[tuple[int, ...], str]:
        array = np.asarray(output)
        return array.shape, str(array.dtype)

    def copy(self, output: Any, view: Any) -> None:
        np.copyto(view, output)

    def _dtype(self, name: str) -> Any:
        return np.dtype(name)
