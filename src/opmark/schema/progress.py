"""Progress of a command: how many steps are done, of how many, and what is done now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

OnStep: TypeAlias = Callable[[int, int, str], None]
"""Called with the steps that are done, the steps that there are (0: unknown), and what is done now."""


def ignore_step(done: int, total: int, doing: str) -> None:
    """Show nothing."""
