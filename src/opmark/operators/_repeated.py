"""Fill large tensors by repeating a block of values, for inputs that make their own values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from opmark.operators import _numpy as np

# Drawing every value of a large tensor would take long, and several times its memory; the backends repeat blocks too.
# The length is prime, so that rows and blocks never align.
BLOCK = 1_048_573


def fill_by_block(shape: Sequence[int], draw: Callable[[int], Any]) -> Any:
    """Return an array of that shape filled with the values of `draw(count)`."""
    return np.resize(draw(min(prod(shape), BLOCK)), tuple(shape))


def repeat_block(shape: tuple[int, ...], dtype: str, draw: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Return a `make` for TensorSpec that fills that shape with the values of `draw(generator, count)`."""
    wide = "float64" if dtype == "float64" else "float32"

    def make(generator: Any) -> Any:
        return fill_by_block(shape, lambda n: draw(generator, n).astype(wide))

    return make
