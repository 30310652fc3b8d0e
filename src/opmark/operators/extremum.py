"""The largest, smallest or middle element along an axis, and where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import (
    EXACT,
    ORDERED,
    Work,
    axis_keywords,
    index_dtype,
    length,
    order_preserving,
    places,
    reduction,
    reference_in_numpy,
    same_dtype,
    values_and_places,
)
from opmark.operators._build import numpy
from opmark.schema import Implementation, Launch, Operator, Params, Tolerance
from opmark.schema.dtype import sizeof


def _max(p: Params, x: Any) -> Any:
    return np.max(x, **axis_keywords(p))


def _min(p: Params, x: Any) -> Any:
    return np.min(x, **axis_keywords(p))


def _median(p: Params, x: Any) -> Any:
    """Return the lower of the two middle elements if their number is even, as torch does."""
    middle = np.take(np.sort(x, axis=p["axis"]), [(length(p) - 1) // 2], axis=p["axis"])
    return middle if p["keepdims"] else np.squeeze(middle, p["axis"])


def _value_and_index(find: Callable[[Params, Any], Any]) -> Implementation:
    """Make a NumPy implementation that finds an index and fetches the value."""

    def build(p: Params, x: Any) -> Launch:
        def launch() -> Any:
            index = find(p, x)
            values = np.take_along_axis(x, index, axis=p["axis"])
            return (values, index) if p["keepdims"] else tuple(np.squeeze(a, p["axis"]) for a in (values, index))

        return launch

    return numpy(build)


def _with_index(
    name: str, summary: str, reference: Any, torch: str, find: Any, *aliases: str, dtypes: tuple[str, ...] = ORDERED
) -> Operator:
    """Make an operator that returns value and index; the index is int64 for every type of x."""
    return reduction(
        name,
        summary,
        torch=torch,
        reference=lambda p, x: (reference(p, x),) * 2,
        in_numpy=_value_and_index(find),
        outputs=(same_dtype, index_dtype),
        dtypes=dtypes,
        work=Work(),
        # The gradient is zero but for the incoming one at the index.
        backward=Work(indices=1),
        observe=values_and_places,
        direction=order_preserving(),
        tolerance=EXACT,
        aliases=aliases,
    )


def _value(name: str, summary: str, reference: Any, torch: str, *aliases: str) -> Operator:
    return reduction(
        name,
        summary,
        torch=torch,
        reference=reference,
        in_numpy=reference_in_numpy(reference),
        dtypes=ORDERED,
        work=Work(),
        # x is compared with the result again; equal elements share the incoming gradient.
        backward=Work(row_flops=1, reads=1, row_reads=2),
        direction=order_preserving(),
        # The result is exact, but the gradient is divided among equal elements.
        tolerance=Tolerance(),
        aliases=aliases,
    )


def _index(name: str, summary: str, reference: Any, torch: str, numpy_function: str, *aliases: str) -> Operator:
    def build(p: Params, x: Any) -> Launch:
        function = getattr(np, numpy_function)
        return lambda: function(x, **axis_keywords(p))

    return reduction(
        name,
        summary,
        torch=torch,
        reference=reference,
        in_numpy=numpy(build, f"numpy.{numpy_function}"),
        outputs=(index_dtype,),
        dtypes=ORDERED,
        work=Work(),
        gradients=False,
        observe=places,
        tolerance=EXACT,
        aliases=aliases,
    )


def _argmedian(p: Params, x: Any) -> Any:
    middle = (length(p) - 1) // 2
    return np.take(np.argpartition(x, middle, axis=p["axis"]), [middle], axis=p["axis"])


REDUCE_MAX = _with_index("reduce_max", "the largest element along an axis, and where it is", _max, "torch.max",
                         lambda p, x: np.argmax(x, axis=p["axis"], keepdims=True), "max_with_index")  # fmt: skip
REDUCE_MIN = _with_index("reduce_min", "the smallest element along an axis, and where it is", _min, "torch.min",
                         lambda p, x: np.argmin(x, axis=p["axis"], keepdims=True), "min_with_index")  # fmt: skip
# Not in 16 bits: several elements may equal the median there, and on a GPU (an H200) the gradient did not always go to
# the same one.
MEDIAN = _with_index("median", "the middle element along an axis, and where it is", _median, "torch.median",
                     _argmedian, dtypes=tuple(name for name in ORDERED if sizeof(name) > 2))  # fmt: skip
AMAX = _value("amax", "the largest element along an axis", _max, "torch.amax", "max", "max_axis")
AMIN = _value("amin", "the smallest element along an axis", _min, "torch.amin", "min", "min_axis")
ARGMAX = _index("argmax", "where the largest element along an axis is", _max, "torch.argmax", "argmax",
                "argmax_channel", "ArgMax")  # fmt: skip
ARGMIN = _index("argmin", "where the smallest element along an axis is", _min, "torch.argmin", "argmin",
                "ArgMin")  # fmt: skip

OPERATORS = (REDUCE_MAX, REDUCE_MIN, AMAX, AMIN, ARGMAX, ARGMIN, MEDIAN)
