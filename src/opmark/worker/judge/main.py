"""The process of the judge. It owns the clock, the inputs, the reference and what is said about a candidate.

It reads a `JudgeOrder`, then one line per pair of turns, and answers each on a pipe. In a turn a fresh process computes
one trial at a time: one call, or several on a device. Before a trial its inputs are drawn while the process is stopped,
from seeds that nobody else ever sees, and its outputs are poisoned; after the trial it is stopped again, and some of
the calls are checked, drawn by lot: there are no other calls than those that are timed, so none can be recognized.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
import time
from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import Any

import msgspec
from psutil import virtual_memory

from opmark.errors import TaskError, UserError, WrongResult
from opmark.hardware.host import affinity, host
from opmark.hardware.sensors import visible_gpu
from opmark.plugin import Arena, ArrayPlace
from opmark.plugin.operator import count_elements
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema.judgement import (
    CandidateRefused,
    JudgeFailed,
    JudgeHello,
    JudgeOrder,
    JudgeReply,
    PairJudged,
    TrialTurn,
)
from opmark.schema.tensor import DTYPES
from opmark.stats.summary import robust_deviation
from opmark.units import count_bytes
from opmark.worker.judge.candidate import CandidateOrder
from opmark.worker.judge.checks import Checked, check_call, compute_excess, refuse_imprecise
from opmark.worker.judge.host_arena import HostArena
from opmark.worker.judge.process import CandidateProcess, Refused
from opmark.worker.process_setup import die_with_parent
from opmark.worker.verify.outputs import too_large
from opmark.worker.verify.sampled import WHOLE, SamplePlan, plan_sample
from opmark.worker.verify.slices import (
    ALL,
    MOST_SECONDS,
    Part,
    estimate_seconds,
    find_coincidences,
    forget_sizes,
)

_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_PAGE = 4096
_SEED_BITS = 63
_MOST_TRIALS = 500
_WARM_UP = 3
_LONGEST_TURN = 20.0
"""Times the requested time of a turn, after which it ends with fewer trials than it should have, but not with fewer
than the fewest."""
_FEWEST_TRIALS = 5
_CALLS_ON_DEVICE, _ROOM_ON_DEVICE = 16, 4 << 30
"""Calls of a trial on a device, and the bytes that they share at most."""
_LEAST_CHECKED = 0.1
"""Share of the calls that are checked where checking takes much longer than a call."""
_REFERENCE_ARRAYS = 4
"""Arrays in float64, as large as inputs and outputs together, that a comparison with the reference takes."""
_OUTPUT_ROOM = 4
"""Room for outputs, as a multiple of the bytes that the operator says it writes."""


def main(pipe: int) -> None:
    die_with_parent()
    os.set_inheritable(pipe, False)
    with os.fdopen(pipe, "wb", buffering=0) as out:

        def send(reply: JudgeReply) -> None:
            out.write(msgspec.json.encode(reply) + b"\n")

        order = msgspec.json.decode(sys.stdin.buffer.readline(), type=JudgeOrder)
        try:
            bench = TrialBench(order)
            _guard_itself()
            send(JudgeHello(bench.facts))
            for pair, _ in enumerate(sys.stdin.buffer):
                send(bench.judge_pair(pair))
        except (TaskError, UserError) as error:
            send(JudgeFailed(error.message))


def _guard_itself() -> None:
    """Keep this process from others of the same user, and adopt what a candidate abandons."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class TrialBench:
    """Runs the trials of one candidate and its baseline."""

    def __init__(self, order: JudgeOrder) -> None:
        self.order = order
        self._info = find_backend(order.backend)
        self.operator = find_operator(order.case.op)
        self.specs = self.operator.inputs(order.case.params)
        written = self.operator.cost(order.case.params).bytes_written
        room = _next_page(_OUTPUT_ROOM * max(written, _PAGE)) + 256 * _PAGE
        self.calls = 1
        """Calls of a trial. A device gets several, so that launching one overlaps with computing another, as it does
        in use; each has inputs and outputs of its own."""
        if self._info.device != "cpu":
            of_call = room + sum(_next_page(spec.nbytes) for spec in self.specs.values())
            self.calls = max(1, min(_CALLS_ON_DEVICE, _ROOM_ON_DEVICE // of_call))
        self.inputs: list[list[ArrayPlace]] = []
        end = 0
        for _ in range(self.calls):
            self.inputs.append([])
            for name, spec in self.specs.items():
                self.inputs[-1].append(ArrayPlace(name, end, spec.shape, spec.dtype, spec.nbytes))
                end = _next_page(end + spec.nbytes)
        self.outputs: list[list[ArrayPlace]] = []
        """The outputs of each call, one after the other."""
        self._room = end
        self._nbytes = end + self.calls * room
        need, free = (
            _REFERENCE_ARRAYS * 8 * count_elements(self.operator, order.case.params),
            virtual_memory().available,
        )
        if need > free:
            raise TaskError(f"the reference in float64 needs {count_bytes(need)}, {count_bytes(free)} are free")
        self.facts: dict[str, Any] = {**host(), "device": self._info.device, "threads": order.threads}
        self.arena = self._open_arena()
        self.baseline_errors: tuple[float, ...] = ()
        self.plan = self.plan_parts()
        """Which part of a call is checked."""

    def judge_pair(self, pair: int) -> JudgeReply:
        """Run the baseline and the candidate, the one that was last before first. The very first is the baseline, whose
        outputs say where those of the candidate go."""
        order = self.order
        processes = [self.start(order.baseline), self.start(order.candidate)]
        cost = self.operator.cost(order.case.params)
        seconds = estimate_seconds(cost.flops or 0, count_elements(self.operator, order.case.params))
        whole_at = secrets.randbelow(_FEWEST_TRIALS) if pair == 0 and seconds <= MOST_SECONDS else None
        turns = [
            TurnRunner(self, processes[0], trusted=True),
            TurnRunner(self, processes[1], trusted=False, whole_at=whole_at),
        ]
        try:
            for process in processes:  # they import their frameworks at the same time
                self._open(process)
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                try:
                    turns[side].run()
                except Refused as refused:
                    if side == 0:
                        raise TaskError(f"the baseline cannot be measured: {refused.reason}") from None
                    return CandidateRefused(
                        refused.refusal, refused.reason, processes[1].guards, turns[1].checked, turns[1].max_abs,
                        turns[1].max_rel, turns[1].seeds,
                    )  # fmt: skip
                processes[side].close()
        finally:
            for process in processes:
                process.close()
        return PairJudged(turns[0].result(), turns[0].protocol(), turns[1].result(), processes[1].guards)

    def _open(self, process: CandidateProcess) -> None:
        try:
            process.open()
        except Refused as refused:  # nothing of the candidate has been loaded yet
            raise TaskError(f"{self._info.name} cannot be started in a process of its own: {refused.reason}") from None

    def _open_arena(self) -> Arena:
        if self._info.device == "cpu":
            return HostArena(self._nbytes)
        backend = self._info.load(self.order.threads)
        reason = backend.why_unavailable()
        if reason:
            raise TaskError(f"{self._info.name} cannot run here: {reason}")
        self.facts |= {**backend.environment(), **({} if self._info.device != "cuda" else visible_gpu())}
        arena = backend.arena(self._nbytes)
        if arena is None:
            raise TaskError(f"{self._info.name} has no memory that two processes can share")
        return arena

    def plan_parts(self) -> SamplePlan:
        """Return how a call is checked: another part of it each time, if all of it would take long."""
        params = self.order.case.params
        plan = plan_sample(self.operator, params) if too_large(self.operator, params) else None
        return WHOLE if plan is None or plan.chunked else plan

    def start(self, implementation: str) -> CandidateProcess:
        order, cores = self.order, sorted(affinity())
        variables = {key: value.format(threads=order.threads) for key, value in self._info.variables.items()}
        told = CandidateOrder(
            order.case.op, order.case.params, self.operator.mutates, order.backend, self._info.framework,
            self._info.shares, order.threads,
            cores[: order.threads] if order.threads < len(cores) else [],
            implementation, dict(self.arena.handle), self.inputs, order.folder,
        )  # fmt: skip
        return CandidateProcess(told, self.arena.descriptors, variables)

    def place_outputs(self, described: Sequence[tuple[tuple[int, ...], str]]) -> None:
        """Lay out the outputs in the shared memory, as the baseline has them."""
        end = self._room
        for _ in range(self.calls):
            self.outputs.append([])
            for i, (shape, dtype) in enumerate(described):
                nbytes = DTYPES[dtype].size
                for size in shape:
                    nbytes *= size
                self.outputs[-1].append(ArrayPlace(f"output {i}", end, shape, dtype, nbytes))
                end = _next_page(end + nbytes)
        if end > self._nbytes:
            raise TaskError(f"the outputs of `{self.order.case.op}` need {end - self._room} bytes, more than expected")


class TurnRunner:
    """One turn: a process is loaded, warmed up, and called until there are enough trials."""

    def __init__(
        self, bench: TrialBench, process: CandidateProcess, *, trusted: bool, whole_at: int | None = None
    ) -> None:
        """`whole_at`: the call of which every element is checked, where others are checked by a part of them."""
        self._bench = bench
        self._process = process
        self._trusted = trusted
        self._whole_at = whole_at
        self._calls: list[float] = []
        self._empty: list[float] = []
        self.seeds: dict[str, int] = {}
        """Seeds of the inputs of the last call."""
        self.checked = 0
        self.max_abs = self.max_rel = self._excess = 0.0
        self._check_time = 0.0

    def run(self) -> None:
        bench, order, process = self._bench, self._bench.order, self._process
        for places in bench.inputs:
            for place in places:
                bench.arena.draw(place, bench.specs[place.name], secrets.randbits(_SEED_BITS))
        described = process.load(order.load_timeout)
        if self._trusted and not bench.outputs:
            bench.place_outputs(described)
        process.prepare(bench.outputs, order.load_timeout)
        self._trial(check=True)
        process.close_gate()
        for _ in range(_WARM_UP):
            self._trial(check=False)
        process.timeout = order.timeout
        self._calls.clear()
        self.checked, self._check_time = 0, 0.0
        start = time.perf_counter()
        while not self._enough(time.perf_counter() - start - self._check_time):
            whole = len(self._calls) == self._whole_at
            self._trial(check=whole or not self.checked or self._draw_check(), whole=whole)
            # Both sides do, so that what comes before a call is the same for both.
            self._empty.append(process.trial(self._settle, call=False) / bench.calls)

    def result(self) -> TrialTurn:
        return self._turn(self._calls)

    def protocol(self) -> TrialTurn:
        return self._turn(self._empty)

    def _enough(self, elapsed: float) -> bool:
        order, done = self._bench.order, len(self._calls)
        if done >= order.least_trials:
            return elapsed > order.turn_time or done >= _MOST_TRIALS
        return done >= _FEWEST_TRIALS and elapsed > _LONGEST_TURN * order.turn_time

    def _draw_check(self) -> bool:
        """Decide by lot whether to check a call, so that checking takes about as long as the turn: every call if that
        is quick, and at least one of ten."""
        order, seconds = self._bench.order, self._check_time / self.checked
        trials = order.turn_time / (self._bench.calls * median(self._calls))
        share = max(_LEAST_CHECKED, order.turn_time / (min(_MOST_TRIALS, max(order.least_trials, trials)) * seconds))
        return secrets.randbelow(1 << 20) < share * (1 << 20)

    def _trial(self, *, check: bool, whole: bool = False) -> None:
        """Make the calls of a trial. With `check`, one of them is compared with the reference."""
        bench, process, arena = self._bench, self._process, self._bench.arena
        chosen = secrets.randbelow(bench.calls)
        copies: dict[str, Any] = {}
        for call, places in enumerate(bench.inputs):
            for place in places:
                seed = secrets.randbits(_SEED_BITS)
                drawn = arena.draw(place, bench.specs[place.name], seed)
                if call == chosen:
                    copies[place.name], self.seeds[place.name] = drawn, seed
        for places in bench.outputs:
            for place in places:
                arena.poison(place)
        self._calls.append(process.trial(self._settle) / bench.calls)
        if check:
            start = time.perf_counter()
            self._check(chosen, copies, whole=whole)
            self._check_time += time.perf_counter() - start
        process.check_after()

    def _settle(self) -> None:
        self._bench.arena.settle([place for places in self._bench.outputs for place in places])

    def _check(self, call: int, copies: dict[str, Any], *, whole: bool) -> None:
        """Compare a call of the trial with the reference, a part of it if the case is large."""
        bench = self._bench
        arena, operator, params = bench.arena, bench.operator, bench.order.case.params
        part = ALL if whole else bench.plan.draw(params)

        def take_inputs(some: Part) -> dict[str, Any]:
            shapes = {place.name: place.shape for place in bench.inputs[call]}
            return {
                name: arena.widen(copy, some.positions(params, name, shapes[name])) for name, copy in copies.items()
            }

        try:
            places = bench.outputs[call]
            positions = [part.positions(params, i, place.shape) for i, place in enumerate(places)]
            outputs = [arena.read(place, at) for place, at in zip(places, positions, strict=True)]
            dtypes = [place.dtype for place in places]
            found = check_call(operator, params, take_inputs(part), outputs, dtypes, part, positions)
        except WrongResult as error:
            # The sizes that a part is cut along were found with a tiny case: was that a coincidence?
            if part.sizes and forget_sizes(
                operator, params, *find_coincidences(operator, params, part, None, take_inputs)
            ):
                bench.plan = bench.plan_parts()
                return self._check(call, copies, whole=whole)
            self.checked += 1
            raise Refused("wrong", error.message) from None
        self.checked += 1
        if arena.still_written([place for places in bench.outputs for place in places]):
            raise Refused("tampered", "its outputs changed after it said that it was done")
        for place in bench.inputs[call]:
            if place.name not in operator.mutates and not arena.holds(place, copies[place.name]):
                raise Refused("tampered", f"it changed its input `{place.name}`")
        self._take(found)

    def _take(self, found: Checked) -> None:
        bench = self._bench
        self.max_abs, self.max_rel = max(self.max_abs, found.max_abs), max(self.max_rel, found.max_rel)
        if self._trusted:
            known = bench.baseline_errors or (0.0,) * len(found.errors)
            bench.baseline_errors = tuple(map(max, known, found.errors))
        else:
            self._excess = max(self._excess, compute_excess(found, bench.baseline_errors))
            refuse_imprecise(self._excess)

    def _turn(self, times: Sequence[float]) -> TrialTurn:
        error = 1.2533 * robust_deviation(times) / sqrt(len(times))
        trials = len(times) * self._bench.calls
        return TrialTurn(
            median(times), error, trials, self.checked, self.max_abs, self.max_rel, self._excess, self._process.recorded
        )


def _next_page(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


if __name__ == "__main__":
    main(int(sys.argv[1]))
