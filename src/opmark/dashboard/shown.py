"""Times of day and long texts as pages show them."""

from __future__ import annotations

MOST_LETTERS = 2_000
"""Length of a reason where many stand together; the page of a row has its whole reason."""


def when(started: str) -> str:
    """`2030-01-01T03:00:00.000+00:00` -> `2030-01-01 03:00:00`, UTC as everywhere."""
    return started[:19].replace("T", " ")


def brief(text: str) -> str:
    if len(text) <= MOST_LETTERS:
        return text
    return f"{text[:MOST_LETTERS]} … and {len(text) - MOST_LETTERS} more characters"
