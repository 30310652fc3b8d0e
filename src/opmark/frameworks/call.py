"""A call of a framework's own function: what is timed, and what is known of it besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any


class Call(partial[Any]):
    """A launch as fast as a `partial`, with the tensors that it works on."""

    reads: Sequence[Any] = ()
    """Tensors that it takes, arguments and weights."""
    leaves: Sequence[Any] = ()
    """Those of them whose gradients a backward pass computes, where no one says which."""

    described: str = ""
    """Its arguments as text, where its parameters do not say them."""
    outputs: Callable[[Any], Any] = staticmethod(lambda found: found)
    """What of the result has a gradient that makes sense."""

    def flat(self) -> tuple[Any, ...]:
        """The same, with every tensor that comes out, however deep it is nested."""
        return tuple(nested(self.outputs(self())))


def nested(value: Any) -> Iterator[Any]:
    """The tensors in lists, tuples and dictionaries; numbers, texts and None are left out."""
    if isinstance(value, dict):
        for item in value.values():
            yield from nested(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from nested(item)
    elif hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):  # as numpy.float32 is
        yield value
