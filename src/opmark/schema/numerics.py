"""Numerics: how far one output is from the float64 reference. Data to compare frameworks by, not a verdict."""

from __future__ import annotations

from msgspec import Struct


class Numerics(Struct, frozen=True):
    """Of the elements that are finite on both sides; those that are not are counted. None where there is nothing to
    tell: a number that is not known is not 0."""

    elements: int
    compared: int
    """Finite here and in the reference."""
    nan: int
    """NaN here."""
    inf: int
    """Infinite here."""
    nan_expected: int
    inf_expected: int
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    """Relative to the reference, where that is not 0."""
    mean_rel: float | None = None
    cosine: float | None = None
    """Of the angle between both, taken as vectors; None where one of them is all zeros."""
    max_ulp: float | None = None
    """In units of the last place of the output's type at the reference; None for whole numbers."""
    mean_ulp: float | None = None
