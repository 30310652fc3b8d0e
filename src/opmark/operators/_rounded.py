"""Values rounded to 8 bits: how rows of them are made, and how they are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params

LARGEST = 127
# Values between -1 and 1 nearly fill 8 bits with steps of these sizes, and none is cut off: none is above MOST.
STEPS = (1 / 120, 1 / 100)
MOST = 120
# Of a step: what rounding before the last one, in float32, may move a value.
_SLACK = 0.01


def either_side(reference: Callable[..., Any], *rounded: int) -> Callable[..., Any]:
    """An `observe` for operators whose outputs with these numbers (by default the first) are whole numbers.

    The reference leaves them unrounded. One of the two whole numbers around counts as the reference's own, if it is
    not further than half a step away and what earlier rounding explains; any other shows as it is.
    """

    def observe(p: Params, outputs: Any, **inputs: Any) -> Any:
        found = list(outputs) if isinstance(outputs, tuple) else [outputs]
        exact = reference(p, **inputs)
        exact = exact if isinstance(exact, tuple) else (exact,)
        within = 0.5 + _SLACK
        for i in rounded or (0,):
            if found[i].shape == exact[i].shape:
                found[i] = np.where(np.abs(found[i] - exact[i]) <= within, exact[i], found[i])
        return tuple(found)

    return observe


def numpy_rows(values: Any) -> tuple[Any, Any]:
    """Whole numbers and a scale a row, such that the largest of a row is 127."""
    numbers, scale = exact_rows(values)
    return np.rint(numbers).astype(np.int8), scale.astype(np.float32)


def exact_rows(values: Any) -> tuple[Any, Any]:
    """The same before it is rounded."""
    scale = np.abs(values).max(axis=-1) / LARGEST
    return values / scale[..., None], scale


def torch_rows(values: Any) -> tuple[Any, Any]:
    import torch

    scale = values.abs().amax(-1) / LARGEST
    return (values / scale.unsqueeze(-1)).round().to(torch.int8), scale


def first_in_int8(outputs: Sequence[Any], dtype: Any) -> tuple[Any, ...]:
    """Numbers and scale as `numpy_rows` makes them, whatever else there is in `dtype`."""
    return (*numpy_rows(outputs[0]), *(np.asarray(output).astype(dtype, copy=False) for output in outputs[1:]))
