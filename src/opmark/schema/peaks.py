"""Peaks: what a chip can do at most, from its datasheet or measured by `calibrate`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from opmark.schema.dtype import DTYPES

MEMORY = "memory"
# Data up to so many times the last cache may still be found there in part.
_PARTLY = 4

UNSTORED = ("tfloat32", "int4", "float4_e2m1fn")
"""What chips multiply but no tensor here is made of. `tfloat32` is float32 rounded on its way in: another peak."""
RATED = (*DTYPES, *UNSTORED)
"""Every element type that may have a peak."""


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """A cache, or the memory behind them."""

    name: str
    """`L1`, `L2`, `L3`, `SRAM`, `memory`."""
    bandwidth: float | None = None
    """Bytes a second, read and written together; None where nobody tells."""
    nbytes: int | None = None
    """How much it holds, all instances together; None for memory."""
    by: dict[str, float] = {}
    """Where it was measured: by each of `copy` and `triad`, of which `bandwidth` is the better."""


class Interconnect(Struct, frozen=True, forbid_unknown_fields=True):
    """How a chip reaches others of its kind."""

    name: str
    """`NVLink 4`, `Infinity Fabric`, `PCIe Gen4 x16`."""
    bandwidth: float | None = None
    """Bytes a second out of one chip over all its links, in one direction: half of what sheets call bidirectional."""
    links: int | None = None


class Peaks(Struct, frozen=True, forbid_unknown_fields=True):
    chip: str
    """Name of the GPU or the processor, as the driver or the kernel tells it."""
    source: str
    """The datasheet, or the run in which it was measured."""
    flops: dict[str, float]
    """Dense, a second, by element type; `float32` without TF32, which is `tfloat32`."""
    levels: list[Level]
    """The smallest first, memory last."""
    aliases: list[str] = []
    """Other names that the same chip goes by."""
    launch: dict[str, float] = {}
    """Seconds of the smallest call: `latency`, and `host_time` where that is another."""
    threads: int | None = None
    """Of a processor: with so many it was measured."""
    vendor: str = ""
    memory: int | None = None
    """Bytes that the memory holds, as the sheet says it; of a processor, that depends on what is plugged in."""
    interconnect: list[Interconnect] = []
    power: float | None = None
    """Watts that it is designed for (TDP)."""
    cores: int | None = None
    """Of a processor: the peaks are those of all of them."""
    notes: dict[str, str] = {}
    """By figure, as in `flops.float16`: how it was derived, or where it is from if not from `source`."""
    backend: str = ""
    """With which it was measured: calls of another cost something else. Empty in a datasheet."""

    @property
    def memory_bandwidth(self) -> float | None:
        return next((level.bandwidth for level in self.levels if level.name == MEMORY), None)

    def level_for(self, nbytes: int, *, cold: bool) -> Level | None:
        """Where data of that size is when a call begins, at best: a part of what just does not fit is found again."""
        caches = [level for level in self.levels if level.nbytes is not None and not cold]
        for level in caches:
            if nbytes <= (level.nbytes or 0) * (_PARTLY if level is caches[-1] else 1):
                return level
        return next((level for level in self.levels if level.name == MEMORY), None)

    def of_threads(self, threads: int | None) -> Peaks:
        """What a part of a processor's cores can compute; their share of the memory is anybody's guess and stays."""
        if not (self.cores and threads and threads < self.cores):
            return self
        return replace(self, flops={dtype: rate * threads / self.cores for dtype, rate in self.flops.items()})


def kept_under(facts: dict[str, Any]) -> str:
    """The name under which findings about it are kept: a processor with fewer threads is another machine."""
    name = chip(facts)
    return name if _device(facts) else f"{name} ×{facts.get('threads', 1)}"


def chip(facts: dict[str, Any]) -> str:
    """What computes in an environment; a device that tells no name is not the processor next to it."""
    if named := _device(facts):
        return named
    processor, device = str(facts.get("cpu") or "unknown"), facts.get("device") or "cpu"
    return processor if device == "cpu" else f"{device} of {processor}"


def _device(facts: dict[str, Any]) -> str:
    """The name of a device: a GPU is called one, anything else is a chip."""
    return str(facts.get("gpu") or facts.get("chip") or "")
