"""Shares on the command line."""

from __future__ import annotations

from opmark.errors import InvalidParameter


def share(text: str, option: str) -> float:
    """`0.03` and `3%` are the same; from 0 to below 1."""
    number, scale = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        value = float(number) / scale
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise InvalidParameter(
            f"--{option}: expected a share from 0 to below 1, or in percent, got `{text}`",
            f"as in --{option} 0.03 or --{option} 3%",
        )
    return value
