"""A fleet: nodes with devices, leases on these, and what a driver and the seats on the nodes say to each other.

A driver is the process of `opmark run --executor ray`. A seat is an actor on a node that measures on leased devices.
Every message is JSON that msgspec has encoded and checked: no object is pickled.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from opmark.schema.machine import Availability, DiagnosisItem
from opmark.schema.messages import Side
from opmark.schema.record import Environment, Record
from opmark.schema.task import Task

NODE_FACT = "node"
"""Name of the fact of an environment that says on which node of a fleet was measured."""
CPU = "cpu"
"""The device that stands for a whole node: what computes on the host disturbs everything else there."""

encode = msgspec.json.Encoder().encode


# Nodes and their devices.


class NodeRequest(Struct, frozen=True):
    """Asks a node what it is."""

    backends: tuple[str, ...] = ()
    """Names of backends, with their variants and interpreters, about which the node is asked."""
    accelerators: int = 0
    """Devices beside the processors that the engine knows on this node."""
    examine: bool = False
    """Whether the node examines itself for what would disturb a measurement, as `opmark doctor` does."""
    driver: Owner | None = None
    """Who asks: a process that is no disturbance."""


class NodeReport(Struct, frozen=True):
    """What a node says about itself."""

    opmark: str
    """Its version. It is read before anything else of the report, which another version may write differently."""
    python: str
    host: dict[str, Any]
    chips: dict[str, str]
    """By device (`cpu`, `gpu:0`): the name of the chip."""
    backends: list[Availability] = []
    findings: list[DiagnosisItem] = []


class FleetNode(Struct, frozen=True):
    """A node as `opmark fleet` shows it."""

    name: str
    address: str
    report: NodeReport | None
    reason: str
    """Why the node takes no work; empty if it does."""
    leases: list[Lease]

    @property
    def devices(self) -> list[str]:
        return list(self.report.chips) if self.report else []


def device_name(node: str, device: str) -> str:
    """Return the name under which a device is leased."""
    return f"{node}/{device}"


def conflict(one: str, other: str) -> bool:
    """Return whether two devices cannot be measured on at the same time: the same one, or the processors of a node and
    anything else there."""
    (node, _, device), (beside, _, another) = one.rpartition("/"), other.rpartition("/")
    return node == beside and (device == another or CPU in (device, another))


# Leases.


class Owner(Struct, frozen=True):
    user: str
    host: str
    what: str
    """The command that holds the lease."""
    pid: int = 0
    """Its process on that host; 0 if it is not known."""

    @property
    def text(self) -> str:
        return f"{self.user}@{self.host}: {self.what}"


class Lease(Struct, frozen=True):
    """The right to measure on devices of one node, until it expires. Its holder renews it."""

    token: str
    devices: tuple[str, ...]
    owner: Owner
    since: float
    """Seconds since the epoch, by the clock of the lease book."""
    expires: float


class LeaseAnswer(Struct, frozen=True):
    """The answer to a request for a lease, or for a longer one."""

    lease: Lease | None
    held_by: Lease | None = None
    """The lease that stands in the way."""
    drained: str = ""
    """Why the node is to take no more work: who has said so, and when."""
    idle: float = 0.0
    """Seconds for which nobody has measured on the node."""


class FleetState(Struct, frozen=True):
    """What the lease book knows."""

    leases: list[Lease] = []
    drained: dict[str, str] = {}
    """By node: why it takes no work."""


# Seats: what a driver tells them, and what they answer.


class ProfilerChoice(Struct, frozen=True):
    """The part of a `Profiling` that another machine can use."""

    profiler: str
    bin: str | None
    args: tuple[str, ...]
    warmup: int
    iterations: int
    batch: int
    command: str | None
    timeout: float
    folder: str
    """The folder of the driver that the files go to."""


class SeatOptions(Struct, frozen=True):
    """How a seat measures, for as long as it exists."""

    node: str
    device: str
    """`cpu`, or `gpu` for accelerators, which the engine then chooses."""
    owner: Owner
    timeout: float
    compile_timeout: float
    retries: int
    fewer_threads: bool = False
    clocks: str = ""
    folder: str = ""
    """The current folder of the driver: where there is one of this name on the node, workers start there."""
    run: str = ""
    """Id of the run, with which names of profiles begin."""
    profilers: tuple[ProfilerChoice, ...] = ()
    keep_workers: bool = False
    """Whether a worker goes on with the next unit: so where every case has a single process."""
    must_be_fit: bool = True
    """Whether the seat examines its node before it takes work, and takes none where something would disturb."""


class SeatAnswer(Struct, frozen=True):
    """What became of the wish to measure on a node."""

    devices: tuple[str, ...] = ()
    reason: str = ""
    """Why the seat takes no work; empty if it does."""


class UnitJob(Struct, frozen=True):
    """Tasks for one worker, and the side that it works for: `opmark ab`."""

    backend: str
    threads: int
    ranks: int
    tasks: tuple[Task, ...]
    side: Side


class Unit(Struct, frozen=True):
    """What is done on one device without a break: all rounds of some cases, or both sides of a pair."""

    number: int
    tasks: tuple[Task, ...] = ()
    jobs: tuple[UnitJob, ...] = ()
    """In place of tasks, where two sides are measured in turns."""


class NodeSaid(Struct, frozen=True, tag=True):
    text: str


class EnvironmentFound(Struct, frozen=True, tag=True):
    environment: Environment


class TaskBegun(Struct, frozen=True, tag=True):
    task: str
    """Id of the task: if the node is lost now, it may be to blame."""


class TaskDone(Struct, frozen=True, tag=True):
    record: Record
    job: int = 0
    """Position among the jobs of the unit."""


class FileWritten(Struct, frozen=True, tag=True):
    """A file of a profiler. Which folder it goes to is the driver's choice alone."""

    name: str
    content: bytes


class UnitEnded(Struct, frozen=True, tag=True):
    number: int
    reason: str = ""
    """Why tasks are left; empty where there is a record of every task."""
    failed: bool = False
    """Whether the seat could not do the unit: else its node wants no more work now."""


SeatMessage = NodeSaid | EnvironmentFound | TaskBegun | TaskDone | FileWritten | UnitEnded


class SeatNews(Struct, frozen=True):
    """What a seat has to say since it was last asked."""

    messages: list[SeatMessage]
    upto: int
    """Number of messages so far: the driver has all of them once it asks for those after this number."""


decode_news = msgspec.json.Decoder(SeatNews).decode


# Agreement: whether nodes of one kind are equally fast.


class NodeRatio(Struct, frozen=True):
    """The time of a node over that of all nodes of its kind."""

    node: str
    ratio: float
    low: float
    high: float
    """Ends of the interval of the ratio."""
    verdict: str
    """agrees, differs, undecided."""
    case: str = ""
    """The case that the node differs in; empty: all cases together."""


class Agreement(Struct, frozen=True):
    """Result of `opmark fleet agree`: which nodes of a kind are equally fast."""

    kind: str
    backend: str
    started: str
    margin: float
    processes: int
    nodes: list[NodeRatio]
    """All cases together, one entry per node."""
    cases: list[NodeRatio] = []
    """Single cases in which a node differs."""

    def interchangeable(self, nodes: set[str]) -> bool:
        """Return whether all of these nodes agree."""
        return nodes <= {one.node for one in self.nodes if one.verdict == AGREES}


AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "undecided"
AGREEMENT = "agreement"
"""Kind of finding under which a store keeps it."""
