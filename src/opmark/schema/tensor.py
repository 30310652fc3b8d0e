"""TensorSpec: the shape and element type of an input tensor, and the values that it may hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

from msgspec import Struct

# Names and sizes of element types, in the one spelling that opmark uses for all frameworks.

Kind = Literal["float", "int", "bool", "complex"]


class DType(NamedTuple):
    kind: Kind
    size: int
    """Bytes per element."""


DTYPES: dict[str, DType] = {
    "float64": DType("float", 8),
    "float32": DType("float", 4),
    "float16": DType("float", 2),
    "bfloat16": DType("float", 2),
    "float8_e4m3fn": DType("float", 1),
    "float8_e5m2": DType("float", 1),
    "complex128": DType("complex", 16),
    "complex64": DType("complex", 8),
    "complex32": DType("complex", 4),
    "int64": DType("int", 8),
    "int32": DType("int", 4),
    "int16": DType("int", 2),
    "int8": DType("int", 1),
    "uint8": DType("int", 1),
    "bool": DType("bool", 1),
}

STORED_AS = {"tfloat32": "float32"}
"""Types that matrix units compute in but no tensor has, and the type of the tensors. `tfloat32` is float32 of which a
product sees 10 bits of the fraction."""

FLOATS = ("float64", "float32", "float16", "bfloat16")
FLOATS8 = ("float8_e4m3fn", "float8_e5m2")
INTS = ("int64", "int32", "int16", "int8", "uint8")


_SPELLINGS = {
    "double": ("float64",), "fp64": ("float64",), "f64": ("float64",),
    "float": ("float32",), "single": ("float32",), "fp32": ("float32",), "f32": ("float32",),
    "half": ("float16",), "fp16": ("float16",), "f16": ("float16",), "bf16": ("bfloat16",),
    "tf32": ("tfloat32",), "tensorfloat32": ("tfloat32",),
    "fp8": FLOATS8, "float8": FLOATS8, "f8": FLOATS8,
    "e4m3": FLOATS8[:1], "fp8e4m3": FLOATS8[:1], "float8e4m3": FLOATS8[:1], "f8e4m3": FLOATS8[:1],
    "e4m3fn": FLOATS8[:1], "fp8e4m3fn": FLOATS8[:1], "float8e4m3fn": FLOATS8[:1],
    "e5m2": FLOATS8[1:], "fp8e5m2": FLOATS8[1:], "float8e5m2": FLOATS8[1:], "f8e5m2": FLOATS8[1:],
    "long": ("int64",), "int": ("int32",), "short": ("int16",), "char": ("int8",), "byte": ("uint8",),
    "i64": ("int64",), "i32": ("int32",), "i16": ("int16",), "i8": ("int8",), "u8": ("uint8",),
}  # fmt: skip


def spelled_here(name: str) -> tuple[str, ...]:
    """Return the element types that other systems call so (`fp8`, `tf32`, `torch.half`), by opmark's names."""
    short = name.casefold().removeprefix("torch.").replace("_", "").replace("-", "")
    known = [dtype for dtype in (*DTYPES, *STORED_AS) if dtype.replace("_", "") == short]
    return _SPELLINGS.get(short) or tuple(known)


def storage(dtype: str) -> str:
    """Return the element type of tensors that are computed in this type."""
    return STORED_AS.get(dtype, dtype)


def sizeof(dtype: str) -> int:
    return DTYPES[storage(dtype)].size


def is_float(dtype: str) -> bool:
    return DTYPES[storage(dtype)].kind == "float"


class TensorSpec(Struct, frozen=True):
    """A tensor, filled with seeded uniform values between `low` and `high` unless `make` is given."""

    shape: tuple[int, ...]
    dtype: str
    low: float = -1.0
    """Smallest value."""
    high: float = 1.0
    """Values stay below this one; a float may be rounded up to it."""
    make: Callable[[Any], Any] | None = None
    """make(generator) -> array, for values that are not independent and uniform: sorted offsets, a positive definite
    matrix, indices that favour a few rows. `generator` is NumPy's; values still lie in [low, high]."""
    place: Literal["device", "host", "pinned"] = "device"
    """Where the tensor lies; `pinned` is page-locked host memory, which a device can read by itself."""
    strides: tuple[int, ...] = ()
    """Steps in elements along each axis, if the tensor is not contiguous; 0 repeats one element."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct elements."""
        shape = self.shape
        if self.strides:
            shape = tuple(n for n, stride in zip(shape, self.strides, strict=True) if stride)
        return prod(shape) * DTYPES[self.dtype].size

    @property
    def span(self) -> int:
        """Number of elements from the first to the last in memory."""
        if not self.strides or not self.elements:
            return self.elements
        return 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor whose elements lie one after the other."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(1, size)
    return tuple(reversed(found))


# Values that are not independent and uniform, for tensors of whole numbers that are written as data.

VALUES = ("offsets", "bounds", "permutation", "zipf")
ALPHA = 1.05
# Knuth's multiplier, a prime: it spreads the popular rows over the table, as in practice.
SPREAD = 2654435761


class IndexValues(NamedTuple):
    """The way in which the values of a tensor of indices belong together."""

    kind: str
    """`offsets`: where bags of equal length begin; `bounds`: the same, and where the last one ends; `permutation`: each
    index once; `zipf`: a few indices most of the time."""
    alpha: float = ALPHA
    """For `zipf`: the k-th most popular index is drawn k^-alpha times as often as the first."""

    def draw(self, shape: tuple[int, ...], low: int, high: int, generator: Any) -> Any:
        """Return an array of int64 from `low` to `high`; only the end of `bounds` is `high` itself."""
        count = prod(shape)
        if self.kind == "zipf":
            return (low + zipf_indices(generator, count, high - low, self.alpha)).reshape(shape)
        if self.kind == "permutation":
            return (low + generator.permutation(count)).reshape(shape)
        numbers = generator.permutation(count)
        numbers.sort()  # 0, 1, 2 ... without NumPy, which this package does without
        return low + numbers * (high - low) // max(1, count - (self.kind == "bounds"))


def zipf_indices(generator: Any, count: int, rows: int, alpha: float) -> Any:
    """Draw rows by inverting the distribution function of k^-alpha between 1 and rows + 1, cut to integers."""
    power = (1 - alpha) or 1e-9  # for alpha 1 the formula would divide by 0; this is close to its limit
    rank = (1 + generator.random(count) * ((rows + 1.0) ** power - 1)) ** (1 / power)
    return (rank.astype("int64") - 1).clip(0, rows - 1) * SPREAD % rows
