"""Compute how far an output is from the reference, without a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np

from opmark.schema import Numerics

# Bits of the fraction, and the exponent of the smallest normal number.
_FORMATS = {
    "float64": (52, -1022),
    "float32": (23, -126),
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float8_e4m3fn": (3, -6),
    "float8_e5m2": (2, -14),
}


def numerics(output: Any, expected: Any, dtype: str = "") -> Numerics:
    """Compare arrays of the same shape; `dtype` is the stored type of the output, for errors in units in the last
    place."""
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
    with np.errstate(all="ignore"):  # an overflow gives infinity, which is reported as None
        error = np.abs(found - due).astype(np.float64, copy=False)
        if output.dtype.kind in "iub" and expected.dtype.kind in "iub":
            # Different integers that float64 cannot distinguish differ by at least 1.
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
    """Return a statistic, or None if there are no values or it is not finite."""
    if values.size == 0:
        return None
    value = float(of(values))
    return value if np.isfinite(value) else None


def _last_place(size: Any, dtype: str) -> Any:
    """Return the value of the last bit of a number of this size."""
    digits, smallest = _FORMATS[dtype]
    _, exponent = np.frexp(size)  # frexp's fraction is from 1/2 to 1, so its exponent is one more than IEEE's
    return np.ldexp(1.0, np.maximum(np.where(size > 0, exponent - 1, smallest), smallest) - digits)


def _cosine(found: Any, due: Any) -> float | None:
    """Return the cosine of the angle between both, scaled first so that squares neither overflow nor vanish."""
    largest = float(np.abs(found).max()), float(np.abs(due).max())
    if not all(largest):
        return None
    one, other = (found / largest[0]).ravel(), (due / largest[1]).ravel()
    value = float(np.real(np.vdot(one, other))) / (float(np.linalg.norm(one)) * float(np.linalg.norm(other)))
    return max(-1.0, min(1.0, value))
