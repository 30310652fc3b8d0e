"""Measures how far an output is from the reference; nothing here passes or fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from opmark.schema import Numerics

# Bits behind the point, and the exponent of the smallest normal number.
_FORMATS = {
    "float64": (52, -1022),
    "float32": (23, -126),
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float8_e4m3fn": (3, -6),
    "float8_e5m2": (2, -14),
}


def numerics(output: Any, expected: Any, dtype: str = "") -> Numerics:
    """How far apart two arrays of the same shape are. `dtype`: the type that the output was stored in, if its last
    place matters."""
    both = np.isfinite(output) & np.isfinite(expected)
    counts = {
        "elements": int(output.size),
        "compared": int(both.sum()),
        "nan": int(np.isnan(output).sum()),
        "inf": int(np.isinf(output).sum()),
        "nan_expected": int(np.isnan(expected).sum()),
        "inf_expected": int(np.isinf(expected).sum()),
    }
    if not counts["compared"]:
        return Numerics(**counts)
    whole = counts["compared"] == counts["elements"]
    found, due = (output, expected) if whole else (output[both], expected[both])
    wide = np.result_type(found, due, np.float64)
    found, due = found.astype(wide, copy=False), due.astype(wide, copy=False)
    size = np.abs(due).astype(np.float64, copy=False)
    with np.errstate(all="ignore"):  # what overflows here is infinite, and is then not told
        error = np.abs(found - due).astype(np.float64, copy=False)
        if output.dtype.kind in "iub" and expected.dtype.kind in "iub":
            # Whole numbers that a float64 cannot tell apart are told apart all the same.
            apart = (output != expected) if whole else (output[both] != expected[both])
            error = np.where(apart, np.maximum(error, 1.0), 0.0)
        relative = error[size > 0] / size[size > 0]
        places = error / _last_place(size, dtype) if dtype in _FORMATS else None
    return Numerics(
        **counts,
        max_abs=_told(error, np.max),
        mean_abs=_told(error, np.mean),
        max_rel=_told(relative, np.max),
        mean_rel=_told(relative, np.mean),
        cosine=_cosine(found, due),
        max_ulp=None if places is None else _told(places, np.max),
        mean_ulp=None if places is None else _told(places, np.mean),
    )


def _told(values: Any, of: Any) -> float | None:
    """A statistic of values; None where there is nothing, or nothing finite, to tell."""
    if values.size == 0:
        return None
    value = float(of(values))
    return value if np.isfinite(value) else None


def _last_place(size: Any, dtype: str) -> Any:
    """The worth of the last bit of a number of this size."""
    digits, smallest = _FORMATS[dtype]
    _, exponent = np.frexp(size)  # a fraction from a half to one: one more than the exponent of IEEE
    return np.ldexp(1.0, np.maximum(np.where(size > 0, exponent - 1, smallest), smallest) - digits)


def _cosine(found: Any, due: Any) -> float | None:
    """The cosine of the angle between two arrays, scaled first, so that no square overflows or vanishes."""
    largest = float(np.abs(found).max()), float(np.abs(due).max())
    if not all(largest):
        return None
    one, other = (found / largest[0]).ravel(), (due / largest[1]).ravel()
    value = float(np.real(np.vdot(one, other))) / (float(np.linalg.norm(one)) * float(np.linalg.norm(other)))
    return max(-1.0, min(1.0, value))
