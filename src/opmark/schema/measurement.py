"""Measurement: raw samples of one quantity, how they were taken, why sampling stopped, and cautions."""

from __future__ import annotations

from statistics import median
from typing import Literal

from msgspec import Struct

from opmark.schema.load import LoadFacts

# Conditions: what the machine did while samples were taken.


class SensorReading(Struct, frozen=True):
    """One reading of the sensors; a field is None if there is no such sensor."""

    at: int = 0
    """Number of samples taken before this reading."""
    clock: float | None = None
    """Clock in hertz of the unit that computes: the multiprocessors of a GPU, the cores of a CPU."""
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    throttle: tuple[str, ...] = ()
    """Why the clock is held down: `power`, `temperature`, `hardware`."""


class Conditions(Struct, frozen=True):
    readings: tuple[SensorReading, ...] = ()
    highest_clock: float | None = None
    """Highest clock that this process has seen on this device, in hertz."""
    elapsed: float = 0.0
    """Seconds of wall time over which the host's counters below were watched."""
    switches: int = 0
    """Number of involuntary context switches."""
    load: float = 0.0
    """Load average of the minute before."""
    others: float | None = None
    """Number of cores that other processes kept busy."""
    steal: float | None = None
    """Share of the time that the hypervisor gave to other virtual machines."""
    waited: float | None = None
    """Seconds for which threads of the process could have run and had no core, all together; None if the system does
    not tell."""

    @property
    def clocks(self) -> list[float]:
        return [reading.clock for reading in self.readings if reading.clock]

    def at(self, sample: int) -> tuple[SensorReading, ...]:
        """Return the readings before and after a sample."""
        before = [reading for reading in self.readings if reading.at <= sample][-1:]
        after = [reading for reading in self.readings if reading.at > sample][:1]
        return (*before, *after)


CLOCK_MOVED = 0.01
"""Relative difference of two clocks from which on times are shown in cycles too."""


def clock_moved(before: float, after: float) -> bool:
    return abs(after / before - 1) > CLOCK_MOVED


# Quantity: what can be measured of a call. A number without its quantity means nothing.

Cache = Literal["cold", "warm", "rotated"]
CACHES: tuple[Cache, ...] = ("cold", "warm", "rotated")
"""`cold`: inputs and outputs are in no cache when the call begins. `warm`: they are where the last call left them.
`rotated`: calls work on many sets of data in turn, as in a model with an operator in each layer."""


class Quantity(Struct, frozen=True):
    name: str
    meaning: str
    use: str
    """When to look at this quantity."""
    on: Literal["device", "host", "any"]
    """Where it exists: on a device with its own clock, on a host that launches asynchronously, or anywhere."""
    unit: Literal["s", "J"] = "s"


REQUEST_LATENCY = "request_latency"
"""The quantity of a load."""
CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME = "corun_latency", "makespan", "sequence_time"
"""Quantities of operators that run together, or alone in turns with that."""
NAMED_BY_TIMER = frozenset({REQUEST_LATENCY, CORUN_LATENCY, MAKESPAN, SEQUENCE_TIME})
"""Quantities whose timer is the text of `Settings.circumstances`: the load, or what ran at the same time."""

