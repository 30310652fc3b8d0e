"""After timing: does the launch that was timed still compute? With other data at the same addresses, into poison.

A launch that remembers its result by address, that computes once and hands out the same tensor, or that leaves
the work to whoever looks, agrees with the reference before timing and is found out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opmark.errors import WrongResult
from opmark.interfaces import Backend
from opmark.runner.check import as_tuple, bounds, check_outputs, observed
from opmark.runner.prepare import Prepared, prepare, set_bytes
from opmark.schema import Implementation, Operator, Params, Task
from opmark.units import count_bytes
from opmark.verify.compare import compare
from opmark.verify.scale import too_large

# Elements of an output that are looked at, spread over it: enough to see that the work was done.
MOST = 1 << 16
# Two results, each as far from the truth as is allowed, may be so much further apart.
_TWICE = 2.0


def recheck(
    task: Task, operator: Operator, implementation: Implementation, backend: Backend, prepared: Prepared
) -> str:
    """`same`, or why it was not done; WrongResult where the timed launch does not compute."""
    params = task.case.params
    need, free = set_bytes(params, operator), backend.available_bytes()
    if free is not None and need > free:
        return f"not done: other inputs and outputs need {count_bytes(need)}, {count_bytes(free)} are free"
    fresh = prepare(params, task, operator, implementation, backend, variant=1)
    outputs = fresh.launch()
    expected = _seen(fresh, outputs, params, operator, backend, task)
    timed = as_tuple(prepared.launch())
    if _equal(expected, _seen(prepared, timed, params, operator, backend, task)) and task.case.phase == "forward":
        # Other data, the same result: it is remembered by something that both have, or this operator is like that.
        _ask_the_reference(fresh, outputs, params, operator, backend)
    for output in timed:
        backend.poison(output)
    del timed, output
    for target, source in zip(prepared.data, fresh.data, strict=True):
        backend.copy_into(target, source)
    found = _seen(prepared, prepared.launch(), params, operator, backend, task)
    relative, typical = (_TWICE * bound for bound in bounds(operator, params))
    absolute = typical * operator.tolerance.magnitude(params)
    with _after_timing():
        compare(found, expected, relative, absolute, typical)
    return "same"


def _equal(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(one.shape == other.shape and (one == other).all() for one, other in zip(some, others, strict=True))


def _ask_the_reference(fresh: Prepared, outputs: Any, params: Params, operator: Operator, backend: Backend) -> None:
    if not too_large(operator, params):
        arrays = {name: backend.to_numpy(tensor) for name, tensor in fresh.inputs.items()}
        with _after_timing():
            check_outputs(operator, params, tuple(map(backend.to_numpy, as_tuple(outputs))), arrays)


@contextmanager
def _after_timing() -> Iterator[None]:
    try:
        yield
    except WrongResult as error:
        raise WrongResult(
            "verified before timing, wrong after it: with other data in the same tensors the launch that was timed "
            f"does not compute it anew: {error.message}"
        ) from None


def _seen(
    prepared: Prepared, outputs: Any, params: Params, operator: Operator, backend: Backend, task: Task
) -> tuple[Any, ...]:
    """What is compared, as arrays."""
    native = as_tuple(outputs)
    if operator.observe is None or task.case.phase != "forward":
        return tuple(backend.to_numpy(backend.thin(output, MOST)) for output in native)
    arrays = {name: backend.to_numpy(tensor) for name, tensor in prepared.inputs.items()}
    return as_tuple(observed(operator, params, tuple(backend.to_numpy(output) for output in native), arrays))
