"""The sizes and the work of a call: what a prediction of its time needs to know."""

from __future__ import annotations

from msgspec import Struct

from opmark.schema.workload import Entry


class CallSizes(Struct, frozen=True):
    """One call: an operator with its sizes and work."""

    operator: str
    batch: float
    m: float
    n: float
    k: float
    flops: float
    nbytes: float
    image: float = 1.0
    channels: float = 1.0
    written: float = 0.0
    numbers: tuple[float, ...] = ()
    stride: float = 1.0
    """Stride of the windows of a convolution; below 1 for a transposed one."""


class CalledOperator(Struct, frozen=True):
    """A call of torch that a program makes and that moves data."""

    entry: Entry | None
    """The operator of the catalogue that makes the very same call, or the callable; None where it cannot be written."""
    sizes: CallSizes
    """What it computes and moves. A product or a convolution that the catalogue does not have in this form is named as
    the one that is most like it."""
    dtype: str
