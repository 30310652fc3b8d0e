"""Times of day as pages show them."""

from __future__ import annotations


def when(started: str) -> str:
    """`2030-01-01T03:00:00.000+00:00` -> `2030-01-01 03:00:00`, UTC as everywhere."""
    return started[:19].replace("T", " ")
