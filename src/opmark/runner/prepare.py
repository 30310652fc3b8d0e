"""Inputs and a launch for one task, on its backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opmark.errors import OutOfMemory
from opmark.interfaces import Backend
from opmark.schema import Implementation, Launch, Operator, Params, Task
from opmark.schema.cost import nbytes
from opmark.units import count_bytes


@dataclass(frozen=True)
class Prepared:
    inputs: dict[str, Any]
    launch: Launch
    data: Sequence[Any]
    """What a launch reads anew: inputs, and the gradients that a backward pass begins with."""
    seeds: Sequence[Any] = ()
    """The gradients of the outputs, where there is a backward pass."""


def prepare(
    params: Params,
    task: Task,
    operator: Operator,
    implementation: Implementation,
    backend: Backend,
    variant: int = 0,
) -> Prepared:
    """`variant`: other data of the same kind."""
    specs = operator.inputs(params)
    phase = task.case.phase
    seed = 1000 * task.settings.seed
    # A backward pass has its graph from the inputs; only the gradients that it begins with can change later.
    shift = 0 if phase == "backward" else _other(variant)
    inputs = {name: backend.tensor(spec, seed + shift + i) for i, (name, spec) in enumerate(specs.items())}
    launch = implementation.build(params, **inputs)
    if phase == "forward":
        return Prepared(inputs, launch, list(inputs.values()))
    wanted = [inputs[name] for name in wanted_gradients(task, operator)]
    start = seed + len(specs) + (_other(variant) if phase == "backward" else 0)
    backward, seeds = backend.backward(launch, wanted, start, forward=phase == "both")
    known = [tensor for tensor in seeds if tensor is not None]
    return Prepared(inputs, backward, known if phase == "backward" else [*inputs.values(), *known], seeds)


def _other(variant: int) -> int:
    """Far from the seeds of the inputs of any other variant."""
    return 100 * variant


def wanted_gradients(task: Task, operator: Operator) -> tuple[str, ...]:
    return task.case.wrt or operator.gradients


def set_bytes(params: Params, operator: Operator) -> int:
    """Inputs and outputs of one call."""
    return nbytes(operator.inputs(params).values()) + operator.cost(params).bytes_written


def refuse_if_too_large(params: Params, operator: Operator, backend: Backend) -> None:
    """Asking for more than there is may end in a machine that swaps or kills; a record is better."""
    free = backend.available_bytes()
    need = set_bytes(params, operator)
    if free is not None and need > free:
        raise OutOfMemory(f"inputs and outputs need {count_bytes(need)}, {count_bytes(free)} are free")
