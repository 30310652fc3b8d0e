"""One task -> one record, on every rank of it. Whatever is raised ends here, as a record with a reason."""

from __future__ import annotations

import gc
import time
from typing import Any

from msgspec.structs import replace

from opmark.errors import OutOfMemory, TaskError, Unsupported, WrongResult
from opmark.interfaces import Backend, BackendInfo, Exchange, Peers, Sensors, Team
from opmark.registry import implementations
from opmark.registry import operator as find_operator
from opmark.runner.check import bounds
from opmark.runner.execute import STATUS, reason_of, utc_now
from opmark.runner.gear import Gear
from opmark.runner.prepare import set_bytes
from opmark.runner.ranks.agree import PeerFailed, in_step, of_one_form, slowest
from opmark.runner.ranks.check import build, compared, expected, inputs_of, to_check
from opmark.runner.ranks.measuring import RanksMeasuring
from opmark.runner.ranks.orders import Done
from opmark.schema import Implementation, Memory, Operator, Params, Record, Task, Verification
from opmark.schema.case import content_id
from opmark.units import count_bytes, counted


class RankBench:
    """A backend that has joined a world."""

    def __init__(
        self, info: BackendInfo, backend: Backend, environment: str, sensors: Sensors | None, neighbours: int
    ) -> None:
        """`neighbours`: ranks on this host, this one among them, that share its memory."""
        self._info = info
        self._backend = backend
        self._environment = environment
        self._gear = Gear.of(info, backend, sensors)
        self._neighbours = neighbours if info.device == "cpu" else 1
        self._team: Team | None = None
        self._rank = 0
        self._verified: dict[str, Verification] = {}
        """What was found right in this world, by what was checked: large cases are all checked at the same size."""

    def joined(self, team: Team, rank: int) -> None:
        self._team = team
        self._rank = rank
        self._verified.clear()

    def left(self) -> None:
        if self._team:
            self._team.leave()
        self._team = None

    def do(self, task: Task) -> Done:
        started, clock = utc_now(), time.perf_counter()
        cost, follows = None, False
        try:
            cost = find_operator(task.case.op).cost(task.case.params)
            found = self._run(task)
        except PeerFailed as error:
            found, follows = Record(task, "error", error.message), True
        except WrongResult as error:
            found = Record(task, "wrong", error.message, verification=error.verification)
        except TaskError as error:
            found = Record(task, STATUS.get(type(error), "error"), error.message)
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; each of it becomes a record
            found = Record(task, self._backend.classify(error) or "error", reason_of(error))
        if self._rank:
            found = replace(found, measurements=())  # rank 0 has those of all
        if found.status != "ok":
            gc.collect()  # tracebacks and frames hold on to each other, and to the buffers of what failed
        duration = time.perf_counter() - clock
        record = replace(found, cost=cost, environment=self._environment, started=started, duration=duration)
        return Done(record, self._backend.usable(), follows)

    def _run(self, task: Task) -> Record:
        operator, params, team = find_operator(task.case.op), task.case.params, self._world()
        (implementation,) = (i for i in implementations(operator, self._info) if i.label == task.implementation)
        in_step(team, lambda: self._refuse_if_too_large(params, operator))
        peers = team.peers(int(params.get("group") or params["ranks"]))
        checked = self._checked(task, operator, implementation, peers)
        exchange, inputs, memory = self._first_call(task, operator, implementation, peers)
        measuring = RanksMeasuring(task, self._info, self._backend, self._gear, exchange, team, self._neighbours)
        measurements, overlap = measuring.run(), measuring.overlap()
        if checked.checked == "full":
            self._recheck(task, operator, peers, exchange, inputs)
            checked = replace(checked, after="same")
        return Record(
            task, "ok", measurements=measurements, memory=memory, verification=checked, overlap=overlap,
            notes=tuple(measuring.notes),
        )  # fmt: skip

    def _world(self) -> Team:
        if self._team is None:
            raise Unsupported("no world was joined")
        return self._team

    def _refuse_if_too_large(self, params: Params, operator: Operator) -> None:
        """Asking for more than there is may end in a machine that swaps or kills; a record is better."""
        free = self._backend.available_bytes()
        need = set_bytes(params, operator) * self._neighbours  # in place: no output, but a copy to be put back
        if free is not None and need > free:
            ranks = counted(self._neighbours, "rank")
            raise OutOfMemory(f"buffers of {ranks} need {count_bytes(need)}, {count_bytes(free)} are free")

    def _checked(self, task: Task, operator: Operator, implementation: Implementation, peers: Peers) -> Verification:
        if not task.settings.verify:
            return Verification("none", "not asked for")
        params, scaled = to_check(operator, task.case.params)
        key = content_id([operator.name, task.implementation, dict(params), task.settings.seed])
        if key not in self._verified:
            self._verified[key] = self._verify(task, operator, implementation, peers, params)
        found = self._verified[key]
        return replace(found, checked="scaled", params=dict(params)) if scaled else found

    def _verify(
        self, task: Task, operator: Operator, implementation: Implementation, peers: Peers, params: Params
    ) -> Verification:
        team, backend, rank = self._world(), self._backend, peers.world_rank(peers.rank)

        def built() -> Exchange:
            inputs = inputs_of(params, task, operator, backend, rank)
            return build(params, operator, implementation, backend, peers, inputs)

        exchange = of_one_form(team, in_step(team, built))
        exchange.start()
        self._wait(exchange)

        def judged() -> Verification:
            due = expected(params, task, operator, backend, peers)
            errors, numbers = compared(params, operator, backend, exchange.outputs(), due)
            return Verification(
                "full",
                max_abs_error=errors.max_abs,
                max_rel_error=errors.max_rel,
                tolerance=bounds(operator, params),
                numerics=numbers,
            )

        return in_step(team, judged)

    def _wait(self, exchange: Exchange) -> None:
        if exchange.finish:
            exchange.finish()
        self._backend.synchronize()

    def _first_call(
        self, task: Task, operator: Operator, implementation: Implementation, peers: Peers
    ) -> tuple[Exchange, dict[str, Any], Memory | None]:
        params, team = task.case.params, self._world()
        probe = self._gear.memory
        baseline = probe.start() if probe else 0

        def built() -> tuple[Exchange, dict[str, Any]]:
            own = inputs_of(params, task, operator, self._backend, peers.world_rank(peers.rank))
            return build(params, operator, implementation, self._backend, peers, own), own

        exchange, inputs = in_step(team, built)
        exchange = of_one_form(team, exchange)
        exchange.start()
        self._wait(exchange)
        (peak,) = slowest(team, [max(0, probe.peak() - baseline) if probe else 0])
        memory = Memory(int(peak), baseline, probe.source, probe.resolution) if probe else None
        return exchange, inputs, memory

    def _recheck(
        self, task: Task, operator: Operator, peers: Peers, exchange: Exchange, inputs: dict[str, Any]
    ) -> None:
        """After timing, with other data in the same tensors and poisoned outputs."""
        params, backend = task.case.params, self._backend

        def refilled() -> None:
            for output in exchange.outputs():
                backend.poison(output)
            other = inputs_of(params, task, operator, backend, peers.world_rank(peers.rank), variant=1)
            for name, tensor in inputs.items():
                backend.copy_into(tensor, other[name])

        in_step(self._world(), refilled)
        exchange.start()
        self._wait(exchange)

        def judged() -> None:
            try:
                due = expected(params, task, operator, backend, peers, variant=1)
                compared(params, operator, backend, exchange.outputs(), due)
            except WrongResult as error:
                raise WrongResult(f"verified before timing, wrong after it, with other data: {error.message}") from None

        in_step(self._world(), judged)
