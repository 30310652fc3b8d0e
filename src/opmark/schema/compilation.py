"""Compilation: how long compiling an operator took, and what it produced. Run time is stored elsewhere."""

from __future__ import annotations

from msgspec import Struct


class Compilation(Struct, frozen=True):
    cold: float
    """Seconds of compiling with empty caches."""
    cached: float | None = None
    """Seconds of compiling again in the same process, with the framework's caches filled; None if it has none."""
    graphs: int | None = None
    """Number of graphs that the function was compiled into: more than one after a graph break."""
    breaks: tuple[str, ...] = ()
    """The reason for each graph break."""
    operators: tuple[str, ...] = ()
    """Operators in the compiled graphs, in the framework's own names: proof that ours is among them."""
    kernels: tuple[str, ...] = ()
    """Kernels that the compiler generated, where it names them."""
    cache: str = ""
    """The cache that makes the second compilation fast: FX graph cache, in-memory cache, none."""
