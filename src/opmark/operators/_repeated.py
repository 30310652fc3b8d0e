"""Large tensors out of a block of values, for inputs that make their own."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.operators import _numpy as np

# Drawing every value of a large tensor would take long, and several times its memory; the backends repeat likewise.
# A prime, so that rows and blocks never fall together.
BLOCK = 1_048_573


def repeated(shape: tuple[int, ...], dtype: str, draw: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Values of `draw(generator, how many)` in that shape."""

    def make(generator: Any) -> Any:
        block = draw(generator, min(prod(shape), BLOCK))
        return np.resize(block.astype("float64" if dtype == "float64" else "float32"), shape)

    return make
