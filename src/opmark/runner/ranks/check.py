"""Verifies what a rank holds after an exchange: every rank's own result, against a reference over all ranks' inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.errors import WrongResult
from opmark.interfaces import Backend, Exchange, Peers
from opmark.runner.check import as_tuple, bounds, numerics_of
from opmark.schema import Implementation, Launch, Numerics, Operator, Params, Task
from opmark.verify.compare import Errors, compare
from opmark.verify.scale import scale_down, too_large

# Data of one rank is far from that of any other, and of any other variant.
_RANK_SEEDS = 1_000_003


def inputs_of(
    params: Params, task: Task, operator: Operator, backend: Backend, world_rank: int, variant: int = 0
) -> dict[str, Any]:
    """What a rank brings along: any rank can tell, so that each can work out what is due."""
    base = 1000 * task.settings.seed + 100 * variant + _RANK_SEEDS * world_rank
    return {name: backend.tensor(spec, base + i) for i, (name, spec) in enumerate(operator.inputs(params).items())}


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
        alone = _Alone(implementation.build(params, **inputs))
    return Exchange(alone.launch, outputs=alone.outputs)


class _Alone:
    """What each rank does by itself, at the same time as the others."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._last: Any = ()

    def launch(self) -> None:
        self._last = self._launch()

    def outputs(self) -> tuple[Any, ...]:
        return as_tuple(self._last)


def expected(
    params: Params, task: Task, operator: Operator, backend: Backend, peers: Peers, variant: int = 0
) -> tuple[Any, ...]:
    """What is due on this rank."""
    if not operator.ranks:
        own = inputs_of(params, task, operator, backend, peers.world_rank(peers.rank), variant)
        return as_tuple(operator.reference(params, **_arrays(backend, own)))
    every = [
        _arrays(backend, inputs_of(params, task, operator, backend, peers.world_rank(rank), variant))
        for rank in range(peers.size)
    ]
    return as_tuple(operator.reference(params, peers.rank, every))


def _arrays(backend: Backend, inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: backend.to_numpy(tensor) for name, tensor in inputs.items()}


def compared(
    params: Params, operator: Operator, backend: Backend, found: Sequence[Any], due: Sequence[Any]
) -> tuple[Errors, tuple[Numerics, ...]]:
    """How far off; WrongResult where that is too far."""
    if len(found) != len(due):
        raise WrongResult(f"{len(found)} outputs on this rank, expected {len(due)}")
    if not due:
        return Errors(0.0, 0.0), ()
    dtypes = [backend.dtype(output) for output in found]
    arrays = tuple(backend.to_numpy(output) for output in found)
    relative, typical = bounds(operator, params)
    numbers = tuple(numerics_of(arrays, due, dtypes))
    errors = compare(arrays, due, relative, typical * operator.tolerance.magnitude(params), typical)
    return errors, numbers


def to_check(operator: Operator, params: Params) -> tuple[Params, bool]:
    """(what is checked, whether it is smaller than what is timed): a reference takes the inputs of all ranks."""
    several = max(2, int(params.get("ranks", 1)))
    return (scale_down(operator, params, several), True) if too_large(operator, params, several) else (params, False)
