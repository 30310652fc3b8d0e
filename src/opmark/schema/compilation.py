"""Compilation: what turning an operator into code took, and what came of it. Kept apart from what running it takes."""

from __future__ import annotations

from msgspec import Struct


class Compilation(Struct, frozen=True):
    cold: float
    """Seconds, with empty caches."""
    cached: float | None = None
    """Seconds of doing the same again in the same process, with what the framework has kept of the first time; None
    where it keeps nothing."""
    graphs: int | None = None
    """Pieces that the function was compiled into: more than one where the compiler gave up in between."""
    breaks: tuple[str, ...] = ()
    """Why it gave up, once for each time."""
    operators: tuple[str, ...] = ()
    """What the compiler was given: the proof that the operator is in there. In the framework's own names."""
    kernels: tuple[str, ...] = ()
    """What it made of them, where it tells."""
    cache: str = ""
    """What keeps the second time short: FX graph cache, in-memory cache, none."""
