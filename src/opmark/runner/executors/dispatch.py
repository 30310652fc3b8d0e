"""One plan on its way through a fleet: who gets which unit, which records count, and what becomes of lost work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.runner.executors.base import Resumed
from opmark.runner.executors.cluster import Node, RayCluster, resource_of
from opmark.runner.executors.seats import (
    AGAIN,
    LOOK_EVERY,
    OPENING,
    SILENCE,
    TRIES,
    SeatDesk,
    SeatState,
    record_of_loss,
    take_note,
)
from opmark.runner.executors.units import Bundle, WorkQueue
from opmark.runner.plan import Plan, rank_count
from opmark.runner.session import Retries
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Record, Task
from opmark.schema.fleet import FleetState, SeatAnswer, TaskBegun, TaskDone, Unit, UnitEnded, decode_news
from opmark.schema.record import utc_now
from opmark.units import seconds


class Dispatch:
    """Gives the tasks of one plan to seats until each has a record."""

    def __init__(
        self,
        cluster: RayCluster,
        desk: SeatDesk,
        plan: Plan,
        options: WorkerOptions,
        retries: Retries,
        resumed: Resumed,
    ) -> None:
        self._cluster = cluster
        self._desk = desk
        self._options = options
        self._retries = retries
        self._infos = {task.backend: find_backend(task.backend) for task in plan.tasks}
        self._place = {task.id: i for i, task in enumerate(plan.tasks)}
        self._keep = not any(task.settings.process for task in plan.tasks)
        self._groups = self._group_backends()
        self._queue = WorkQueue(plan.tasks, self._group_of, resumed.homes)
        self._seats: list[SeatState] = []
        self._not_before: dict[tuple[str, str], float] = {}
        """By node and device: when it is asked again."""
        self._pauses: dict[tuple[str, str], float] = {}
        self._said: dict[str, str] = {}
        self._lost: dict[str, list[str]] = {}
        """By id of a task: the nodes that were lost while they ran it."""
        self._untried: dict[str, list[str]] = {}
        """By id of a task: the nodes that could not start a worker for it."""
        self._looked = time.monotonic()
        self._useful = time.monotonic()
        """When a seat last had work."""

    def batches(self) -> Iterator[list[Record]]:
        """Yield records, those that came together in one list: storing many at once is far quicker than one by one."""
        while self._queue or any(seat.pending for seat in self._seats):
            self._look_around()
            self._open_seats()
            for seat in self._seats:
                if seat.ready and not seat.pending and seat.ref is None:
                    self._give_next(seat)
            answers = self._desk.answers([seat.ref for seat in self._seats if seat.ref is not None], 0.2)
            found: list[Record] = []
            for seat in list(self._seats):
                if seat.ref is not None and seat.ref in answers:
                    found += self._hear(seat)
                elif seat.ref is not None and time.monotonic() - seat.since > (SILENCE if seat.ready else OPENING):
                    silence = f"no answer within {seconds(SILENCE)}"
                    found += self._lose(seat, silence if seat.ready else "Ray has given its cores or devices away")
            if found:
                yield found
            if any(seat.pending for seat in self._seats):
                self._useful = time.monotonic()
            elif self._seats:  # a node that is just asked may say yes
                continue
            elif time.monotonic() - self._useful > self._desk.options.wait:
                yield list(self._give_up())
                return

    def close(self) -> None:
        self._desk.drop_all(self._seats)
        self._seats.clear()

    # Who may take what.

    def _group_backends(self) -> dict[str, str]:
        """By backend: the backends of its kind of device that the same nodes have. A case is measured on all of them on
        one device, so that they can be compared."""
        self._cluster.ask_about(self._infos)
        found: dict[tuple[bool, frozenset[str]], list[str]] = {}
        for name, info in self._infos.items():
            able = frozenset(n.id for n in self._cluster.usable if not self._cluster.why_not(n, info))
            found.setdefault((bool(resource_of(info.device)), able), []).append(name)
        return {name: ",".join(names) for names in found.values() for name in names}

    def _group_of(self, task: Task) -> str:
        ranks = rank_count(task.case) if resource_of(self._infos[task.backend].device) else 0
        return f"{max(1, ranks)} {self._groups[task.backend]}"

    def _needs(self, group: str) -> tuple[str, int, list[BackendInfo]]:
        """Return (kind of device, how many of them, backends)."""
        count, _, names = group.partition(" ")
        infos = [self._infos[name] for name in names.split(",")]
        return infos[0].device, int(count), infos

    def _choice_for(self, seat: SeatState) -> tuple[Callable[[str], bool], Callable[[Bundle], bool]]:
        """Return tests for what a seat can do: which groups, and which bundles of these."""
        now, node = time.monotonic(), seat.node
        alive = {one.name for one in self._cluster.usable}
        resting = {
            one.name for one in self._cluster.usable if self._not_before.get((one.id, seat.device), 0.0) > now
        }  # fmt: skip

        def able(group: str) -> bool:
            device, count, infos = self._needs(group)
            same = resource_of(device) == resource_of(seat.device) and count == seat.count
            return same and not any(self._cluster.why_not(node, info) for info in infos)

        def fits(bundle: Bundle) -> bool:
            if bundle.home and bundle.home != node.name and bundle.home in alive - bundle.avoid - resting:
                return False
            return node.name not in bundle.avoid or alive <= bundle.avoid

        return able, fits

    def _open_seats(self) -> None:
        """Open seats on nodes that have none, as many as there are bundles for them."""
        now = time.monotonic()
        state: FleetState | None = None
        for group, bundles in self._queue.groups().items():
            device, count, infos = self._needs(group)
            same = [seat for seat in self._seats if (seat.device, seat.count) == (device, count)]
            idle = sum(not seat.pending for seat in same)
            for node in self._cluster.usable:
                if idle >= bundles:
                    break
                resource = resource_of(device)
                room = int(node.resources.get(resource, 0) // count) if resource else 1
                own = [seat for seat in self._seats if seat.node is node]
                blocked = any((resource_of(seat.device) == "") != (resource == "") for seat in own)
                taken = sum(seat.device == device for seat in own)
                if blocked or taken >= room or self._not_before.get((node.id, device), 0.0) > now:
                    continue
                if any(self._cluster.why_not(node, info) for info in infos):
                    continue
                state = state or self._cluster.book.state()
                if reason := self._cluster.why_taken(node, device, count, self._without_own(state)):
                    self._say(node, f"takes no work: {reason}")
                    self._rest(node, device)
                    continue
                fit = any(info.computes for info in infos)
                self._seats.append(
                    self._desk.open_seat(node, device, count, self._options, self._retries, keep=self._keep, fit=fit)
                )
                idle += 1

    def _give_next(self, seat: SeatState) -> None:
        """Give the next unit to a seat that has nothing to do, or close it where nothing is left that it can do."""
        seats = sum(one.device == seat.device for one in self._seats)
        able, fits = self._choice_for(seat)
        seat.bundles = self._queue.take(able, fits, seats)
        if seat.bundles:
            tasks = tuple(task for bundle in seat.bundles for task in bundle.tasks)
            # In the order of the plan, which is in rounds: a drift of the machine hits all cases alike.
            ordered = sorted(tasks, key=lambda task: self._place[task.id])
            self._desk.give(seat, Unit(self._desk.next_unit(), tuple(ordered)))
        else:
            self._seats.remove(seat)
            self._desk.drop_all([seat])

    def _look_around(self) -> None:
        """Notice nodes that have come; seats of those that are gone fail by themselves."""
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._looked = time.monotonic()
            before = set(self._cluster.nodes)
            self._cluster.refresh()
            for key in self._cluster.nodes.keys() - before:
                node = self._cluster.nodes[key]
                self._say(node, f"has joined{f', but takes no work: {node.reason}' if node.reason else ''}")

    # What seats say.

    def _hear(self, seat: SeatState) -> Iterator[Record]:
        answer, lost = self._desk.read(seat.ref)
        seat.ref = None
        if lost:
            yield from self._lose(seat, lost)
            return
        if not seat.ready:
            told = msgspec.json.decode(answer, type=SeatAnswer)
            reason, seat.devices = told.reason, told.devices
            if reason:
                self._refuse(seat, reason)
            seat.ready = not reason
            return
        news = decode_news(answer)
        seat.received = news.upto
        ended: UnitEnded | None = None
        for message in news.messages:
            if isinstance(message, TaskBegun):
                seat.begun = message.task
            elif isinstance(message, TaskDone):
                yield from self._accept(seat, message.record)
            elif isinstance(message, UnitEnded):
                ended = message
            else:
                take_note(message, seat.node, self._options, self._desk.options.profilers)
        if ended is None:
            self._desk.ask(seat)
        elif ended.failed and seat.pending:
            seat.begun = seat.begun if seat.begun in seat.pending else next(iter(seat.pending))
            yield from self._lose(seat, ended.reason)
        else:
            self._end_unit(seat, ended.reason)

    def _accept(self, seat: SeatState, record: Record) -> Iterator[Record]:
        """Yield a record whose task has none yet. A task for which this node could start no worker goes to another
        node."""
        task = record.task
        extra = (
            task.id not in seat.pending
        )  # a task with fewer threads, beside the record of the one that was asked for
        seat.pending.pop(task.id, None)
        seat.spent += record.duration
        if not record.untried:
            if not extra or self._retries.fewer_threads:
                yield record
            return
        self._cluster.reject(seat.node, task.backend, record.reason)
        nodes = self._untried.setdefault(task.id, [])
        nodes.append(seat.node.name)
        if len(nodes) < TRIES and any(
            not self._cluster.why_not(node, self._infos[task.backend]) for node in self._cluster.usable
        ):
            seat.pending[task.id] = task  # given back at the end of the unit
        else:
            yield record

    def _end_unit(self, seat: SeatState, reason: str) -> None:
        wall = time.monotonic() - seat.started
        if not seat.pending:
            self._queue.observe(len(seat.bundles), seat.spent, wall)
            self._pauses.pop((seat.node.id, seat.device), None)
            return
        self._give_back(seat)
        if reason:
            self._refuse(seat, reason)

    def _refuse(self, seat: SeatState, reason: str) -> None:
        """Close a seat whose node takes no work now; it is asked again later."""
        self._say(seat.node, f"takes no work: {reason}")
        self._rest(seat.node, seat.device)
        self._seats.remove(seat)
        self._desk.drop_all([seat])

    def _without_own(self, state: FleetState) -> FleetState:
        """Return the state without leases of seats of this run, which are counted by themselves."""
        own = {device for seat in self._seats for device in seat.devices}
        return FleetState([one for one in state.leases if not own & set(one.devices)], state.drained)

    def _rest(self, node: Node, device: str) -> None:
        """Leave a device alone for a while, each time for longer until it has done a unit."""
        key = (node.id, device)
        self._pauses[key] = min(2 * self._pauses.get(key, AGAIN[0] / 2), AGAIN[1])
        self._not_before[key] = time.monotonic() + self._pauses[key]

    def _lose(self, seat: SeatState, reason: str) -> Iterator[Record]:
        """Drop a seat that is gone. The task that it had begun is tried once more, on another node and alone; all
        others that have no record go back to the queue."""
        self._seats.remove(seat)
        self._desk.drop(seat)
        self._rest(seat.node, seat.device)
        if not seat.pending:
            self._say(seat.node, f"takes no work: {reason}")
            return
        current = seat.pending.get(seat.begun)
        if current is not None:
            tried = self._lost.setdefault(current.id, [])
            tried.append(f"{seat.node.name}: {reason}")
            self._options.say(f"node {seat.node.name} was lost while it ran {current.case.op}: {reason}")
            if len(tried) >= TRIES:
                del seat.pending[current.id]
                yield record_of_loss(current, tried)
        else:
            self._say(seat.node, f"was lost: {reason}")
        for bundle in seat.bundles:
            if current is not None and bundle.case == current.case.id:
                bundle.alone = True
                bundle.avoid.add(seat.node.name)
        self._give_back(seat)

    def _give_back(self, seat: SeatState) -> None:
        for bundle in seat.bundles:
            begun = len(bundle.tasks)
            bundle.tasks = [task for task in bundle.tasks if task.id in seat.pending]
            if len(bundle.tasks) < begun and not bundle.avoid:
                bundle.home = seat.node.name
        self._queue.give_back(seat.bundles)
        seat.pending.clear()
        seat.bundles = []

    def _give_up(self) -> Iterator[Record]:
        """Yield untried records of all that is left: nobody has taken it for too long."""
        waited = seconds(self._desk.options.wait)
        reasons = "; ".join(f"{name} {text}" for name, text in self._said.items()) or "no node has the backend"
        for task in self._queue.tasks:
            reason = f"no node has taken work for {waited}: {reasons}"
            yield replace(Record(task, "skipped", reason, started=utc_now()), untried=True)

    def _say(self, node: Node, text: str) -> None:
        """Say something about a node, once."""
        if self._said.get(node.name) != text:
            self._said[node.name] = text
            self._options.say(f"node {node.name} {text}")
