"""Checks after timing that the launch still computes: with other data at the same addresses, and poisoned outputs.

A launch that remembers its result by address, that computes once and hands out the same tensor, or that leaves
the work to whoever looks, agrees with the reference before timing and is found out here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opmark.errors import Unsupported, WrongResult
from opmark.interfaces import Backend
from opmark.runner.check import as_tuple, check_outputs, compare_outputs, input_arrays, observed
from opmark.runner.prepare import Prepared, bind, refill, set_bytes
from opmark.schema import Implementation, Launch, Operator, Params, Task
from opmark.units import count_bytes
from opmark.verify.scale import too_large

MAX_ELEMENTS = 1 << 16
"""Elements of an output that are compared, spread over it: enough to see that the work was done."""
_TWICE = 2.0
"""Two results, each as far from the truth as is allowed, may be so much further apart."""


def recheck(
    task: Task, operator: Operator, implementation: Implementation, backend: Backend, prepared: Prepared
) -> str:
    """`same`, or why it was not checked again. Raise WrongResult where the timed launch does not compute."""
    try:
        return _recheck(task, operator, implementation, backend, prepared)
    except Unsupported as error:  # a backend need not be able to write into a tensor
        return f"not done: {error.message}"


def _recheck(
    task: Task, operator: Operator, implementation: Implementation, backend: Backend, prepared: Prepared
) -> str:
    params, drawn = task.case.params, operator.result == "random"
    changed = operator.mutates and task.case.phase != "backward"  # which walks a graph and leaves the inputs alone
    need, free = set_bytes(params, operator), backend.available_bytes()
    if free is not None and need > free:
        return f"not done: other data needs {count_bytes(need)}, {count_bytes(free)} are free"
    if changed:  # being timed has changed them many times
        refill(params, task, operator, backend, prepared, variant=0)
    before = _seen(prepared, prepared.launch, params, operator, backend, task, poison=True)
    if task.case.phase != "backward":  # whose graph has kept what it needs of the inputs
        refill(params, task, operator, backend, prepared, variant=1)
    fresh = bind(params, task, operator, implementation, backend, prepared.inputs, variant=1)
    for target, source in zip(prepared.seeds, fresh.seeds, strict=True):
        if target is not None:
            backend.copy_into(target, source)
    expected = before if drawn else _seen(prepared, fresh.launch, params, operator, backend, task)
    if changed:
        refill(params, task, operator, backend, prepared, variant=1)
    found = _seen(prepared, prepared.launch, params, operator, backend, task)
    try:
        _refuse_poison(found, before)
        if not drawn:
            compare_outputs(operator, params, found, expected, factor=_TWICE)
        # Zeros everywhere (a gradient that vanishes) may well be the same; that they are new, the poison has told.
        if operator.result != "constant" and _equal(found, before) and any(array.any() for array in found):
            _explain_the_same(task, operator, backend, prepared)
    except WrongResult as error:
        raise WrongResult(
            "verified before timing, wrong after it: with other data in the same tensors the launch that was timed "
            f"does not compute it anew, or changes its inputs: {error.message}"
        ) from None
    return "same"


def _refuse_poison(found: tuple[Any, ...], before: tuple[Any, ...]) -> None:
    """Raise WrongResult for elements that no call wrote: they still have what the output was overwritten with."""
    for i, (now, then) in enumerate(zip(found, before, strict=True)):
        marks = _marks(now)
        if marks.any() and not _marks(then).any():
            raise WrongResult(f"output {i}: {int(marks.sum())} of {now.size} elements were not written")


def _marks(array: Any) -> Any:
    """Where a poisoned array is still poisoned; a truth value cannot tell."""
    if array.dtype.kind in "iu":
        return array == np.iinfo(array.dtype).max
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)


def _equal(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(one.shape == other.shape and (one == other).all() for one, other in zip(some, others, strict=True))


def _explain_the_same(task: Task, operator: Operator, backend: Backend, prepared: Prepared) -> None:
    """Other data, the same result: it is remembered, or this operator is like that, as the reference then says too."""
    params = task.case.params
    if task.case.phase != "forward" or operator.result == "random" or too_large(operator, params):
        raise WrongResult("the result is the same to the last bit")
    if operator.mutates:
        refill(params, task, operator, backend, prepared, variant=1)
    arrays = input_arrays(operator, prepared, backend)
    check_outputs(operator, params, tuple(map(backend.to_numpy, as_tuple(prepared.launch()))), arrays)


def _seen(
    prepared: Prepared,
    launch: Launch,
    params: Params,
    operator: Operator,
    backend: Backend,
    task: Task,
    *,
    poison: bool = False,
) -> tuple[Any, ...]:
    """What is compared of a call, as arrays; then, with `poison`, its outputs are overwritten."""
    observes = operator.observe is not None and task.case.phase == "forward" and operator.result != "random"
    arrays = input_arrays(operator, prepared, backend) if observes else {}
    native = as_tuple(launch())
    if observes:
        outputs = tuple(backend.to_numpy(output) for output in native)
        seen = as_tuple(observed(operator, params, outputs, arrays))
    else:
        seen = tuple(backend.sample(output, MAX_ELEMENTS) for output in native)
    if poison:
        for output in native:
            backend.poison(output)
    return seen
