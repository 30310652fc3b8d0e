"""Checks one call of a candidate, or a part of it: every element against the reference, and all errors together against
rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from opmark.errors import WrongResult
from opmark.plugin import Operator, Params
from opmark.schema.tensor import is_float
from opmark.worker.judge.process import Refused
from opmark.worker.verify.accuracy import ROUNDING
from opmark.worker.verify.outputs import compare_outputs, output_arrays
from opmark.worker.verify.slices import ALL, Part, as_tuple

PRECISION = 8.0
"""Errors may be this many times those of the baseline, or of rounding once to the element type after a sum in float32.
A sum of n terms in 16 bits has about sqrt(n / 2) times the error of rounding once, so that from 128 terms on it shows;
a product in TF32 or bfloat16 has a thousand times the error of one in float32."""


class Checked(NamedTuple):
    max_abs: float
    max_rel: float
    errors: tuple[float, ...]
    """Root mean square of the errors of each output that is a float; empty if the operator observes its outputs."""
    rounding: tuple[float, ...]
    """Root mean square of the errors that rounding explains."""


def check_call(
    operator: Operator,
    params: Params,
    inputs: Mapping[str, Any],
    outputs: Sequence[Any],
    dtypes: Sequence[str],
    part: Part = ALL,
    positions: Sequence[Mapping[int, Any]] = (),
) -> Checked:
    """Compare the outputs of one call with the reference. Raise WrongResult for one that is too far off. Inputs and
    outputs are those of a part of the case, if one is given; `positions` says where in the outputs it is."""
    smaller = part.params(operator, params)
    expected = as_tuple(operator.reference(smaller, **inputs))
    if operator.observe:
        seen = output_arrays(operator, smaller, tuple(outputs), inputs)
        found = compare_outputs(operator, params, seen, expected)
        return Checked(found.max_abs, found.max_rel, (), ())
    _check_written(outputs, expected)
    found = compare_outputs(operator, params, outputs, expected, positions=positions)
    floats = [i for i, dtype in enumerate(dtypes) if is_float(dtype)]
    terms = operator.tolerance.terms(params)
    return Checked(
        found.max_abs,
        found.max_rel,
        tuple(_root_mean_square(outputs[i] - expected[i]) for i in floats),
        tuple(_rounding(dtypes[i], terms) * _root_mean_square(expected[i]) for i in floats),
    )


def compute_excess(found: Checked, baseline: Sequence[float]) -> float:
    """Return the largest error over what is accepted, given those of the baseline; above 1 it is imprecise."""
    allowed = [PRECISION * max(pair) for pair in zip(found.rounding, baseline, strict=True)]
    ratios = [error / limit for error, limit in zip(found.errors, allowed, strict=True) if limit > 0]
    return max(ratios, default=0.0)


def refuse_imprecise(excess: float) -> None:
    if excess > 1:
        raise Refused(
            "imprecise",
            f"within the tolerance, but its errors are {PRECISION * excess:.3g} times those of the baseline or of "
            f"rounding, accepted are {PRECISION:g}: it computes with fewer digits than its element type has",
        )


def _check_written(outputs: Sequence[Any], expected: Sequence[Any]) -> None:
    for i, (output, due) in enumerate(zip(outputs, expected, strict=False)):
        if output.dtype.kind != "f" or output.shape != np.shape(due):
            continue
        missing = np.isnan(output) & ~np.isnan(due)
        if missing.any():
            at = [int(index) for index in np.argwhere(missing)[0]]
            raise WrongResult(
                f"output {i}: {int(missing.sum())} of {output.size} elements were not written when it said that it was "
                f"done, or are not a number; first at {at}"
            )


def _rounding(dtype: str, terms: int) -> float:
    """Return the relative error of one rounding to the type, and of a sum of so many terms in float32, or in float64 if
    the type is that."""
    sums = ROUNDING["float64" if dtype == "float64" else "float32"]
    return max(ROUNDING[dtype], sums * sqrt(max(1, terms)))


def _root_mean_square(values: Any) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(np.sqrt(np.square(finite).mean())) if finite.size else 0.0
