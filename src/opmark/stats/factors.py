"""Compute factors from their logarithms."""

from __future__ import annotations

import math

_MOST = 700.0
"""exp(710) overflows."""


def exp(logarithm: float) -> float:
    """Return e**logarithm, limited to a finite positive number."""
    return math.exp(min(max(logarithm, -_MOST), _MOST))
