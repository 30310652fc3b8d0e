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
    seeds: Sequence[Any] = ()
    """Backward phase: the gradients of the outputs."""


def prepare(
    params: Params, task: Task, operator: Operator, implementation: Implementation, backend: Backend
) -> Prepared:
    specs = operator.inputs(params)
    seed = 1000 * task.settings.seed
    inputs = {name: backend.tensor(spec, seed + i) for i, (name, spec) in enumerate(specs.items())}
    launch = implementation.build(params, **inputs)
    if task.case.phase == "forward":
        return Prepared(inputs, launch)
    wanted = [inputs[name] for name in operator.gradients]
    backward, seeds = backend.backward(launch, wanted, seed + len(specs))
    return Prepared(inputs, backward, seeds)


def refuse_if_too_large(params: Params, operator: Operator, backend: Backend) -> None:
    """Asking for more than there is may end in a machine that swaps or kills; a record is better."""
    free = backend.available_bytes()
    need = nbytes(operator.inputs(params).values()) + operator.cost(params).bytes_written
    if free is not None and need > free:
        raise OutOfMemory(f"inputs and outputs need {count_bytes(need)}, {count_bytes(free)} are free")
