"""Values rounded to 8 bits: how rows of them are made and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.operators import _numpy as np
from opmark.schema import Params

LARGEST = 127
# With steps of these sizes, values between -1 and 1 nearly fill 8 bits and none is clipped: none is above MOST.
STEPS = (1 / 120, 1 / 100)
MOST = 120
# How far rounding in float32, before the final rounding, may move a value, as a fraction of a step.
_SLACK = 0.01


def accept_either_neighbour(reference: Callable[..., Any], *rounded: int) -> Callable[..., Any]:
    """Return an `observe` for operators whose outputs at these indices (by default the first) are integers.

    The reference does not round. An integer that is at most half a step, plus what earlier rounding explains, from the
    reference is replaced by the reference; any other stays as it is.
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
    """Return integers and one scale per row, such that the largest of a row is 127."""
    numbers, scale = exact_rows(values)
    return np.rint(numbers).astype(np.int8), scale.astype(np.float32)


def exact_rows(values: Any) -> tuple[Any, Any]:
    """Return the unrounded numbers and one scale per row."""
    scale = np.abs(values).max(axis=-1) / LARGEST
    return values / scale[..., None], scale


def torch_rows(values: Any) -> tuple[Any, Any]:
    import torch

    scale = values.abs().amax(-1) / LARGEST
    return (values / scale.unsqueeze(-1)).round().to(torch.int8), scale


def first_in_int8(outputs: Sequence[Any], dtype: Any) -> tuple[Any, ...]:
    """Return the first output as integers with scales, by `numpy_rows`, and the other outputs in `dtype`."""
    return (*numpy_rows(outputs[0]), *(np.asarray(output).astype(dtype, copy=False) for output in outputs[1:]))
