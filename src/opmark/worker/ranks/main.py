"""Runs one task on every rank of a group. The ranks do each step together, and none waits for ever."""

from __future__ import annotations

import gc
import os

from msgspec.structs import replace

from opmark.errors import OpmarkError, Unsupported, WrongResult
from opmark.plugin import Backend, BackendInfo, Exchange, Implementation, Operator, Peers, ProcessGroup, Sensors, World
from opmark.schema import Record, Task, Verification
from opmark.schema.case import content_id
from opmark.schema.messages import Command, Joined, JoinFailed, JoinGroup, Listening, Reply, RunTask, TaskReply
from opmark.schema.record import MEASURED
from opmark.worker.preparation import make_inputs, refuse_if_too_large
from opmark.worker.ranks.outputs import build, compare_on_rank, expected_on_rank, params_to_check
from opmark.worker.ranks.quantities import RankMeasurement
from opmark.worker.ranks.sync import InStep, PeerFailed, max_over_ranks, require_same_form
from opmark.worker.task_runner import Send, TaskRunner, reason_of, why_unchecked
from opmark.worker.verify.outputs import bounds

_LOCAL_SIZE = "LOCAL_WORLD_SIZE"


class RankTaskRunner(TaskRunner):
    """Runs tasks on one rank, together with the other ranks of the group that it has joined."""

    def __init__(
        self, info: BackendInfo, backend: Backend, environment: str, sensors: Sensors | None, send: Send
    ) -> None:
        super().__init__(info, backend, environment, sensors, send)
        self._neighbours = int(os.environ.get(_LOCAL_SIZE, "1")) if info.device == "cpu" else 1
        """Ranks that share the memory and the cores of this host, this one among them."""
        self._team: ProcessGroup | None = None
        self._rank = 0
        self._follows = False
        """Whether this rank was fine itself, and stopped because another rank was not."""
        self._verified: dict[str, Verification] = {}
        """Verifications in this group, by what was checked: large cases are all checked at the same size."""

    def reply(self, command: Command) -> Reply:
        if isinstance(command, JoinGroup):
            return self.join(command)
        assert isinstance(command, RunTask)
        self._follows = False
        record = self.run(command.task)
        return TaskReply(record, self._backend.usable(), self._follows)

    def join(self, command: JoinGroup) -> Joined | JoinFailed:
        """Leave the group that this rank may belong to, and join another one."""
        world = World(command.rank, command.size, command.host, command.port, command.timeout)
        try:
            if self._team:
                self._team.leave()
            self._team = None
            team = self._backend.join(world, lambda port: self._send(Listening(port)))
        except OpmarkError as error:
            return JoinFailed("skipped", error.message)
        except Exception as error:  # noqa: BLE001 - an engine raises anything; the parent is told, and ends the group
            return JoinFailed("error", reason_of(error))
        self._team = team
        self._rank = command.rank
        self._verified.clear()
        return Joined(team.engine)

    def run(self, task: Task) -> Record:
        record = super().run(task)
        if record.status not in MEASURED:
            gc.collect()  # tracebacks and frames hold on to each other, and to the buffers of what failed
        return replace(record, measurements=()) if self._rank else record  # rank 0 has the samples of all ranks

    def _measure(self, task: Task, operator: Operator, implementation: Implementation) -> Record:
        if self._team is None:
            raise Unsupported("no group was joined")
        try:
            return self._measure_together(self._team, task, operator, implementation)
        except PeerFailed:
            self._follows = True
            raise

    def _measure_together(
        self, team: ProcessGroup, task: Task, operator: Operator, implementation: Implementation
    ) -> Record:
        """Verify, call once, measure, verify again."""
        backend, instruments, params = self._backend, self._instruments, task.case.params
        with InStep(team):
            refuse_if_too_large(params, operator, backend, ranks=self._neighbours)
        peers = team.peers(int(params.get("group") or params["ranks"]))
        world_rank = peers.world_rank(peers.rank)
        verification = self._verify_together(team, peers, task, operator, implementation)

        baseline = instruments.start_memory()
        with InStep(team):
            inputs = make_inputs(params, task, operator, backend, rank=world_rank)
            exchange = build(params, operator, implementation, backend, peers, inputs)
        exchange = require_same_form(team, exchange)
        instruments.forget_peak()
        self._call(exchange)
        memory = instruments.memory_since(baseline)
        (peak,) = max_over_ranks(team, [memory.peak if memory else 0])

        measuring = RankMeasurement(task, self._info, backend, instruments, exchange, team, self._neighbours)
        measurements, overlap = measuring.run(), measuring.overlap()

        if verification.checked == "full":  # with other data in the same tensors, and poisoned outputs
            with InStep(team):
                for output in exchange.outputs():
                    backend.poison(output)
                other = make_inputs(params, task, operator, backend, variant=1, rank=world_rank)
                for name, tensor in inputs.items():
                    backend.copy_into(tensor, other[name])
            self._call(exchange)
            with InStep(team):
                try:
                    due = expected_on_rank(params, task, operator, backend, peers, variant=1)
                    compare_on_rank(params, operator, backend, exchange.outputs(), due)
                except WrongResult as error:
                    why = f"verified before timing, wrong after it, with other data: {error.message}"
                    raise WrongResult(why) from None
            verification = replace(verification, after="same")
        unchecked = why_unchecked(verification, self._info)
        return Record(
            task,
            "unchecked" if unchecked else "ok",
            unchecked,
            measurements=measurements,
            memory=replace(memory, peak=int(peak)) if memory else None,
            verification=verification,
            overlap=overlap,
            notes=tuple(measuring.notes),
        )

    def _verify_together(
        self, team: ProcessGroup, peers: Peers, task: Task, operator: Operator, implementation: Implementation
    ) -> Verification:
        if not task.settings.verify:
            return Verification("none", "not asked for")
        if operator.foreign:
            return Verification("none", operator.why_unverified)
        params, scaled = params_to_check(operator, task.case.params)
        key = content_id([operator.name, task.implementation, dict(params), task.settings.seed])
        if key not in self._verified:
            backend = self._backend
            with InStep(team):
                inputs = make_inputs(params, task, operator, backend, rank=peers.world_rank(peers.rank))
                exchange = build(params, operator, implementation, backend, peers, inputs)
            exchange = require_same_form(team, exchange)
            self._call(exchange)
            with InStep(team):
                due = expected_on_rank(params, task, operator, backend, peers)
                errors, numbers = compare_on_rank(params, operator, backend, exchange.outputs(), due)
            self._verified[key] = Verification(
                "full",
                max_abs_error=errors.max_abs,
                max_rel_error=errors.max_rel,
                tolerance=bounds(operator, params),
                numerics=numbers,
            )
        found = self._verified[key]
        if not scaled:
            return found
        note = "its reference would take too long at this size"
        return replace(found, checked="scaled", note=note, params=dict(params))

    def _call(self, exchange: Exchange) -> None:
        exchange.start()
        if exchange.finish:
            exchange.finish()
        self._backend.synchronize()
