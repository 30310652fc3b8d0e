"""NumPy on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from opmark.plugin import CallCost, HostBackend, Launch
from opmark.schema import Cost


class NumpyBackend(HostBackend):
    index_dtypes = ("int64",)

    def environment(self) -> dict[str, Any]:
        try:
            scipy = version("scipy")
        except PackageNotFoundError:  # only some references need it
            scipy = None
        blas = "unknown"
        if np.lib.NumpyVersion(np.__version__) >= "1.26.0":  # older versions only print it
            built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
            blas = f"{built.get('name')} {built.get('version')}"
        return {**super().environment(), "numpy": np.__version__, "scipy": scipy, "blas": blas}

    def upload(self, array: Any, dtype: str) -> Any:
        return array

    def download(self, tensor: Any) -> Any:
        return np.asarray(tensor)

    def deferred(self, value: Any) -> str | None:
        plain = type(value) is np.ndarray or isinstance(value, np.generic)
        return None if plain else f"a {type(value).__name__}, which may be computed only when it is looked at"

    def poison(self, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.flags.writeable:
            super().poison(value)

    def copy_into(self, target: Any, source: Any) -> None:
        target[...] = source

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        return [launch, *map(rebuild, others)]

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """Count bytes only: NumPy has no counter of operations."""
        given = _arrays(launch())
        shared = [array for array in reads if any(np.may_share_memory(out, array) for out in given)]
        written = sum(out.nbytes for out in given if not any(np.may_share_memory(out, array) for array in shared))
        written += sum({id(array): array.nbytes for array in shared if _writes(launch, array)}.values())
        if not written:
            return CallCost(None, view=any(array.size for array in given))
        return CallCost(Cost(None, sum({id(array): array.nbytes for array in reads}.values()), written))


def _writes(launch: Launch, array: Any) -> bool:
    """Whether a call writes to this array itself: such a call fails where that is not allowed."""
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        return False
    array.flags.writeable = False
    try:
        launch()
    except ValueError:
        return True
    finally:
        array.flags.writeable = True
    return False


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [array for item in value for array in _arrays(item)]
    return [value] if isinstance(value, np.ndarray | np.generic) else []
