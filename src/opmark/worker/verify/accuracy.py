"""Compares arrays and gradients with the reference, and measures how far off they are.

Gradients are checked for any operator, without a formula for its gradient. The change of the reference along a
direction v is known from a few more evaluations of it (a central difference in float64); it must equal the gradient
times v. Two kinds of directions are taken:

- Random ones, in which each element is +1 or -1. Every element of the gradient counts; a single wrong one shows as long
  as it stands out from the rounding of all of them together, which in 16-bit types it may not.
- Ones that follow the signs of the gradient that was found. There all elements add up, while their roundings do not: a
  gradient that is 2 % too large shows in 16-bit types too. Along one of them a part of the elements goes the other way,
  so that what is too large in one place and too small in another shows as well.

The error is bounded by the gradient itself, and by no more than a small part of the outputs: a mean has gradients that
are hundreds of times smaller than its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from opmark.errors import WrongResult
from opmark.hardware.host import affinity
from opmark.plugin.operator import growth
from opmark.schema import Numerics
from opmark.schema.record import HISTOGRAM_DECADES

T = TypeVar("T")

DIRECTIONS = 4
_STEP = 2e-5
_FIVE_POINTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))
POINTS = len(_FIVE_POINTS)
"""Number of evaluations of the reference for one direction."""
EVALUATIONS = DIRECTIONS * POINTS
"""Number of evaluations of the reference for the gradient of one input."""
# Error of the difference itself: its truncation relative to the slope, and its rounding relative to what it adds up.
_TRUNCATION = 1e-7
_ROUNDING = 1e-9
# What rounding explains, relative to that of a single element: the error of all elements in a random direction, which
# grows with their norm, and the error that all of them share (a saved row sum that was rounded).
_SCATTER = 2.0
_SHARED = 0.5
# What is left of terms that cancel, relative to their rounding: of those inside an operator (a softmax over one element
# has a gradient of zero), and of those that a gradient adds up over several outputs.
_LEFT = 0.02
_LEFT_OF_SUM = 0.2
_BLOCKS = 16
_COMBINED_ELEMENTS = 1 << 20

Reference = Callable[[Mapping[str, Any]], Sequence[Any]]
Direction = Callable[[str, np.random.Generator, Any], Any]


def any_direction(name: str, generator: np.random.Generator, array: Any) -> Any:
    return generator.choice((-1.0, 1.0), size=array.shape)


def check_gradients(
    reference: Reference,
    inputs: Mapping[str, Any],
    gradients: Mapping[str, Any],
    seeds: Sequence[Any],
    relative: float,
    direction: Direction = any_direction,
    directions: int = DIRECTIONS,
    *,
    factor: float = 1.0,
    spacing: float = 0.0,
) -> ArrayErrors:
    """Compare gradients with slopes of the reference, and raise WrongResult for one that is too far off.

    `seeds` are the gradients of the outputs, None for an output that has none. `relative` is the rounding of one
    element, `factor` is above 1 where formulas lose digits, and `spacing` is the distance between the smallest numbers
    of the element type.
    """
    generator = np.random.default_rng(0)
    found = _Slopes(reference, inputs, seeds)
    worst = ArrayErrors(0.0, 0.0)
    for name, gradient in gradients.items():
        if gradient.shape != inputs[name].shape:
            raise WrongResult(f"gradient of `{name}` has shape {gradient.shape}, expected {inputs[name].shape}")
        if not np.isfinite(gradient).all():
            raise WrongResult(f"gradient of `{name}` is not finite everywhere")
        # An element of the gradient adds up as many terms as there are outputs to each of them, and frameworks do
        # that in the type that they store more often than forwards.
        scatter = _SCATTER * factor * (relative + _TRUNCATION) * growth(4 * found.outputs / max(1, gradient.size))
        shared = _SHARED * relative + _TRUNCATION
        left = _ROUNDING
        if gradient.any():  # zeros everywhere are no rest of anything
            left += relative * (_LEFT_OF_SUM if found.outputs > gradient.size else _LEFT)
        for way in islice(_directions(direction, name, generator, inputs[name], gradient), directions):
            terms = gradient * way
            scale = float(np.sqrt(np.square(terms).sum()))
            total, expected = float(terms.sum()), found.along(name, way)
            floor = left * found.magnitude + spacing / 2 * float(np.abs(way).sum())
            bound = scatter * scale + shared * max(abs(total), abs(expected)) + floor
            error = abs(total - expected)
            if not error <= bound:
                raise WrongResult(
                    f"gradient of `{name}`: its sum along a direction is {total:.6g}, the reference changes by "
                    f"{expected:.6g} a step; off by {error:.3g}, allowed {bound:.3g}"
                )
            worst = ArrayErrors(max(worst.max_abs, error), max(worst.max_rel, error / scale if scale else 0.0))
    return worst


def _directions(
    direction: Direction, name: str, generator: np.random.Generator, array: Any, gradient: Any
) -> Iterator[Any]:
    """Yield a random direction, two that follow the gradient, of which the second goes the other way in a quarter of
    its elements, and another random one."""
    random = direction(name, generator, array)
    yield random
    length = -(-gradient.size // _BLOCKS)
    turned = np.where(generator.permutation(_BLOCKS) < _BLOCKS // 4, -1.0, 1.0)
    for blocks in (np.ones(gradient.size), np.repeat(turned, length)[: gradient.size]):
        wanted = gradient * blocks.reshape(gradient.shape)
        if np.isin(random, (-1.0, 0.0, 1.0)).all():  # every element is free to go either way
            yield np.where(wanted == 0, random, np.abs(random) * np.sign(wanted))
            continue
        # Directions that are not free are combined, each one in the sense in which the gradient grows.
        drawn = [direction(name, generator, array) for _ in range(_count_combined(gradient.size))]
        yield sum(way if (wanted * way).sum() >= 0 else -way for way in drawn) / len(drawn)
    yield direction(name, generator, array)


def _count_combined(size: int) -> int:
    return max(4, min(64, _COMBINED_ELEMENTS // max(1, size)))


class _Slopes:
    """How the reference, weighted by the seeds, changes along a direction."""

    def __init__(self, reference: Reference, inputs: Mapping[str, Any], seeds: Sequence[Any]) -> None:
        self._reference = reference
        self._inputs = inputs
        self._seeds = seeds
        weighted = self._weighted(inputs)
        self.outputs = sum(values.size for values in weighted)
        self.magnitude = float(np.sqrt(sum(np.square(values).sum() for values in weighted)))

    def along(self, name: str, signs: Any) -> float:
        """The slope by the five-point rule, whose own error falls with the fourth power of the step."""
        total = 0.0
        for at, weight in _FIVE_POINTS:
            moved = {**self._inputs, name: self._inputs[name] + at * _STEP * signs}
            total += weight * float(sum(values.sum() for values in self._weighted(moved)))
        return total / _STEP

    def _weighted(self, inputs: Mapping[str, Any]) -> list[Any]:
        outputs = self._reference(inputs)
        return [out * seed for out, seed in zip(outputs, self._seeds, strict=False) if seed is not None]


# Comparison of arrays within a tolerance. NaN and infinity never pass by accident.


class ArrayErrors(NamedTuple):
    max_abs: float
    max_rel: float
    """The largest error relative to the reference, where that is not zero."""


def compare_arrays(
    outputs: Sequence[Any],
    expected: Sequence[Any],
    relative: float,
    absolute: float = 0.0,
    typical: float | Sequence[float] = 0.0,
    positions: Sequence[Mapping[int, Any]] = (),
) -> ArrayErrors:
    """The largest errors. Raise WrongResult for one above relative x |expected| + absolute + typical x rms, where
    `typical` may differ between outputs.
    `positions`: where parts of outputs were taken from, along each axis."""
    if len(outputs) != len(expected):
        raise WrongResult(f"{len(outputs)} outputs, expected {len(expected)}")
    each = [typical] * len(outputs) if isinstance(typical, float) else typical
    pairs = enumerate(zip(outputs, expected, strict=True))
    found = [
        _compare_one(i, *pair, relative, absolute, each[i], positions[i] if i < len(positions) else {})
        for i, pair in pairs
    ]
    return ArrayErrors(max(e.max_abs for e in found), max(e.max_rel for e in found))


def _compare_one(
    index: int,
    output: Any,
    expected: Any,
    relative: float,
    absolute: float,
    typical: float,
    positions: Mapping[int, Any],
) -> ArrayErrors:
    if output.shape != expected.shape:
        raise WrongResult(f"output {index} has shape {output.shape}, expected {expected.shape}")
    if output.size == 0:
        return ArrayErrors(0.0, 0.0)
    if any(_each_block(_is_special, output, expected)):
        _check_specials(index, output, expected, positions)
    magnitude = _join_means(_each_block(lambda _, due: _root_mean_square(_size(_known(due))), output, expected))
    if math.isfinite(magnitude):  # an infinite tolerance would pass anything
        absolute += typical * magnitude
    worst = _each_block(lambda one, other: _errors_of_block(one, other, relative, absolute), output, expected)
    if any(one.exceeds for one in worst):
        with np.errstate(all="ignore"):
            error = np.where(np.isfinite(expected), _distance(output, _known(expected)), 0.0)
            excess = error - (relative * _size(_known(expected)) + absolute)
        at = tuple(int(i) for i in np.unravel_index(int(np.nanargmax(excess)), excess.shape))
        raise WrongResult(
            f"output {index}: {int((excess > 0).sum())} of {_count(output, positions)} are off by more than "
            f"{relative:g} x |expected| + {absolute:g}; worst at {_locate(at, positions)}: {output[at]:.6g}, expected "
            f"{expected[at]:.6g}, off by {error[at]:.3g}"
        )
    return ArrayErrors(max(one.error for one in worst), max(one.ratio for one in worst))


class _BlockErrors(NamedTuple):
    error: float
    ratio: float
    exceeds: bool
    """Whether any element is further off than allowed."""


def _errors_of_block(output: Any, expected: Any, relative: float, absolute: float) -> _BlockErrors:
    known = _known(expected)
    error = np.where(np.isfinite(expected), _distance(output, known), 0.0)
    size = _size(known)
    ratio = np.where(size > 0, error / size, 0.0)
    return _BlockErrors(float(error.max()), float(ratio.max()), bool((error > relative * size + absolute).any()))


def _known(expected: Any) -> Any:
    """The expected values, with zeros in place of what is not finite."""
    return np.where(np.isfinite(expected), expected, 0)


def _size(values: Any) -> Any:
    """Absolute values as float64; of the smallest whole number too, whose own type cannot hold it."""
    return np.abs(values.astype(np.result_type(values, np.float64), copy=False)).astype(np.float64, copy=False)


_BLOCK = 1 << 15
"""Elements that are compared at a time: all that is computed of them stays in the caches of a core."""
_MOST_THREADS = 8
_FEWEST_BLOCKS = 16
"""With fewer, starting threads takes longer than they save."""


def _each_block(function: Callable[[Any, Any], T], output: Any, expected: Any) -> list[T]:
    """What a function says of two arrays of the same shape, block by block, on the cores that this process may use."""
    found, due = np.ravel(output), np.ravel(expected)

    def at(start: int) -> T:
        with np.errstate(all="ignore"):  # what overflows is infinite, and is found as such
            return function(found[start : start + _BLOCK], due[start : start + _BLOCK])

    starts = range(0, found.size, _BLOCK)
    threads = min(_MOST_THREADS, len(affinity()))
    if threads == 1 or len(starts) < _FEWEST_BLOCKS:
        return [at(start) for start in starts]
    shares = [starts[i * len(starts) // threads : (i + 1) * len(starts) // threads] for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        return list(chain.from_iterable(pool.map(lambda share: [at(start) for start in share], shares)))


def _root_mean_square(size: Any) -> tuple[int, float]:
    """(number of values that are not negative, their root mean square), scaled so that no square overflows."""
    largest = float(size.max(initial=0.0))
    return size.size, largest * float(np.sqrt(np.square(size / largest).mean())) if largest > 0 else 0.0


def _join_means(parts: Sequence[tuple[int, float]]) -> float:
    """The root mean square of all values of parts, from what `_root_mean_square` says of each: NaN if a value is
    infinite."""
    counts, means = np.array(parts, np.float64).T
    largest = float(means.max())
    return largest * float(np.sqrt((counts * np.square(means / largest)).sum() / counts.sum())) if largest else 0.0


def _distance(output: Any, expected: Any) -> Any:
    """|output - expected| as float64. Whole numbers that a float64 cannot tell apart are told apart all the same."""
    distance = np.abs(output.astype(np.result_type(output, np.float64)) - expected)
    if output.dtype.kind in "iub" and expected.dtype.kind in "iub":
        distance = np.where(output == expected, 0.0, np.maximum(distance, 1.0))
    return distance.astype(np.float64)


def _locate(at: Sequence[int], positions: Mapping[int, Any]) -> list[int]:
    """The position in the whole output of an element of a part."""
    return [int(positions[axis][i]) if axis in positions else i for axis, i in enumerate(at)]


def _count(output: Any, positions: Mapping[int, Any]) -> str:
    return f"{output.size} elements that were sampled" if positions else f"{output.size} elements"


def _is_special(output: Any, expected: Any) -> bool:
    """Whether anything of two arrays is not finite."""
    return not (np.isfinite(output).all() and np.isfinite(expected).all())


def _check_specials(index: int, output: Any, expected: Any, positions: Mapping[int, Any]) -> None:
    """Raise WrongResult unless NaN and infinities are exactly where the reference has them."""
    special = ~np.isfinite(output) | ~np.isfinite(expected)
    same = (output == expected) | (np.isnan(output) & np.isnan(expected))
    bad = special & ~same
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise WrongResult(
            f"output {index} has {int(bad.sum())} of {_count(output, positions)} that are not finite where the "
            f"reference is, or the other way round; first at {_locate(at, positions)}: {output[at]}, expected "
            f"{expected[at]}"
        )


# The distance of an output from the reference; nothing here passes or fails.

# Bits of the fraction, and the exponent of the smallest normal number.
_FORMATS = {
    "float64": (52, -1022),
    "float32": (23, -126),
    "tfloat32": (10, -126),
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float8_e4m3fn": (3, -6),
    "float8_e5m2": (2, -14),
}


ROUNDING = {dtype: 2.0 ** -(digits + 1) / 3**0.5 for dtype, (digits, _) in _FORMATS.items()}
"""Root mean square of the error of one rounding, relative to a number just above a power of two."""


def smallest_spacing(dtype: str) -> float:
    """The distance between the smallest numbers of a floating-point type."""
    digits, smallest = _FORMATS[dtype]
    return float(np.ldexp(1.0, smallest - digits))


def numerics(output: Any, expected: Any, dtype: str = "") -> Numerics:
    """How far apart two arrays of the same shape are. `dtype`: the type that the output was stored in, if its last
    place matters."""
    sizes = _each_block(_sizes_of_block, output, expected)
    counts: dict[str, Any] = {
        "elements": int(output.size),
        "compared": sum(size.rms[0] for size in sizes),
        "nan": sum(size.nan[0] for size in sizes),
        "inf": sum(size.inf[0] for size in sizes),
        "nan_expected": sum(size.nan[1] for size in sizes),
        "inf_expected": sum(size.inf[1] for size in sizes),
    }
    if not counts["compared"]:
        return Numerics(**counts)
    magnitude = _join_means([size.rms for size in sizes])
    largest = max(size.largest[0] for size in sizes), max(size.largest[1] for size in sizes)
    parts = _each_block(lambda one, other: _numerics_of_block(one, other, dtype, magnitude, largest), output, expected)
    total = counts["compared"]
    sized = sum(part.sized for part in parts)
    return Numerics(
        **counts,
        max_abs=_finite_or_none(max(part.max_abs for part in parts)),
        mean_abs=_finite_or_none(sum(part.sum_abs for part in parts) / total),
        max_rel=_finite_or_none(max(part.max_rel for part in parts)) if sized else None,
        mean_rel=_finite_or_none(sum(part.sum_rel for part in parts) / sized) if sized else None,
        cosine=_cosine(parts, largest),
        max_ulp=_finite_or_none(max(part.max_ulp for part in parts)) if dtype in _FORMATS else None,
        mean_ulp=_finite_or_none(sum(part.sum_ulp for part in parts) / total) if dtype in _FORMATS else None,
        rmse=_finite_or_none(_join_means([part.rms for part in parts])),
        rms=_finite_or_none(magnitude),
        histogram=tuple(np.sum([part.histogram for part in parts], axis=0).tolist()),
    )


class _BlockSizes(NamedTuple):
    nan: tuple[int, int]
    """How many values of the output and of the reference are not numbers."""
    inf: tuple[int, int]
    rms: tuple[int, float]
    """In how many places both are finite, and the root mean square of the reference there."""
    largest: tuple[float, float]


def _sizes_of_block(output: Any, expected: Any) -> _BlockSizes:
    found, due = _both_finite(output, expected)
    nan = inf = 0, 0
    if found.size < output.size:
        nan = int(np.isnan(output).sum()), int(np.isnan(expected).sum())
        inf = int(np.isinf(output).sum()), int(np.isinf(expected).sum())
    size = _size(due)
    largest = float(_size(found).max(initial=0.0)), float(size.max(initial=0.0))
    return _BlockSizes(nan, inf, _root_mean_square(size), largest)


def _both_finite(output: Any, expected: Any) -> tuple[Any, Any]:
    """The values of two flat arrays where both are finite."""
    both = np.isfinite(output) & np.isfinite(expected)
    return (output, expected) if both.all() else (output[both], expected[both])


class _BlockNumerics(NamedTuple):
    sized: int
    """Number of elements whose expected value is not zero."""
    max_abs: float
    sum_abs: float
    max_rel: float
    sum_rel: float
    max_ulp: float
    sum_ulp: float
    rms: tuple[int, float]
    """Number of the errors, and their root mean square."""
    products: tuple[float, float, float]
    """The inner product of the scaled values, and their squares."""
    histogram: Any


def _numerics_of_block(
    output: Any, expected: Any, dtype: str, magnitude: float, largest: tuple[float, float]
) -> _BlockNumerics:
    output, expected = _both_finite(output, expected)
    wide = np.result_type(output, expected, np.float64)
    found, due = output.astype(wide, copy=False), expected.astype(wide, copy=False)
    size, error = _size(due), _size(found - due)
    if output.dtype.kind in "iub" and expected.dtype.kind in "iub":  # a float64 does not tell them all apart
        error = np.where(output != expected, np.maximum(error, 1.0), 0.0)
    products = (0.0, 0.0, 0.0)
    if all(largest):
        one, other = found / largest[0], due / largest[1]
        products = _inner(one, other), _inner(one, one), _inner(other, other)
    if not error.any():
        return _BlockNumerics(
            int(np.count_nonzero(size)), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, (error.size, 0.0), products, _histogram(error)
        )
    relative = (error / size)[size > 0]
    places = error / _last_place(size, dtype) if dtype in _FORMATS else np.zeros(1)
    return _BlockNumerics(
        relative.size, float(error.max()), float(error.sum()), float(relative.max(initial=0.0)), float(relative.sum()),
        float(places.max()), float(places.sum()), _root_mean_square(error), products,
        _histogram(error / magnitude if magnitude > 0 else error),
    )  # fmt: skip


def _inner(one: Any, other: Any) -> float:
    """The real part of the inner product. A math library would wake its threads for each block."""
    if one.dtype.kind == "c":
        return _inner(one.real, other.real) + _inner(one.imag, other.imag)
    return float(np.einsum("i,i->", one, other))


_EDGES = 10.0 ** np.arange(HISTOGRAM_DECADES[0], HISTOGRAM_DECADES[1] + 1)


def _histogram(errors: Any) -> Any:
    """Count errors by decade; whatever is not below the last edge, and what overflowed, is in the last bin."""
    reached = [errors.size, *(np.count_nonzero(errors >= edge) for edge in _EDGES), 0]
    return -np.diff(reached)


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _last_place(size: Any, dtype: str) -> Any:
    """The worth of the last bit of a number of this size."""
    digits, smallest = _FORMATS[dtype]
    _, exponent = np.frexp(size)  # a fraction from a half to one: one more than the exponent of IEEE
    return np.ldexp(1.0, np.maximum(np.where(size > 0, exponent - 1, smallest), smallest) - digits)


def _cosine(parts: Sequence[_BlockNumerics], largest: tuple[float, float]) -> float | None:
    """The cosine of the angle between two arrays, scaled first, so that no square overflows or vanishes."""
    if not all(largest):
        return None
    product, one, other = (sum(part.products[i] for part in parts) for i in range(3))
    return max(-1.0, min(1.0, product / math.sqrt(one * other)))
