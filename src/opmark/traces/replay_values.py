"""Makes the tensors that a replayed program had before it began: memory as recorded, values drawn by rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod, sqrt

import torch

from opmark.traces.trace import TensorRef

_ALIGNED = 16
_UNKNOWN_INTEGER = 1
"""Value of integers that nothing is known about: it is no division by zero, and an index of most tensors."""

Geometry = tuple[int, tuple[int, ...], tuple[int, ...], str]
"""Offset, shape, strides and element type: where a tensor lies in its memory."""


@dataclass(eq=False)
class ReplayStorage:
    """Memory that tensors of a replay share."""

    first: TensorRef
    made: bool
    """Whether it exists before the step, because no replayed call makes it."""
    nbytes: int = 0
    variables: dict[Geometry, ReplayVariable] = field(default_factory=dict)
    limit: int | None = None
    """Every index in it has to be below this."""
    divides: int | None = None
    """Its values are ascending offsets into so many rows."""
    ends: bool = False
    """Whether the last offset is the number of rows."""
    positive: bool = False
    zero: bool = False
    low: int | None = None
    high: int | None = None

    def grow(self, ref: TensorRef) -> None:
        self.nbytes = max(self.nbytes, extent(ref))


@dataclass(eq=False)
class ReplayVariable:
    """A tensor of a replay: a local variable of the compiled step."""

    name: str
    ref: TensorRef
    storage: ReplayStorage


def strides_of(ref: TensorRef) -> tuple[int, ...]:
    if ref.strides is not None and len(ref.strides) == len(ref.shape):
        return ref.strides
    return tuple(prod(ref.shape[i + 1 :]) for i in range(len(ref.shape)))


def geometry(ref: TensorRef) -> Geometry:
    return ref.offset, ref.shape, strides_of(ref), ref.dtype


def dtype_of(ref: TensorRef) -> torch.dtype | None:
    found = getattr(torch, ref.dtype, None)
    return found if isinstance(found, torch.dtype) else None


def extent(ref: TensorRef) -> int:
    """Return the bytes from the beginning of the storage to the end of the tensor."""
    dtype = dtype_of(ref)
    size = dtype.itemsize if dtype is not None else 1
    if not all(ref.shape):
        return ref.offset * size
    last = sum((n - 1) * stride for n, stride in zip(ref.shape, strides_of(ref), strict=True))
    return (ref.offset + last + 1) * size


def make_tensors(storage: ReplayStorage, device: torch.device, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Make the memory of a storage, fill it, and return its tensors by the name of their variable."""
    padded = -(-max(storage.nbytes, 1) // _ALIGNED) * _ALIGNED
    memory = torch.empty(padded, dtype=torch.uint8, device=device)
    dtype = dtype_of(storage.first)
    assert dtype is not None
    _fill(memory.view(dtype), storage, generator)
    found = {}
    for variable in storage.variables.values():
        ref = variable.ref
        own = dtype_of(ref)
        assert own is not None
        found[variable.name] = memory.view(own).as_strided(ref.shape, strides_of(ref), ref.offset)
    return found


def _fill(flat: torch.Tensor, storage: ReplayStorage, generator: torch.Generator) -> None:
    """Fill memory with values of the kind that the program had: products keep their magnitude, what is scaled by is
    positive, indices lie inside."""
    shape, dtype = storage.first.shape, flat.dtype
    if storage.zero:
        flat.zero_()
    elif dtype.is_complex:
        _fill(torch.view_as_real(flat).view(-1), storage, generator)
    elif dtype.is_floating_point:
        wide = torch.float32 if dtype.itemsize == 1 else dtype
        values = flat if wide is dtype else torch.empty(flat.shape, dtype=wide, device=flat.device)
        if not shape:
            values.fill_(1.0)
        elif len(shape) == 1 or storage.positive:
            values.uniform_(0.0, 1.0, generator=generator)
        else:
            reach = min(1.0, sqrt(3 / max(1, prod(shape[1:]))))  # the variance of a product of this is 1
            values.uniform_(-reach, reach, generator=generator)
        if values is not flat:
            flat.copy_(values)
    elif storage.divides is not None:
        count = max(1, prod(shape))
        places = torch.arange(count, device=flat.device).mul_(storage.divides)
        flat.zero_()[:count] = places.div_(max(1, count - 1 if storage.ends else count), rounding_mode="floor")
    elif dtype is torch.bool:
        flat.view(torch.uint8).random_(0, 2, generator=generator)
    else:
        low, high = _integer_range(storage)
        top = torch.iinfo(dtype).max
        if low == high:
            flat.fill_(min(low, top))
        elif dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch draws no such numbers
            flat.fill_(min(high, top))
        else:
            flat.random_(low, min(high, top) + 1 if high < top else top, generator=generator)


def _integer_range(storage: ReplayStorage) -> tuple[int, int]:
    """Return (lowest, highest) of the integers of a storage: as recorded, within the limit of the calls that use it."""
    low, high = storage.low, storage.high
    if low is None or high is None or low > high:
        if storage.limit is None:
            return _UNKNOWN_INTEGER, _UNKNOWN_INTEGER
        low, high = 0, storage.limit - 1
    if storage.limit is not None:
        high = min(high, storage.limit - 1)
        low = max(0, min(low, high))
    return low, max(low, high)
