"""Peaks: what a chip can do at most, from its datasheet or measured by `calibrate`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

MEMORY = "memory"
# Data up to so many times the last cache may still be found there in part.
_PARTLY = 4


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """A cache, or the memory behind them."""

    name: str
    """`L1`, `L2`, `L3`, `memory`."""
    bandwidth: float
    """Bytes a second, read and written together."""
    nbytes: int | None = None
    """How much it holds; None for memory."""
    by: dict[str, float] = {}
    """Where it was measured: by each of `copy` and `triad`, of which `bandwidth` is the better."""


class Peaks(Struct, frozen=True, forbid_unknown_fields=True):
    chip: str
    """Name of the GPU or the processor, as the driver or the kernel tells it."""
    source: str
    """The datasheet, or the run in which it was measured."""
    flops: dict[str, float]
    """Dense, a second, by element type; `float32` without TF32."""
    levels: list[Level]
    """The smallest first, memory last."""
    aliases: list[str] = []
    """Other names that the same chip goes by."""
    launch: dict[str, float] = {}
    """Seconds of the smallest call: `latency`, and `host_time` where that is another."""
    threads: int | None = None
    """Of a processor: with so many it was measured."""

    def level_for(self, nbytes: int, *, cold: bool) -> Level | None:
        """Where data of that size is when a call begins, at best: a part of what just does not fit is found again."""
        caches = [level for level in self.levels if level.nbytes is not None and not cold]
        for level in caches:
            if nbytes <= (level.nbytes or 0) * (_PARTLY if level is caches[-1] else 1):
                return level
        return next((level for level in self.levels if level.name == MEMORY), None)


def kept_under(facts: dict[str, Any]) -> str:
    """The name under which findings about it are kept: a processor with fewer threads is another machine."""
    name = chip(facts)
    return name if facts.get("gpu") else f"{name} ×{facts.get('threads', 1)}"


def chip(facts: dict[str, Any]) -> str:
    """What computes in an environment; a device that tells no name is not the processor next to it."""
    if facts.get("gpu"):
        return str(facts["gpu"])
    processor, device = str(facts.get("cpu") or "unknown"), facts.get("device") or "cpu"
    return processor if device == "cpu" else f"{device} of {processor}"
