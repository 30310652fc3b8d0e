"""A picture: its size, and what is in it."""

from __future__ import annotations

from typing import NamedTuple


class Picture(NamedTuple):
    width: float
    height: float
    parts: list[str]
