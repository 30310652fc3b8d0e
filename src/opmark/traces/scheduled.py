"""The program of a trace as a graph, so that its calls can run by a schedule. Only workers and child processes import
this."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch

from opmark.errors import Unsupported
from opmark.models.program import GraphCall, GraphProgram, Slot
from opmark.models.scheduled import schedule_launch
from opmark.plugin import Params
from opmark.traces.family import TraceFiles
from opmark.traces.replay import Replay, ReplayStep
from opmark.traces.replay_case import build_replay
from opmark.traces.replay_values import ReplayVariable, extent


def build_scheduled(files: TraceFiles, params: Params, configuration: dict[str, Any]) -> Any:
    return schedule_launch(trace_program(files, params), configuration, [], torch.get_default_device())


def trace_program(files: TraceFiles, params: Params) -> GraphProgram:
    return _trace_program(files, json.dumps(dict(params), sort_keys=True), str(torch.get_default_device()))


@lru_cache(maxsize=1)
def _trace_program(files: TraceFiles, written: str, device: str) -> GraphProgram:
    replay = build_replay(files, json.loads(written))
    if any(step.handle or step.node.collective is not None for step in replay.steps):
        raise Unsupported("a trace with communication is not scheduled: its order is agreed with other ranks")
    return program_of_replay(replay)


def program_of_replay(replay: Replay) -> GraphProgram:
    """Return the calls of a replay as a program without inputs. Its outputs are the results that no call takes."""
    slots: dict[str, Slot] = {}

    def slot(variable: ReplayVariable) -> Slot:
        return slots.setdefault(variable.name, Slot(len(slots)))

    def replaced(value: Any) -> Any:
        if isinstance(value, ReplayVariable):
            return slot(value)
        return [replaced(one) for one in value] if isinstance(value, list) else value

    calls = [
        GraphCall(
            step.node.name, step.function, replaced(step.args), replaced(step.kwargs), replaced(step.targets),
            frozenset(one.storage for one in step.variables()), frozenset(_written(step)), _describe(step),
            sum(extent(one.ref) for one in step.results()),
        )
        for step in replay.steps
    ]  # fmt: skip
    given = {slots[name].number: tensor for name, tensor in replay.tensors.items() if name in slots}
    taken = {number for call in calls for number in call.inputs()}
    outputs = sorted({number for call in calls for number in call.outputs()} - taken)
    return GraphProgram(calls, len(slots), given, [], outputs, lambda found: ())


def _written(step: ReplayStep) -> set[Any]:
    """Return the memory that a call writes to. Results may be views, which share the memory of their base; those that
    draw random numbers keep their order."""
    packet = getattr(torch.ops.aten, step.node.name.partition("::")[2], None)
    overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    random = any(torch.Tag.nondeterministic_seeded in one.tags for one in overloads)
    taken = {one.storage for one in step.variables()}
    fresh = {one.storage for one in step.results()} - taken
    return {*step.writes, *fresh, *({"random numbers"} if random else ())}


def _describe(step: ReplayStep) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, ReplayVariable):
            return f"{value.ref.dtype}{list(value.ref.shape)}"
        return [plain(one) for one in value] if isinstance(value, list) else str(value)

    return json.dumps([plain(step.args), {name: plain(one) for name, one in step.kwargs.items()}, plain(step.targets)])
