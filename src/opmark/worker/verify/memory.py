"""Finds outputs that no call has written: views of inputs, repeated elements, outputs that are one and the same memory.
It also finds inputs that a call changed without saying so.

A buffer that a launch allocates once and fills at every call is fine, although the output of the next call then
replaces that of the one before: engines such as ONNX Runtime bind their outputs, and the work is done every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from opmark.errors import WrongResult
from opmark.plugin import Backend, MemoryLayout

_MAX_WORK: Any = 10_000
"""Effort for the exact answer whether two arrays overlap; beyond it their ranges of addresses decide."""
_TOO_HARD: type[Exception] = getattr(np, "exceptions", np).TooHardError  # where it is before NumPy 1.25


def refuse_shared_memory(
    outputs: Sequence[Any], inputs: Mapping[str, Any], backend: Backend, what: str = "output"
) -> None:
    """Raise WrongResult for outputs that share memory with an input or with each other, or in which several elements
    are the same memory. Gradients of several inputs may be one tensor: those of a sum are equal. `what` names an output
    in messages. Empty outputs and memory that is not known pass."""
    own = {f"{what} {i}": layout for i, layout in _known_layouts(enumerate(outputs), backend)}
    given = dict(_known_layouts(inputs.items(), backend))
    hint = "an operator that returns views declares `view`, one that works in place `mutates`"
    if what == "gradient":
        hint = "an operator with such a gradient declares `gradient_view`"
    for label, layout in own.items():
        if _repeats(layout):
            raise WrongResult(
                f"{label} has strides {list(layout.strides)} at shape {list(layout.shape)}: several of its elements "
                f"are the same memory, which was written once at most; {hint}"
            )
        for name, other in given.items():
            if _overlap(layout, other):
                raise WrongResult(f"{label} shares its memory with `{name}`: it is a view, not a result; {hint}")
    for one, other in combinations(own, 2) if what == "output" else ():
        if _overlap(own[one], own[other]):
            raise WrongResult(f"{one} and {other} share memory: only one of them was written; {hint}")


def _known_layouts(tensors: Any, backend: Backend) -> Iterator[tuple[Any, MemoryLayout]]:
    for key, tensor in tensors:
        layout = None if tensor is None else backend.layout(tensor)
        if layout is not None and 0 not in layout.shape:
            yield key, layout


def _repeats(layout: MemoryLayout) -> bool:
    """Whether elements overlap: along the axes from the shortest stride to the longest, each step has to leave what
    lies within it."""
    axes = sorted((abs(stride), n) for stride, n in zip(layout.strides, layout.shape, strict=True) if n > 1)
    span = layout.itemsize
    for stride, n in axes:
        if stride < span:
            return True
        span += stride * (n - 1)
    return False


def _overlap(one: MemoryLayout, other: MemoryLayout) -> bool:
    first, second = np.asarray(_Addresses(one)), np.asarray(_Addresses(other))
    try:
        return bool(np.shares_memory(first, second, max_work=_MAX_WORK))
    except _TOO_HARD:
        return bool(np.may_share_memory(first, second))


class _Addresses:
    """What NumPy takes for an array at these addresses. Nobody may read it: the memory may be that of a device."""

    def __init__(self, layout: MemoryLayout) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (layout.address, True),
            "shape": layout.shape,
            "strides": layout.strides,
            "typestr": f"|V{layout.itemsize}",
        }


def refuse_changed_inputs(before: Mapping[str, Any], after: Mapping[str, Any], mutates: Sequence[str]) -> None:
    """Raise WrongResult where the values of an input are not those before the call, unless the operator mutates it."""
    for name, array in before.items():
        if name not in mutates and not np.array_equal(array, after[name], equal_nan=array.dtype.kind in "fc"):
            changed = int((array != after[name]).sum())
            raise WrongResult(
                f"the call changes its input `{name}` in {changed} of {array.size} elements that were compared; an "
                "operator that works in place declares `mutates`"
            )
