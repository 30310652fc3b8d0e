"""Peaks: the highest rates of a chip, from its datasheet or measured by `calibrate`."""

from __future__ import annotations

from math import inf, log
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opmark.schema.tensor import DTYPES

MEMORY = "memory"
# Data of this many times the size of a cache or more is limited by what is behind the cache, however fast that one is.
_SURE = 4

UNSTORED = ("tfloat32", "int4", "float4_e2m1fn")
"""Types that chips multiply but no tensor here has. `tfloat32` is float32, rounded on input: it has another peak."""
RATED = (*DTYPES, *UNSTORED)
"""Every element type that may have a peak."""


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """A cache, or the memory behind them."""

    name: str
    """`L1`, `L2`, `L3`, `SRAM`, `memory`."""
    bandwidth: float | None = None
    """Bytes per second, reads and writes together; None if unknown."""
    nbytes: int | None = None
    """Capacity in bytes of all instances together; None for memory."""
    by: dict[str, float] = {}
    """For a measured level: the bandwidth by `copy` and by `triad`; `bandwidth` is the better one."""


class Interconnect(Struct, frozen=True, forbid_unknown_fields=True):
    """How a chip reaches others of its kind."""

    name: str
    """`NVLink 4`, `Infinity Fabric`, `PCIe Gen4 x16`."""
    bandwidth: float | None = None
    """Bytes per second out of one chip over all links, in one direction: half of a sheet's bidirectional figure."""
    links: int | None = None


class MovingTime(NamedTuple):
    seconds: float
    level: str
    """Name of the level that limits it."""


class Peaks(Struct, frozen=True, forbid_unknown_fields=True):
    chip: str
    """Name of the GPU or the processor, as the driver or the kernel reports it."""
    source: str
    """The datasheet, or the run that measured the peaks."""
    flops: dict[str, float]
    """Dense operations per second by element type; `float32` without TF32, which is `tfloat32`."""
    levels: list[Level]
    """The smallest first, memory last."""
    aliases: list[str] = []
    """Other names that the same chip goes by."""
    launch: dict[str, float] = {}
    """Seconds of the smallest call: `latency`, and `host_time` where that differs."""
    threads: int | None = None
    """For a processor: number of threads that measured it."""
    vendor: str = ""
    memory: int | None = None
    """Bytes of memory by the datasheet; None for a processor, whose memory depends on the machine."""
    interconnect: list[Interconnect] = []
    power: float | None = None
    """Thermal design power in watts."""
    cores: int | None = None
    """For a processor: number of cores; the peaks are those of all cores."""
    notes: dict[str, str] = {}
    """How a figure (`flops.float16`) was derived, or its source if that is not `source`."""
    backend: str = ""
    """Backend that measured the peaks; launch times differ between backends. Empty in a datasheet."""
    multiprocessors: int | None = None
    """For a GPU: number of multiprocessors, which work on tiles in waves."""
    clock: float | None = None
    """For a GPU: boost clock in hertz."""
    process: float | None = None
    """Nanometres of the process that it is made in, as the maker calls it."""

    @property
    def memory_bandwidth(self) -> float | None:
        return next((level.bandwidth for level in self.levels if level.name == MEMORY), None)

    def moving_time(self, nbytes: int, *, cold: bool) -> MovingTime | None:
        """Return the least time in which data can be moved; None if it is not known.

        Warm data may lie in each cache as far as it fits there. What does not fit into the caches before a level comes
        from that level or from beyond it, at most at its bandwidth, and all levels may deliver at once. So the time
        grows steadily with the size. Cold data is in memory.
        """
        found, held = MovingTime(0.0, MEMORY), 0
        for level in self.levels:
            if (cold and level.name != MEMORY) or held >= nbytes:
                continue
            if level.bandwidth is None:
                if level.nbytes is None or nbytes < _SURE * level.nbytes:
                    return None
            elif (seconds := (nbytes - held) / level.bandwidth) > found.seconds:
                found = MovingTime(seconds, level.name)
            held = nbytes if level.nbytes is None else max(held, level.nbytes)
        return found if held >= nbytes else None

    def of_threads(self, threads: int | None) -> Peaks:
        """Return the peaks of a part of a processor's cores. Memory bandwidth stays, as its share is not known."""
        if not (self.cores and threads and threads < self.cores):
            return self
        return replace(self, flops={dtype: rate * threads / self.cores for dtype, rate in self.flops.items()})


