"""The process that looks at the operators of a program and times schedules of it, stage by stage:
`python -m opmark.traces.schedule_child QUESTION`.

The parent imports no framework. The answer is the last line of the output, as JSON.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import torch

from opmark.errors import OpmarkError, Unsupported
from opmark.models.family import source_of
from opmark.models.host import ChildAnswer, describe_error
from opmark.models.offline import no_network
from opmark.models.program import Program, model_program
from opmark.models.scheduled import ScheduledProgram
from opmark.plugin import Backend
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema.case import MODEL_PREFIX, TRACE_PREFIX
from opmark.schema.schedule import (
    OperatorGraph,
    ProfiledProgram,
    Schedule,
    ScheduleQuestion,
    StageTimes,
    sequential,
    whole_program,
)
from opmark.traces.family import find_files
from opmark.traces.scheduled import trace_program

_LEAST_ROUNDS = 6
_MOST_ROUNDS = 40
_OPERATOR_ROUNDS = 9
_WARM_UP = 2
_CLOSE = 1e-4
"""Relative difference that other threads may make: products are summed up in another order."""


def main() -> int:
    question = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ScheduleQuestion)
    try:
        with no_network():
            answer = ChildAnswer(msgspec.Raw(msgspec.json.encode(look(question))))
    except OpmarkError as error:
        answer = describe_error(error)
    print(msgspec.json.encode(answer).decode())
    return 0


def look(question: ScheduleQuestion) -> ProfiledProgram | list[StageTimes]:
    backend = find_backend(question.backend).load(question.threads)
    operator = find_operator(question.name)
    with torch.no_grad():
        inputs = [backend.tensor(spec, i) for i, spec in enumerate(operator.inputs(question.params).values())]
        with backend.placing():
            program = find_program(question.name, question.params, backend)
        if question.schedules:
            return time_schedules(program, question.schedules, inputs, question.budget)
        return profile_operators(program, inputs, question.threads, backend)


def find_program(name: str, params: dict[str, Any], backend: Backend) -> Program:
    if name.startswith(TRACE_PREFIX):
        return trace_program(find_files(name.removeprefix(TRACE_PREFIX)), params)
    source = source_of(name.removeprefix(MODEL_PREFIX))
    assert source is not None
    return model_program(source, params, torch.get_default_device())


def profile_operators(program: Program, inputs: list[Any], threads: int, backend: Backend) -> ProfiledProgram:
    """Return the graph, and the median time of each operator when all are called one after the other."""
    graph = program.graph()
    if not graph.operators:
        return ProfiledProgram(graph)
    count = len(graph.operators)
    on_device = backend.asynchronous
    alone = one_by_one(graph, 1 if on_device else threads)
    found: list[list[float]] = []
    with ScheduledProgram(program, alone, str(torch.get_default_device())) as scheduled:
        for number in range(_WARM_UP + _OPERATOR_ROUNDS):
            seconds = scheduled.timed(*inputs)
            if number >= _WARM_UP:
                found.append(seconds)
    return ProfiledProgram(graph, [median(one[i] for one in found) for i in range(count)])


def one_by_one(graph: OperatorGraph, threads: int) -> Schedule:
    """Return the schedule in which every operator is a stage."""
    units = [[number] for number in range(len(graph.operators))]
    plain = sequential(graph.digest, units, threads, range(len(units)))
    (stage,) = plain.stages
    (lane,) = stage.lanes
    stages = tuple(
        msgspec.structs.replace(stage, lanes=(msgspec.structs.replace(lane, units=(i,), threads=(threads,)),))
        for i in range(len(units))
    )
    return msgspec.structs.replace(plain, stages=stages)


def time_schedules(
    program: Program, schedules: list[Schedule], inputs: list[Any], budget: float, seed: int = 0
) -> list[StageTimes]:
    """Run schedules in turns, in another order in every round, until the budget is spent; the results of each are
    compared with those of the program as it is."""
    device, graph = str(torch.get_default_device()), program.graph()
    made = [ScheduledProgram(program, one, device) for one in schedules]
    found: list[list[list[float]]] = [[] for _ in schedules]
    try:
        expected = results_of(program, ScheduledProgram(program, whole_program(graph, schedules[0].threads), device),
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
                found[number].append(made[number].timed(*inputs))
            done += 1
    finally:
        for one in made:
            one.close()
    return [StageTimes(rounds) for rounds in found]


def results_of(program: Program, scheduled: ScheduledProgram, inputs: list[Any]) -> list[Any]:
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
