"""Factors from their logarithms."""

from __future__ import annotations

import math

_MOST = 700.0
"""The factor of e**709 is the last that is a number."""


def exp(logarithm: float) -> float:
    """Of what no machine differs by, the largest or smallest factor; values at both ends of what numbers there are
    would have one that is none."""
    return math.exp(min(max(logarithm, -_MOST), _MOST))
