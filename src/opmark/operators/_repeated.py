"""Large tensors out of a block of values, for inputs that make their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from opmark.operators import _numpy as np

# Drawing every value of a large tensor would take long, and several times its memory; the backends repeat likewise.
# A prime, so that rows and blocks never fall together.
BLOCK = 1_048_573


def filled(shape: Sequence[int], draw: Callable[[int], Any]) -> Any:
    """Values of `draw(how many)` in that shape."""
    return np.resize(draw(min(prod(shape), BLOCK)), tuple(shape))


def repeated(shape: tuple[int, ...], dtype: str, draw: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """A `make` of a TensorSpec: values of `draw(generator, how many)` in that shape."""
    wide = "float64" if dtype == "float64" else "float32"

    def make(generator: Any) -> Any:
        return filled(shape, lambda n: draw(generator, n).astype(wide))

    return make