def findings_key(facts: dict[str, Any]) -> str:
    """Return the name under which findings are stored: a processor with fewer threads is another machine."""
    name = chip(facts)
    return name if _device(facts) else f"{name} ×{facts.get('threads', 1)}"


def chip(facts: dict[str, Any]) -> str:
    """Return the name of the chip that computes in an environment; a device without a name is not the processor."""
    if named := _device(facts):
        return named
    processor, device = str(facts.get("cpu") or "unknown"), facts.get("device") or "cpu"
    return processor if device == "cpu" else f"{device} of {processor}"


def _device(facts: dict[str, Any]) -> str:
    """Return the name of a device: backends report it as `gpu`, or as `chip` for any other device."""
    return str(facts.get("gpu") or facts.get("chip") or "")


# Diagnosis: facts of a machine, the backends that run on it, and what would disturb a measurement.


class DiagnosisItem(Struct, frozen=True):
    name: str
    ok: bool
    found: str
    hint: str = ""
    """What to do if it is not ok."""


class Availability(Struct, frozen=True):
    """Whether a backend can run here."""

    name: str
    summary: str
    reason: str | None
    """Why the backend cannot run; None if it can, or if nothing speaks against it so far."""
    facts: dict[str, Any] = {}
    probed: bool = True
    """Whether the backend was started to find out. Else the answer comes from metadata: what is installed."""


class NextStep(Struct, frozen=True):
    """Something worth doing on this machine."""

    command: str
    why: str


class Diagnosis(Struct, frozen=True):
    host: dict[str, Any]
    backends: list[Availability]
    findings: list[DiagnosisItem]
    next_steps: list[NextStep] = []

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


# A stored finding about a machine: its peaks or its noise.


class MachineFinding(Struct, frozen=True):
    kind: str
    """`peaks` or `noise`."""
    chip: str
    """The chip (for a processor, with its threads) that the finding is stored under."""
    started: str
    body: Any


# NoiseFloor: how much identical code differs from itself on a machine.


class Floor(Struct, frozen=True):
    """The noise of one case."""

    op: str
    params: str
    seconds: float
    """Median of the processes' medians."""
    between: float
    """Relative spread of the processes' medians: a difference below about twice this means nothing."""
    within: float
    """Relative spread of the samples within one process."""
    verdicts: int = 0
    """Number of labelings (see NoiseFloor) in which a difference was called."""
    naive: int = 0
    """The same number for a naive test that takes samples, not processes, as independent."""
    quantity: str = ""
    cache: str = ""
    """What was measured, and the state of the caches; empty in findings of 0.8, which were of the headline."""


class NoiseFloor(Struct, frozen=True):
    chip: str
    backend: str
    threads: int
    started: str
    processes: int
    """Number of fresh processes, all of the same code."""
    labelings: int
    """Number of ways to label the processes of each pair A and B."""
    floors: list[Floor]

    @property
    def false_verdicts(self) -> float:
        """Share of all labelings of all cases in which identical code was called faster or slower."""
        return sum(floor.verdicts for floor in self.floors) / max(1, self.labelings * len(self.floors))

    @property
    def naive_verdicts(self) -> float:
        return sum(floor.naive for floor in self.floors) / max(1, self.labelings * len(self.floors))

    def largest_for(self, quantity: str, cache: str) -> float | None:
        """Return the largest floor of a quantity, for a case of which nothing else is known; None if it was not
        measured."""
        return max((floor.between for floor in self._of(quantity, cache)), default=None)

    def floor_for(self, seconds: float, quantity: str, cache: str) -> float | None:
        """Return the floor of the case whose time is nearest by factor; None if the quantity was not measured."""
        timed = [floor for floor in self._of(quantity, cache) if 0 < floor.seconds < inf]
        nearest = min(timed, key=lambda floor: abs(log(floor.seconds) - log(seconds)), default=None)
        return nearest.between if nearest else None

    def _of(self, quantity: str, cache: str) -> list[Floor]:
        return [floor for floor in self.floors if (floor.quantity, floor.cache) in ((quantity, cache), ("", ""))]
