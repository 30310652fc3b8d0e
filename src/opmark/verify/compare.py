"""Compares arrays within a tolerance. NaN and infinity never pass by accident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from opmark.errors import WrongResult


class Errors(NamedTuple):
    max_abs: float
    max_rel: float
    """The largest error relative to the reference, where that is not zero."""


def compare(
    outputs: Sequence[Any], expected: Sequence[Any], relative: float, absolute: float = 0.0, typical: float = 0.0
) -> Errors:
    """The largest errors. Raise WrongResult for one above relative x |expected| + absolute + typical x rms."""
    if len(outputs) != len(expected):
        raise WrongResult(f"{len(outputs)} outputs, expected {len(expected)}")
    pairs = enumerate(zip(outputs, expected, strict=True))
    found = [_compare_one(i, *pair, relative, absolute, typical) for i, pair in pairs]
    return Errors(max(e.max_abs for e in found), max(e.max_rel for e in found))


def _compare_one(index: int, output: Any, expected: Any, relative: float, absolute: float, typical: float) -> Errors:
    if output.shape != expected.shape:
        raise WrongResult(f"output {index} has shape {output.shape}, expected {expected.shape}")
    if output.size == 0:
        return Errors(0.0, 0.0)
    _same_specials(index, output, expected)
    finite = np.isfinite(expected)
    known = np.where(finite, expected, 0)
    error = np.where(finite, _distance(output, known), 0.0)
    size = np.abs(known).astype(np.float64)
    absolute += typical * _root_mean_square(size)
    excess = error - (relative * size + absolute)
    if (excess > 0).any():
        raise WrongResult(_describe(index, output, expected, error, excess, relative, absolute))
    with np.errstate(all="ignore"):
        ratio = np.where(size > 0, error / size, 0.0)
    return Errors(float(error.max()), float(ratio.max()))


def _root_mean_square(size: Any) -> float:
    """The root mean square of values that are not negative, scaled so that no square overflows."""
    largest = float(size.max())
    return largest * float(np.sqrt(np.square(size / largest).mean())) if largest > 0 else 0.0


def _distance(output: Any, expected: Any) -> Any:
    """|output - expected| as float64. Whole numbers that a float64 cannot tell apart are told apart all the same."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(output.astype(np.result_type(output, np.float64)) - expected)
    if output.dtype.kind in "iub" and expected.dtype.kind in "iub":
        distance = np.where(output == expected, 0.0, np.maximum(distance, 1.0))
    return distance.astype(np.float64)


def _same_specials(index: int, output: Any, expected: Any) -> None:
    """Raise WrongResult unless NaN and infinities are exactly where the reference has them."""
    special = ~np.isfinite(output) | ~np.isfinite(expected)
    same = (output == expected) | (np.isnan(output) & np.isnan(expected))
    bad = special & ~same
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise WrongResult(
            f"output {index} has {int(bad.sum())} of {output.size} elements that are not finite where the reference "
            f"is, or the other way round; first at {list(at)}: {output[at]}, expected {expected[at]}"
        )


def _describe(index: int, output: Any, expected: Any, error: Any, excess: Any, rel: float, absolute: float) -> str:
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), excess.shape))
    return (
        f"output {index}: {int((excess > 0).sum())} of {output.size} elements are off by more than "
        f"{rel:g} x |expected| + {absolute:g}; worst at {list(at)}: {output[at]:.6g}, expected {expected[at]:.6g}, "
        f"off by {error[at]:.3g}"
    )
