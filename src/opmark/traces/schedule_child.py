"""The process that looks at the operators of a program and times schedules of it:
`python -m opmark.traces.schedule_child serve`.

The parent imports no framework. It asks in lines of JSON and gets an answer to each, so that the program is loaded
once.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from functools import cache
from itertools import permutations
from statistics import median
from typing import Any

import msgspec
import torch

from opmark.errors import OpmarkError, Unsupported
from opmark.models.family import source_of
from opmark.models.host import ChildAnswer, describe_error
from opmark.models.offline import no_network
from opmark.models.program import GraphProgram, model_program
from opmark.models.program_work import describe_program
from opmark.models.scheduled import DevicePlace, ScheduleRunner, device_kind
from opmark.plugin import Backend
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema.case import MODEL_PREFIX, TRACE_PREFIX
from opmark.schema.schedule import (
    DescribedProgram,
    PlacedUnit,
    ProfiledProgram,
    Schedule,
    ScheduleQuestion,
    StageTimes,
    TransferTime,
    one_by_one,
    whole_program,
)
from opmark.traces.family import find_files
from opmark.traces.scheduled import trace_program

_LEAST_ROUNDS = 4
_MOST_ROUNDS = 40
_OPERATOR_ROUNDS = 9
_WARM_UP = 2
_COPIED = (4 << 10, 16 << 20)
"""Bytes of tensors whose copies are timed."""
_WAKE_UPS = 300
_WORK = 8
"""Products before and after a wake-up: some tens of microseconds, as long as an operator."""
_CLOSE = 1e-4
"""Relative difference that other threads may make: products are summed up in another order."""


def main() -> int:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model prints is no answer
    for line in sys.stdin.buffer:
        try:
            with no_network():
                answer = ChildAnswer(msgspec.Raw(msgspec.json.encode(answer_question(line))))
        except OpmarkError as error:
            answer = describe_error(error)
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
    return 0


def answer_question(
    line: bytes,
) -> ProfiledProgram | DescribedProgram | list[StageTimes] | list[PlacedUnit] | list[TransferTime]:
    question = msgspec.json.decode(line, type=ScheduleQuestion)
    backend = _loaded(question.backend, question.threads)
    operator = find_operator(question.name)
    with torch.no_grad():
        inputs = [backend.tensor(spec, i) for i, spec in enumerate(operator.inputs(question.params).values())]
        with backend.placing():
            program, device = find_program(question.name, question.params), str(torch.get_default_device())
        # Not in that context: it costs every call of the calling thread some microseconds, which a user does not pay.
        if question.task == "profile":
            return profile_operators(program, inputs, question.threads, backend.asynchronous, device)
        if question.task == "describe":
            return describe_program(program, inputs, torch.device(device).type)
        if question.task == "transfer":
            return time_transfers(question.devices)
        if question.task == "trace":
            return trace_units(program, question.schedules[0], inputs, device)
        return time_schedules(program, question.schedules, inputs, question.budget, device)


@cache
def _loaded(backend: str, threads: int) -> Backend:
    """Return the backend, loaded once: the process stays for the next questions."""
    return find_backend(backend).load(threads)


def find_program(name: str, params: dict[str, Any]) -> GraphProgram:
    if name.startswith(TRACE_PREFIX):
        return trace_program(find_files(name.removeprefix(TRACE_PREFIX)), params)
    source = source_of(name.removeprefix(MODEL_PREFIX))
    assert source is not None
    return model_program(source, params, torch.get_default_device())


def profile_operators(
    program: GraphProgram, inputs: list[Any], threads: int, on_device: bool, device: str
) -> ProfiledProgram:
    """Return the graph, and the median time of each operator when all are called one after the other."""
    graph = program.graph()
    if not graph.operators:
        raise Unsupported("the program calls no operator that computes anything")
    count = len(graph.operators)
    alone = one_by_one(graph.digest, [[i] for i in range(count)], 1 if on_device else threads)
    found: list[list[float]] = []
    with ScheduleRunner(program, alone, device) as scheduled:
        for number in range(_WARM_UP + _OPERATOR_ROUNDS):
            seconds = scheduled.timed(*inputs)
            if number >= _WARM_UP:
                found.append(seconds)
    return ProfiledProgram(graph, [median(one[i] for one in found) for i in range(count)])


def time_schedules(
    program: GraphProgram, schedules: list[Schedule], inputs: list[Any], budget: float, device: str, seed: int = 0
) -> list[StageTimes]:
    """Run schedules in turns, in another order in every round, until the budget is spent; the results of each are
    compared with those of the program as it is. Each runs twice and is timed the second time: the first run after
    another schedule finds other threads and other memory than one that follows itself, as users run it."""
    graph = program.graph()
    made = [ScheduleRunner(program, one, device) for one in schedules]
    found: list[list[list[float]]] = [[] for _ in schedules]
    try:
        expected = results_of(program, ScheduleRunner(program, whole_program(graph, schedules[0].threads), device),
                              inputs)  # fmt: skip
        for one in made:
            refuse_other_results(expected, results_of(program, one, inputs))
            for _ in range(_WARM_UP):
                one(*inputs)
        order, generator = list(range(len(made))), random.Random(seed)
        end, done = time.monotonic() + budget, 0
        while done < _LEAST_ROUNDS or (done < _MOST_ROUNDS and time.monotonic() < end):
            generator.shuffle(order)
            for number in order:
                made[number](*inputs)
                found[number].append(made[number].timed(*inputs))
            done += 1
    finally:
        for one in made:
            one.close()
    return [StageTimes(rounds) for rounds in found]


def time_transfers(devices: list[str]) -> list[TransferTime]:
    """Time what it takes to hand a result over, between all pairs of devices: a copy of a small and of a large tensor;
    between parts of the cores, waking the thread that waits for it."""
    found = []
    wake_up: float | None = None
    for source, target in permutations(devices, 2):
        if device_kind(source) == device_kind(target):
            wake_up = wake_up or time_wake_up()  # threads have no cores of their own: it is the same for all pairs
            found.append(TransferTime(source, target, wake_up, None))
            continue
        here, there = DevicePlace(source), DevicePlace(target)
        medians = []
        for nbytes in _COPIED:
            tensor = here.move(torch.zeros(nbytes, dtype=torch.uint8))
            times = []
            for _ in range(_WARM_UP + _OPERATOR_ROUNDS):
                here.wait()
                began = time.perf_counter()
                there.move(tensor)
                there.wait()
                times.append(time.perf_counter() - began)
            medians.append(median(times[_WARM_UP:]))
        longer = max(medians[1] - medians[0], 1e-9)
        found.append(TransferTime(source, target, medians[0], (_COPIED[1] - _COPIED[0]) / longer))
    return found


def time_wake_up() -> float:
    """Return the median seconds from the sign of one thread to the next step of another that waited for it. Both work
    in between, each on a core of its own: threads that only wait for each other share a core and wake up sooner."""
    matrix = torch.zeros(64, 64)
    signs, told, woken = [threading.Lock(), threading.Lock()], [], []
    for sign in signs:
        sign.acquire()

    def work() -> None:
        for _ in range(_WORK):
            torch.mm(matrix, matrix)

    def wait() -> None:
        torch.set_num_threads(1)
        for _ in range(_WAKE_UPS):
            signs[0].acquire()
            woken.append(time.perf_counter())
            work()
            signs[1].release()

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    other = threading.Thread(target=wait, daemon=True)
    other.start()
    for _ in range(_WAKE_UPS):
        work()
        told.append(time.perf_counter())
        signs[0].release()
        work()
        signs[1].acquire()
    other.join()
    torch.set_num_threads(before)
    return median(woke - tell for woke, tell in zip(woken, told, strict=True))


def trace_units(program: GraphProgram, schedule: Schedule, inputs: list[Any], device: str) -> list[PlacedUnit]:
    """Return when units ran, in the middle of several calls."""
    with ScheduleRunner(program, schedule, device) as scheduled:
        rounds = [scheduled.traced(*inputs) for _ in range(_WARM_UP + _OPERATOR_ROUNDS)][_WARM_UP:]
    return [
        msgspec.structs.replace(
            one, start=median(each[i].start for each in rounds), end=median(each[i].end for each in rounds)
        )
        for i, one in enumerate(rounds[0])
    ]


def results_of(program: GraphProgram, scheduled: ScheduleRunner, inputs: list[Any]) -> list[Any]:
    """Return copies of all outputs. What a program changes in place is put back, so that another run finds it again."""
    state = [one for one in [*program.given.values(), *inputs] if isinstance(one, torch.Tensor)]
    writes = any(call.writes for call in program.calls)
    before = [one.clone() for one in state] if writes else []
    values = scheduled.run_for_values(*inputs)
    found = [value.clone() for value in values if isinstance(value, torch.Tensor)]
    for tensor, kept in zip(state, before, strict=False):
        tensor.copy_(kept)
    return found


def refuse_other_results(expected: list[Any], found: list[Any]) -> None:
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if not torch.allclose(one, other, rtol=_CLOSE, atol=_CLOSE * _size_of(one), equal_nan=True):
            raise Unsupported(
                f"output {number} of a schedule differs from that of the program run in order: calls that depend on "
                "each other in a way that the graph does not show cannot be scheduled"
            )


def _size_of(tensor: Any) -> float:
    if not tensor.numel() or not tensor.is_floating_point():
        return 0.0
    size = float(tensor.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
    return size if size else 1.0


if __name__ == "__main__":
    sys.exit(main())
