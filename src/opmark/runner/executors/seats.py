"""The driver's end of seats: opens them, gives them units, hears what they say, and notices which are lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmark.runner.executors.cluster import Node, RayCluster
from opmark.runner.executors.units import Bundle
from opmark.runner.session import Retries
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Record, Task
from opmark.schema.fleet import (
    EnvironmentFound,
    FileWritten,
    NodeSaid,
    ProfilerChoice,
    SeatMessage,
    SeatOptions,
    Unit,
    encode,
)
from opmark.schema.record import utc_now

SILENCE = 8.0
"""Seconds without an answer after which a seat counts as lost; it answers every other second, however busy it is."""
TRIES = 2
"""How often a task is tried on nodes that are lost while they run it."""
OPENING = 60.0
"""Seconds that Ray may take to start a seat, and its node to examine itself."""
AGAIN = (5.0, 60.0)
"""Seconds after which a node that took no work is asked again: at first, and at most, since asking is work too."""
LOOK_EVERY = 1.0
"""Seconds between two looks at who is in the cluster."""
_CLOSING = 10.0


@dataclass(frozen=True)
class FleetOptions:
    """What a run wants from a fleet."""

    command: str = "opmark"
    """What the owner of a lease is doing, for others who wait for the device."""
    run: str = ""
    unfit: bool = False
    """Whether nodes that find themselves unfit to measure on are used all the same."""
    wait: float = 600.0
    """Seconds to wait while no node takes work."""
    clocks: str = ""
    profilers: tuple[ProfilerChoice, ...] = ()


@dataclass
class SeatState:
    """A seat, seen from the driver."""

    node: Node
    device: str
    count: int
    actor: Any
    ref: Any
    """The answer that the driver waits for."""
    since: float
    """When it was asked."""
    ready: bool = False
    devices: tuple[str, ...] = ()
    """Names of the devices that it has leased."""
    unit: int = 0
    bundles: list[Bundle] = field(default_factory=list)
    pending: dict[str, Task] = field(default_factory=dict)
    """Tasks of the unit that have no record yet, by id."""
    begun: str = ""
    received: int = 0
    started: float = 0.0
    spent: float = 0.0
    """Seconds that the tasks of the unit took, by their records."""


class SeatDesk:
    """Opens seats on the nodes of a cluster, and talks to them."""

    def __init__(self, cluster: RayCluster, options: FleetOptions) -> None:
        self.options = options
        self._cluster = cluster
        self._ray: Any = cluster.ray
        self._units = 0

    def next_unit(self) -> int:
        self._units += 1
        return self._units

    def open_seat(
        self, node: Node, device: str, count: int, options: WorkerOptions, retries: Retries, *, keep: bool, fit: bool
    ) -> SeatState:
        wanted = self.options
        told = SeatOptions(
            node.name, device, self._cluster.owner(wanted.command), options.timeout, options.compile_timeout,
            retries.most, retries.fewer_threads, wanted.clocks, str(Path.cwd()), wanted.run, wanted.profilers, keep,
            fit and not wanted.unfit,
        )  # fmt: skip
        actor = self._cluster.start_seat(node, device, count, encode(told))
        return SeatState(node, device, count, actor, actor.open.remote(), time.monotonic())

    def give(self, seat: SeatState, unit: Unit) -> None:
        seat.unit, seat.begun, seat.spent = unit.number, "", 0.0
        seat.pending = {task.id: task for task in (*unit.tasks, *(t for job in unit.jobs for t in job.tasks))}
        seat.started = time.monotonic()
        seat.actor.submit.remote(encode(unit))
        self.ask(seat)

    def ask(self, seat: SeatState) -> None:
        seat.ref, seat.since = seat.actor.news.remote(seat.received), time.monotonic()

    def drop(self, seat: SeatState) -> None:
        """End a seat that is lost or has never been one. Its lease expires."""
        seat.ref = None
        self._ray.kill(seat.actor)

    def drop_all(self, seats: Sequence[SeatState]) -> None:
        """End seats. Those without work give their devices back at once."""
        closing = [seat.actor.close.remote() for seat in seats if seat.ready and not seat.pending]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSING)
        for seat in seats:
            self.drop(seat)

    def answers(self, refs: Sequence[Any], timeout: float) -> set[Any]:
        """Return those of the answers that have come, at the latest after so many seconds."""
        if not refs:
            time.sleep(timeout)
            return set()
        ready, rest = self._ray.wait(list(refs), num_returns=1, timeout=timeout)
        if ready and rest:
            ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return set(ready)

    def read(self, ref: Any) -> tuple[Any, str]:
        """Return (the answer, why there is none)."""
        try:
            return self._ray.get(ref, timeout=_CLOSING), ""
        except self._ray.exceptions.RayTaskError as error:  # opmark on that node
            return None, f"a defect of opmark on this node: {str(error).strip().splitlines()[-1][:300]}"
        except self._ray.exceptions.RayError as error:
            return None, _why_lost(error)


def take_note(
    message: SeatMessage, node: Node, options: WorkerOptions, profilers: Sequence[ProfilerChoice] = ()
) -> None:
    """Pass on what is no record: environments, what is said, files of the profilers that were asked for."""
    if isinstance(message, NodeSaid):
        options.say(f"node {node.name}: {message.text}")
    elif isinstance(message, EnvironmentFound):
        options.keep(message.environment)
    elif isinstance(message, FileWritten) and profilers:
        folder = Path(profilers[0].folder)
        folder.mkdir(parents=True, exist_ok=True)
        # The name comes from another machine: it must not lead out of the folder.
        (folder / Path(message.name).name).write_bytes(message.content)


def _why_lost(error: Exception) -> str:
    kind = type(error).__name__
    text = " ".join(str(error).split())
    for mark, words in _LOSSES.items():
        if mark in text:
            return words
    return _KINDS.get(kind, f"{kind}: {text[:200]}")


_LOSSES = {
    "node was terminated": "the node left the cluster",
    "The actor died because its node has died": "the node died",
    "The node that": "the node died",
    "killed by SIGKILL": "its process was killed (SIGKILL)",
    "ray.kill": "its process was ended",
    "connection error code 2": "its process died, or the node did",
}


_KINDS = {
    "ActorDiedError": "the process that measured died",
    "ActorUnavailableError": "the process that measured cannot be reached any more",
    "NodeDiedError": "the node died",
}


def record_of_loss(task: Task, tried: Sequence[str]) -> Record:
    """The record of a task on which nodes were lost: nothing says whether the task is to blame."""
    return Record(
        task, "killed", f"nodes were lost while running it: {'; '.join(tried)}", started=utc_now(), stage="run"
    )