_ALL = (
    Quantity(
        "device_time",
        "time that the device worked for the call: the sum over its kernels, copies and fills",
        "how good are the kernels; to hold against a profiler, the roofline and another chip",
        "device",
    ),
    Quantity(
        "device_span",
        "from the start of the call's first kernel to the end of its last, with launches out of the way",
        "what a call costs inside a captured graph or a full queue: gaps between its kernels count",
        "device",
    ),
    Quantity(
        "unqueued_time",
        "time that the device worked for a call that found it idle: the sum over its kernels, copies and fills",
        "code that waits for each result; a kernel that starts behind another finds its instructions loaded",
        "device",
    ),
    Quantity(
        "latency",
        "from the call until its work is done, waiting included",
        "what one caller waits for; on a CPU the time of the operator",
        "any",
    ),
    Quantity(
        "host_time",
        "from the call until it returns, even if its work is not done yet",
        "launch cost: where it exceeds device_time, the framework and not the device is the limit",
        "host",
    ),
    Quantity(
        "throughput",
        "time per call of many back-to-back calls with one wait at the end",
        "sustained speed, with launches overlapping work and clocks under lasting load",
        "any",
    ),
    Quantity(
        "event_time",
        "between two events recorded around the call, gaps between launches included",
        "to compare with tools that time this way (PARAM's continuous_events); device_time is the truer one",
        "device",
    ),
    Quantity(
        REQUEST_LATENCY,
        "from the moment that a request of a client is due until its answer, with all clients at work",
        "what users of a served model wait for: percentiles under load (--clients, --arrival)",
        "any",
    ),
    Quantity(
        CORUN_LATENCY,
        "from the call until its work is done, while other operators run in a loop; or alone, in turns with that",
        "how much neighbours slow an operator down: `opmark corun`",
        "any",
    ),
    Quantity(
        MAKESPAN,
        "from the common start of several operators until the last is done, per round of one call each",
        "what running them together takes: `opmark corun`",
        "any",
    ),
    Quantity(
        SEQUENCE_TIME,
        "time of the same calls one operator after the other, each with what it is fastest with alone",
        "what `makespan` is held against",
        "any",
    ),
    Quantity(
        "energy",
        "energy per call of a loop that is long compared with the sensor's step, idle power included",
        "joules per call and flops per joule; only where the device or the processor counts its energy",
        "any",
        "J",
    ),
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ALL}


def is_clocked(quantity: str) -> bool:
    """Return whether a quantity is a time of what the sensors' clock drives: energy and the time of a host beside a
    device are not."""
    found = QUANTITIES.get(quantity)
    return found is None or (found.unit == "s" and found.on != "host")


Stop = Literal["precise", "budget", "count"]
"""`precise`: the interval is narrow enough. `budget`: time ran out first. `count`: the requested number was taken."""


PREEMPTED = "preempted"
"""Code of the one caution that makes a number worthless: it measures the scheduler, not the operator."""


class Caution(Struct, frozen=True):
    """A reason to doubt a number: the observation, its limit, and what to do."""

    code: str
    message: str
    hint: str = ""


class Kernel(Struct, frozen=True):
    """A kernel, a copy or a fill that ran on the device for a call."""

    name: str
    count: float
    """Launches per call."""
    time: float
    """Seconds per call, over all its launches."""


class CrossCheck(Struct, frozen=True):
    """The median that another timer measured for the same calls."""

    timer: str
    median: float


class Measurement(Struct, frozen=True):
    quantity: str
    """A key of QUANTITIES."""
    cache: Cache
    timer: str
    """How the samples were timed; for quantities in NAMED_BY_TIMER, the load or the company."""
    samples: list[float]
    """Seconds (or joules) per call, in the order taken, outliers included, without the harness's own cost."""
    calls: int
    """Calls per sample: each sample is the mean of that many back-to-back calls."""
    overhead: float
    """Seconds per call that were subtracted from each sample as the harness's own cost."""
    warmup_calls: int
    warmup_time: float
    stop: Stop
    cautions: tuple[Caution, ...] = ()
    control: str = ""
    """How the caches were made cold."""
    conditions: Conditions = Conditions()
    kernels: tuple[Kernel, ...] = ()
    """For device_time: the kernels that it is the sum of."""
    check: CrossCheck | None = None
    by_rank: tuple[tuple[float, ...], ...] = ()
    """Samples of each rank, if several ranks measured together; `samples` then holds the slowest rank's each time."""
    warmup_samples: tuple[float, ...] = ()
    """Seconds of each warm-up call, if their number was fixed and the clock can time single calls."""
    load: LoadFacts | None = None
    """For request_latency: the load, and what was seen of it."""

    @property
    def per_call(self) -> float | None:
        """Seconds or joules of a call: the median of the samples; under load the time of one answer, since several are
        in work at once. None without samples."""
        if not self.samples:
            return None
        return self.load.window / len(self.samples) if self.load else median(self.samples)

    @property
    def disturbed(self) -> bool:
        """Whether the scheduler spoilt the number."""
        return any(caution.code == PREEMPTED for caution in self.cautions)

    @property
    def throttled(self) -> list[int]:
        """Indices of the samples that were taken while the clock was throttled."""
        held = {reading.at for reading in self.conditions.readings if reading.throttle}
        if not held:
            return []
        return [i for i in range(len(self.samples)) if any(r.throttle for r in self.conditions.at(i))]
