"""Numerics: how far one output is from the float64 reference. It serves to compare frameworks and is no verdict."""

from __future__ import annotations

from msgspec import Struct


class Numerics(Struct, frozen=True):
    """Errors over the elements that are finite on both sides; other elements are only counted. None if unknown, not
    0."""

    elements: int
    compared: int
    """Number of elements that are finite in the output and in the reference."""
    nan: int
    """Number of NaN in the output."""
    inf: int
    """Number of infinite elements in the output."""
    nan_expected: int
    inf_expected: int
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    """Relative to the reference, over the elements whose reference is not 0."""
    mean_rel: float | None = None
    cosine: float | None = None
    """Cosine of the angle between output and reference as vectors; None if one of them is all zeros."""
    max_ulp: float | None = None
    """Error in units in the last place (ULP) of the output's type at the reference; None for integers."""
    mean_ulp: float | None = None
