"""Verifies the result of each rank after an exchange, against a reference that takes the inputs of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.errors import WrongResult
from opmark.plugin import Backend, Exchange, Implementation, Launch, Operator, Params, Peers
from opmark.plugin.operator import count_elements
from opmark.schema import Numerics, Task
from opmark.worker.preparation import make_inputs
from opmark.worker.verify.accuracy import ArrayErrors
from opmark.worker.verify.outputs import compare_outputs, scale_down, too_large
from opmark.worker.verify.slices import as_tuple, estimate_seconds

_MOST_SECONDS = 2.0
"""Time that a reference over all ranks takes at most."""


def build(
    params: Params,
    operator: Operator,
    implementation: Implementation,
    backend: Backend,
    peers: Peers,
    inputs: dict[str, Any],
) -> Exchange:
    with backend.placing():
        if operator.ranks:
            exchange: Exchange = implementation.build(params, peers, **inputs)
            return exchange
        alone = _LocalCall(implementation.build(params, **inputs))
    return Exchange(alone.launch, outputs=alone.outputs)


class _LocalCall:
    """A call that each rank makes by itself, at the same time as the others."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._last: Any = ()

    def launch(self) -> None:
        self._last = self._launch()

    def outputs(self) -> tuple[Any, ...]:
        return as_tuple(self._last)


def expected_on_rank(
    params: Params, task: Task, operator: Operator, backend: Backend, peers: Peers, variant: int = 0
) -> tuple[Any, ...]:
    """The outputs that this rank should have: each rank makes the inputs of all of them to work that out."""

    def arrays_of(rank: int) -> dict[str, Any]:
        inputs = make_inputs(params, task, operator, backend, variant, peers.world_rank(rank))
        return {name: backend.to_numpy(tensor) for name, tensor in inputs.items()}

    if not operator.ranks:
        return as_tuple(operator.reference(params, **arrays_of(peers.rank)))
    return as_tuple(operator.reference(params, peers.rank, [arrays_of(rank) for rank in range(peers.size)]))


def compare_on_rank(
    params: Params, operator: Operator, backend: Backend, outputs: Sequence[Any], expected: Sequence[Any]
) -> tuple[ArrayErrors, tuple[Numerics, ...]]:
    """How far off the outputs of this rank are. Raise WrongResult where that is too far."""
    if len(outputs) != len(expected):
        raise WrongResult(f"{len(outputs)} outputs on this rank, expected {len(expected)}")
    if not expected:
        return ArrayErrors(0.0, 0.0), ()
    dtypes = [backend.dtype(output) for output in outputs]
    arrays = tuple(backend.to_numpy(output) for output in outputs)
    numbers: list[Numerics] = []
    errors = compare_outputs(operator, params, arrays, expected, numbers, dtypes)
    return errors, tuple(numbers)


def params_to_check(operator: Operator, params: Params) -> tuple[Params, bool]:
    """(the parameters of the case that is checked, whether it is smaller than the one that is timed): a reference takes
    the inputs of all ranks."""
    ranks = max(2, int(params.get("ranks", 1)))
    seconds = ranks * estimate_seconds(operator.cost(params).flops or 0, count_elements(operator, params))
    if too_large(operator, params, ranks) and seconds > _MOST_SECONDS:
        return scale_down(operator, params, ranks), True
    return params, False
