"""Runs tasks on the nodes of a Ray cluster, under leases: plans in units, and two sides in turns on one device.

The driver trusts its own list of tasks alone: a record counts if its task has none yet. So a node that comes back late,
or is taken for dead and is not, changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from opmark.errors import UserError
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.runner.executors.base import Announce, Resumed
from opmark.runner.executors.cluster import Node, RayCluster, resource_of
from opmark.runner.executors.dispatch import Dispatch
from opmark.runner.executors.seats import (
    AGAIN,
    OPENING,
    SILENCE,
    TRIES,
    FleetOptions,
    SeatDesk,
    SeatState,
    record_of_loss,
    take_note,
)
from opmark.runner.plan import Plan
from opmark.runner.session import Job, Retries
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Record
from opmark.schema.fleet import FleetState, SeatAnswer, TaskDone, Unit, UnitEnded, UnitJob, decode_news
from opmark.units import seconds


class RayExecutor:
    """Runs plans on the nodes of a cluster that have one kind of chip."""

    def __init__(self, cluster: RayCluster, options: FleetOptions) -> None:
        self.threads: int | None = None
        self._cluster = cluster
        self._desk = SeatDesk(cluster, options)
        self._session: SeatState | None = None
        """The seat on which sides are measured in turns."""

    def begin(self, run: str) -> None:
        """Take note of the run that is measured: files of its profilers have its name."""
        self._desk.options = replace(self._desk.options, run=run)

    def choose_kind(self, names: Sequence[str]) -> None:
        """Find the nodes for backends, and let tasks have as many threads as these have cores. Raise UserError where no
        node has any of them, or nodes of several kinds have."""
        infos = [find_backend(name) for name in names]
        there = [info for info in infos if not self.why_missing(info)] or infos
        for device in dict.fromkeys(info.device for info in there):
            nodes = self._cluster.one_kind([info for info in there if info.device == device])
            self.threads = min(int(node.report.host["cores"]) for node in nodes if node.report)

    def why_missing(self, info: BackendInfo) -> str | None:
        return self._cluster.why_missing(info)

    def why_no_device(self, device: str) -> str | None:
        resource = resource_of(device)
        if not resource or any(node.resources.get(resource) for node in self._cluster.nodes.values()):
            return None
        return f"no node of the cluster has a {resource}"

    def run(self, plan: Plan, options: WorkerOptions, retries: Retries, resumed: Resumed) -> Iterator[list[Record]]:
        dispatch = Dispatch(self._cluster, self._desk, plan, options, retries, resumed)
        try:
            yield from dispatch.batches()
        finally:
            dispatch.close()
        if plan.skipped:
            yield list(plan.skipped)

    def nodes_for(self, backend: str) -> list[Node]:
        """Return the nodes of one kind that can run a backend."""
        return self._cluster.one_kind([find_backend(backend)])

    def on_node(self, node: Node) -> RayExecutor:
        """Return an executor that uses one node alone."""
        return RayExecutor(self._cluster.alone(node), self._desk.options)

    def run_jobs(self, jobs: Sequence[Job], options: WorkerOptions, announce: Announce) -> Iterator[tuple[int, Record]]:
        """Do jobs on one device. Their records come when all of them are there: if the node is lost, all jobs are done
        once more on another one, so that both sides of a pair are of the same device."""
        if any(side is not None and side.checkout for _, side in jobs):
            raise UserError(
                "a revision is measured where its files are, and these are not on the nodes of a fleet",
                "leave --executor out, or compare backends, threads, interpreters or variables",
            )
        unit_jobs = tuple(
            UnitJob(group.backend, group.threads, group.ranks, tuple(group.tasks), side)
            for group, side in jobs if side is not None
        )  # fmt: skip
        tried: list[str] = []
        while True:
            seat = self._session or self._open_session(jobs, options, tried)
            announce(0)
            found, lost = self._run_on(seat, Unit(0, jobs=unit_jobs), options)
            if not lost:
                yield from found
                return
            self._desk.drop(seat)
            self._session = None
            tried.append(f"{seat.node.name}: {lost}")
            if len(tried) >= TRIES:
                for position, (group, _) in enumerate(jobs):
                    for task in group.tasks:
                        yield position, record_of_loss(task, tried)
                return
            options.say(f"node {tried[-1]}; both sides are measured once more on another one")

    def close(self) -> None:
        if self._session:
            self._session.pending.clear()
            self._desk.drop_all([self._session])
        self._cluster.close()

    # Two sides in turns.

    def _open_session(self, jobs: Sequence[Job], options: WorkerOptions, tried: Sequence[str]) -> SeatState:
        """Open the seat on which all turns are measured. Raise UserError where no node takes it in time."""
        infos = [find_backend(group.backend) for group, _ in jobs]
        count = max(1, *(group.ranks for group, _ in jobs))
        avoid = {text.partition(":")[0] for text in tried}
        until, reasons = time.monotonic() + self._desk.options.wait, dict[str, str]()
        while True:
            self._cluster.refresh()
            nodes = self._cluster.one_kind(infos, every=True)
            state: FleetState = self._cluster.book.state()
            for node in [n for n in nodes if n.name not in avoid] or nodes:
                if taken := self._cluster.why_taken(node, infos[0].device, count, state):
                    if reasons.get(node.name) != taken:
                        options.say(f"node {node.name} takes no work: {taken}")
                    reasons[node.name] = taken
                    continue
                fit = any(info.computes for info in infos)
                seat = self._desk.open_seat(node, infos[0].device, count, options, Retries(0), keep=False, fit=fit)
                reasons[node.name] = "Ray has given its cores or devices to other work"
                if self._desk.answers([seat.ref], OPENING):
                    answer, lost = self._desk.read(seat.ref)
                    reasons[node.name] = lost or msgspec.json.decode(answer, type=SeatAnswer).reason
                if not reasons[node.name]:
                    seat.ready = True
                    self._session = seat
                    return seat
                options.say(f"node {node.name} takes no work: {reasons[node.name]}")
                self._desk.drop(seat)
            if time.monotonic() > until:
                listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
                raise UserError(f"no node takes the work: {listed}", "--wait says how long to wait")
            time.sleep(AGAIN[0])

    def _run_on(
        self, seat: SeatState, unit: Unit, options: WorkerOptions
    ) -> tuple[list[tuple[int, Record]], str]:  # fmt: skip
        """Return (position and record of each task, why the seat was lost)."""
        self._desk.give(seat, unit)
        found: list[tuple[int, Record]] = []
        while True:
            if not self._desk.answers([seat.ref], SILENCE):
                return found, f"no answer within {seconds(SILENCE)}"
            answer, lost = self._desk.read(seat.ref)
            if lost:
                return found, lost
            news = decode_news(answer)
            seat.received = news.upto
            for message in news.messages:
                if isinstance(message, TaskDone):
                    found.append((message.job, message.record))
                elif isinstance(message, UnitEnded):
                    return found, message.reason
                else:
                    take_note(message, seat.node, options)
            self._desk.ask(seat)
