"""Memory that the judge of a candidate shares with the candidate's process: both ends of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from opmark.schema import TensorSpec


class ArrayPlace(Struct, frozen=True):
    """Where an array lies in the shared memory."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class Arena(ABC):
    """The judge's end. It draws inputs, and keeps a copy of each where the candidate cannot reach it."""

    handle: Mapping[str, Any]
    """What the other process needs to open the memory, as JSON."""
    descriptors: Sequence[int] = ()
    """File descriptors that the other process inherits."""

    @abstractmethod
    def draw(self, place: ArrayPlace, spec: TensorSpec, seed: int) -> Any:
        """Fill a place with new values, every one of them drawn; return a copy of them."""

    @abstractmethod
    def poison(self, place: ArrayPlace) -> None:
        """Overwrite a place: floats become NaN."""

    @abstractmethod
    def settle(self, places: Sequence[ArrayPlace]) -> None:
        """Take the values of these places as they are now. The clock stops after this call, so that whatever is written
        later does not count."""

    @abstractmethod
    def read(self, place: ArrayPlace, positions: Mapping[int, Any]) -> Any:
        """Return the values that were there when `settle` was called, as a NumPy array, float64 for floats: those at
        these positions along axes, and all along other axes."""

    @abstractmethod
    def widen(self, copy: Any, positions: Mapping[int, Any]) -> Any:
        """Return values of a copy that `draw` returned, in the same way."""

    @abstractmethod
    def holds(self, place: ArrayPlace, copy: Any) -> bool:
        """Return whether a place still has the values of a copy that `draw` returned."""

    def still_written(self, places: Sequence[ArrayPlace]) -> bool:
        """Return whether places changed after `settle`, although the process of the candidate has been stopped."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Give the memory back."""


class SharedTensors(ABC):
    """The candidate's end: tensors of a framework in the shared memory."""

    @abstractmethod
    def __init__(self, handle: Mapping[str, Any], threads: int) -> None: ...

    @abstractmethod
    def view(self, place: ArrayPlace) -> Any:
        """Return a tensor over the memory of this place."""

    @abstractmethod
    def describe(self, output: Any) -> tuple[tuple[int, ...], str]:
        """Return shape and element type of an output."""

    def bind(self, build: Callable[..., Any], views: Mapping[str, Any]) -> Callable[[], Any]:
        """Return a function without arguments that computes the outputs from what the views hold when it is called.
        `build` is that of an implementation, with its parameters."""
        launch: Callable[[], Any] = build(**views)
        return launch

    @abstractmethod
    def blank(self, place: ArrayPlace) -> Any:
        """Return a tensor of this shape and type in memory of its own."""

    @abstractmethod
    def copy(self, output: Any, view: Any) -> None:
        """Copy an output into the memory of a place."""

    def synchronize(self) -> None:
        """Wait until everything is written."""
        return None

    def record(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """Return a function that has the device do the same work again without the host's part of it, or None if
        that cannot be had. The work is not done while it is recorded; it has been done before."""
        return None
