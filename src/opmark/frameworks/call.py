"""A call of a framework's own function, with the tensors that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any


class Call(partial[Any]):
    """A launch as fast as a `partial`, with the tensors that it works on."""

    reads: Sequence[Any] = ()
    """Tensors that the call reads: arguments and weights."""
    leaves: Sequence[Any] = ()
    """Tensors whose gradients a backward pass computes, unless the case chooses them."""

    described: str = ""
    """The arguments as text, if the parameters of the case do not contain them."""
    outputs: Callable[[Any], Any] = staticmethod(lambda found: found)
    """Selects the part of the result that has a meaningful gradient."""

    def flat(self) -> tuple[Any, ...]:
        """Call the function and return every tensor of its result, however deeply nested."""
        return tuple(find_tensors(self.outputs(self())))


def find_tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in lists, tuples and dictionaries; numbers, texts and None are left out."""
    if isinstance(value, dict):
        for item in value.values():
            yield from find_tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_tensors(item)
    elif (
        hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type)
    ):  # types such as numpy.float32 have both
        yield value
