"""Verifies the outputs (or gradients) of one task against the reference of its operator.

Before timing, `verify` checks the case, or a smaller one where the reference would take too long (`scale_down`). After
timing, `recheck` makes sure that the launch still computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from opmark.errors import Unsupported, WrongResult
from opmark.plugin import Backend, Implementation, Launch, Operator, Params
from opmark.plugin.operator import Place, count_elements, resize, rules_allow, size_places
from opmark.schema import Numerics, Task, Verification
from opmark.schema.tensor import is_float, sizeof
from opmark.units import count_bytes
from opmark.worker.preparation import PreparedLaunch, bind, case_bytes, gradient_names, prepare, refill
from opmark.worker.verify.accuracy import (
    EVALUATIONS,
    ArrayErrors,
    any_direction,
    check_gradients,
    compare_arrays,
    numerics,
    smallest_spacing,
)
from opmark.worker.verify.memory import refuse_changed_inputs, refuse_shared_memory
from opmark.worker.verify.randomness import refuse_dependent_draws
from opmark.worker.verify.repeats import LOOKED_AT_ELEMENTS, refuse_unsteady

_INDEPENDENT_CALLS = 3


def verify(task: Task, operator: Operator, implementation: Implementation, backend: Backend) -> Verification:
    """Check a task: the result says how, and how far off its outputs are. Raise WrongResult where that is too far."""
    params: Params = task.case.params
    backward = task.case.phase != "forward"
    evaluations = EVALUATIONS * len(gradient_names(task, operator, params)) if backward else 1
    scaled = too_large(operator, params, evaluations)
    if scaled:
        params = scale_down(operator, params, evaluations)
    gradients = gradient_names(task, operator, params) if backward else ()
    prepared = prepare(params, task, operator, implementation, backend)
    arrays = input_arrays(operator, prepared, backend)
    tolerance = bounds(operator, params)
    if gradients and not operator.observe_gradients:
        tolerance = (math.prod(operator.tolerance.gradient_bounds(_coarsest_dtype(operator, params), params)), 0.0)
    numbers: list[Numerics] = []
    verification = Verification(
        checked="scaled" if scaled else "full",
        params=dict(params) if scaled else None,
        tolerance=tolerance,
        reference="" if operator.reference_by == "NumPy" else operator.reference_by,
    )
    try:
        if gradients and operator.observe_gradients:
            errors = _check_observed_gradients(prepared, operator, params, arrays, backend, numbers)
        elif gradients:
            errors = _check_backward(prepared, operator, params, arrays, backend, gradients)
        else:
            errors = _check_forward(prepared, operator, params, arrays, backend, numbers)
        if operator.draws and task.case.phase != "backward":  # which walks the graph of one draw
            forward = replace(task, case=replace(task.case, phase="forward", wrt=()))
            same = prepared if forward == task else prepare(params, forward, operator, implementation, backend)
            _check_draws(same, operator, params, arrays, backend)
        refuse_changed_inputs(arrays, input_arrays(operator, prepared, backend), operator.mutates)
    except WrongResult as error:
        error.verification = replace(verification, numerics=tuple(numbers))
        raise
    return replace(verification, max_abs_error=errors.max_abs, max_rel_error=errors.max_rel, numerics=tuple(numbers))


def input_arrays(operator: Operator, prepared: PreparedLaunch, backend: Backend) -> dict[str, Any]:
    """The inputs as arrays for the reference, copied where the launch is about to change them."""
    arrays = {name: backend.to_numpy(tensor) for name, tensor in prepared.inputs.items()}
    return {name: np.array(array) if name in operator.mutates else array for name, array in arrays.items()}


def check_outputs(
    operator: Operator,
    params: Params,
    outputs: tuple[Any, ...],
    arrays: Mapping[str, Any],
    numbers: list[Numerics] | None = None,
    dtypes: Sequence[str] = (),
) -> ArrayErrors:
    """Compare arrays of outputs with the reference."""
    if operator.observe:  # observed values have no last place
        outputs, dtypes = output_arrays(operator, params, outputs, arrays), ()
    expected = as_tuple(operator.reference(params, **arrays))
    return compare_outputs(operator, params, outputs, expected, numbers, dtypes)


def compare_outputs(
    operator: Operator,
    params: Params,
    outputs: Sequence[Any],
    expected: Sequence[Any],
    numbers: list[Numerics] | None = None,
    dtypes: Sequence[str] = (),
    factor: float = 1.0,
) -> ArrayErrors:
    """Raise WrongResult where outputs are further off than `factor` times the operator's tolerance. How far off each
    one is goes to `numbers`, also where that is too far."""
    if numbers is not None:
        numbers += compute_numerics(outputs, expected, dtypes)
    relative, typical = (factor * bound for bound in bounds(operator, params))
    return compare_arrays(outputs, expected, relative, typical * operator.tolerance.magnitude(params), typical)


def _check_forward(
    prepared: PreparedLaunch,
    operator: Operator,
    params: Params,
    arrays: Mapping[str, Any],
    backend: Backend,
    numbers: list[Numerics],
) -> ArrayErrors:
    native = _require_computed(prepared.launch(), backend)
    if not (operator.view or operator.trivial(params)):
        others = {name: tensor for name, tensor in prepared.inputs.items() if name not in operator.mutates}
        refuse_shared_memory(native, others, backend)
    dtypes = [backend.dtype(output) for output in native]
    _check_dtypes(operator, params, dtypes, backend)
    outputs = tuple(backend.to_numpy(output) for output in native)
    return check_outputs(operator, params, outputs, arrays, numbers, dtypes)


def _check_dtypes(operator: Operator, params: Params, dtypes: Sequence[str], backend: Backend) -> None:
    """Raise WrongResult for an output of another element type than the operator declares: it is other work than was
    asked for, since more or fewer bytes are written."""
    due = [operator.result_dtype(params), *operator.further_dtypes(params)]
    due += due[-1:] * (len(dtypes) - len(due))  # the last one stands for all that follow
    for i, (found, expected) in enumerate(zip(dtypes, due, strict=False)):
        allowed = backend.index_dtypes if i and expected == "int64" else (expected,)
        if found not in allowed:
            raise WrongResult(f"output {i} is {found}, expected {' or '.join(allowed)}")


def compute_numerics(outputs: Sequence[Any], expected: Sequence[Any], dtypes: Sequence[str] = ()) -> Iterator[Numerics]:
    """Yield how far off each output is; a wrong number of outputs or a wrong shape is reported elsewhere."""
    for i, (output, due) in enumerate(zip(outputs, expected, strict=False)):
        if output.shape == due.shape:
            yield numerics(output, due, dtypes[i] if i < len(dtypes) else "")


def _call_backward(
    prepared: PreparedLaunch, operator: Operator, params: Params, backend: Backend
) -> tuple[list[Any], list[Any]]:
    """(gradients, seeds) as arrays. Raise WrongResult for gradients that are views of inputs or seeds."""
    native = _require_computed(prepared.launch(), backend)
    if not (operator.gradient_view or operator.trivial(params)):
        seeds = {f"the gradient of output {i}": seed for i, seed in enumerate(prepared.seeds)}
        refuse_shared_memory(native, {**prepared.inputs, **seeds}, backend, "gradient")
    found = [backend.to_numpy(gradient) for gradient in native]
    return found, [None if seed is None else backend.to_numpy(seed) for seed in prepared.seeds]


def _require_computed(outputs: Any, backend: Backend) -> tuple[Any, ...]:
    """The outputs as a tuple. Raise WrongResult for an output that is computed only when it is read: it would be timed
    without its work."""
    native = as_tuple(outputs)
    if any(output is None for output in native):
        raise WrongResult("the launch returns nothing, or nothing for one of its outputs")
    for i, output in enumerate(native):
        if reason := backend.deferred(output):
            raise WrongResult(f"output {i} is {reason}")
    return native


def output_arrays(operator: Operator, params: Params, outputs: tuple[Any, ...], arrays: Mapping[str, Any]) -> Any:
    """The arrays that the operator makes of its outputs for comparison; outputs that it cannot read are wrong."""
    assert operator.observe is not None
    try:
        return as_tuple(operator.observe(params, outputs if len(outputs) > 1 else outputs[0], **arrays))
    except (IndexError, TypeError, ValueError) as error:
        raise WrongResult(f"the outputs make no sense: {type(error).__name__}: {error}") from None


def _check_backward(
    prepared: PreparedLaunch,
    operator: Operator,
    params: Params,
    arrays: Mapping[str, Any],
    backend: Backend,
    names: Sequence[str],
) -> ArrayErrors:
    found, seeds = _call_backward(prepared, operator, params, backend)
    custom = operator.direction

    def reference(inputs: Mapping[str, Any]) -> Sequence[Any]:
        return as_tuple(operator.reference(params, **inputs))

    def direction(name: str, generator: Any, array: Any) -> Any:
        return custom(params, name, generator, array) if custom else any_direction(name, generator, array)

    gradients = dict(zip(names, found, strict=True))
    dtype = _coarsest_dtype(operator, params)
    relative, factor = operator.tolerance.gradient_bounds(dtype, params)
    return check_gradients(
        reference, arrays, gradients, seeds, relative, direction, factor=factor, spacing=smallest_spacing(dtype)
    )


def _check_observed_gradients(
    prepared: PreparedLaunch,
    operator: Operator,
    params: Params,
    arrays: Mapping[str, Any],
    backend: Backend,
    numbers: list[Numerics],
) -> ArrayErrors:
    """Compare gradients that depend on random values: the operator says which part of them can be compared."""
    assert operator.observe_gradients is not None
    gradients, seeds = _call_backward(prepared, operator, params, backend)
    pairs = operator.observe_gradients(params, gradients, seeds, **arrays)
    found, expected = zip(*pairs, strict=True)
    numbers += compute_numerics(found, expected)
    relative, typical = bounds(operator, params)
    return compare_arrays(found, expected, relative, typical=typical)


def _check_draws(
    prepared: PreparedLaunch, operator: Operator, params: Params, arrays: Mapping[str, Any], backend: Backend
) -> None:
    """Raise WrongResult where calls of the forward pass on the same data do not draw independently."""
    assert operator.draws is not None
    drawn = []
    for _ in range(_INDEPENDENT_CALLS):
        outputs = tuple(backend.to_numpy(output) for output in as_tuple(prepared.launch()))
        drawn.append(operator.draws(params, outputs if len(outputs) > 1 else outputs[0], **arrays))
    refuse_dependent_draws(drawn)


def bounds(operator: Operator, params: Params) -> tuple[float, float]:
    return operator.tolerance.bounds(_coarsest_dtype(operator, params), params)


def _coarsest_dtype(operator: Operator, params: Params) -> str:
    """The element type with the least precision among result and inputs: rounding happens to that."""
    result = operator.result_dtype(params)
    inputs = (spec.dtype for spec in operator.inputs(params).values())
    relative = operator.tolerance.bounds
    return max((result, *inputs), key=lambda dtype: (relative(dtype, params)[0], is_float(dtype), -sizeof(dtype)))


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


# After timing: does the launch still compute, with other data at the same addresses and poisoned outputs?

MAX_RECHECKED_ELEMENTS = 1 << 16
"""Elements of an output that are compared, spread over it: enough to see that the work was done."""
_TWICE = 2.0
"""Two results that are each at the limit of the tolerance may be this many times the tolerance apart."""
_BURST_ROOM = 8
"""Free memory, in sizes of a call, that is enough to keep the outputs of a burst of calls."""


def recheck(
    task: Task,
    operator: Operator,
    implementation: Implementation,
    backend: Backend,
    prepared: PreparedLaunch,
    seconds: float = 0.02,
) -> str:
    """`same`, or why it was not checked again. Raise WrongResult where the timed launch does not compute. `seconds` is
    the time for calls on the same data."""
    try:
        return _recheck(task, operator, implementation, backend, prepared, seconds)
    except Unsupported as error:  # some backends cannot write into a tensor
        return f"not done: {error.message}"
    except WrongResult as error:
        raise WrongResult(f"verified before timing, wrong after it: {error.message}") from None


def _recheck(
    task: Task,
    operator: Operator,
    implementation: Implementation,
    backend: Backend,
    prepared: PreparedLaunch,
    seconds: float,
) -> str:
    params, drawn = task.case.params, operator.result == "random"
    changed = operator.mutates and task.case.phase != "backward"  # which walks a graph and leaves the inputs alone
    need, free = case_bytes(params, operator), backend.available_bytes()
    if free is not None and need > free:
        return f"not done: other data needs {count_bytes(need)}, {count_bytes(free)} are free"
    if changed:  # the timed calls have changed the inputs many times
        refill(params, task, operator, backend, prepared, variant=0)
    if not drawn:
        arrays = input_arrays(operator, prepared, backend) if _observes(operator, task) else None
        refuse_unsteady(
            prepared.launch,
            lambda native: _comparable(as_tuple(native), params, operator, backend, arrays, LOOKED_AT_ELEMENTS),
            lambda found, first: compare_outputs(operator, params, found, first, factor=_TWICE),
            seconds,
            keep=free is None or _BURST_ROOM * need <= free,
            reset=(lambda: refill(params, task, operator, backend, prepared, variant=0)) if changed else None,
        )
        if changed:
            refill(params, task, operator, backend, prepared, variant=0)
    before = _call_for_comparison(prepared, prepared.launch, params, operator, backend, task, poison=True)
    if drawn and task.case.phase != "backward":  # which walks the graph of one draw
        again = _call_for_comparison(prepared, prepared.launch, params, operator, backend, task, poison=True)
        if _equal(again, before):
            raise WrongResult("two calls on the same data draw the same: the result is the same to the last bit")
    if task.case.phase != "backward":  # whose graph has kept what it needs of the inputs
        keep_ends = not (
            changed or operator.view or operator.trivial(params)
        )  # an output that is the input is poisoned
        refill(params, task, operator, backend, prepared, variant=1, keep_ends=keep_ends)
    inputs = _input_samples(prepared, backend)
    fresh = bind(params, task, operator, implementation, backend, prepared.inputs, variant=1)
    for target, source in zip(prepared.seeds, fresh.seeds, strict=True):
        if target is not None:
            backend.copy_into(target, source)
    expected = before if drawn else _call_for_comparison(prepared, fresh.launch, params, operator, backend, task)
    if changed:
        refill(params, task, operator, backend, prepared, variant=1)
    found = _call_for_comparison(prepared, prepared.launch, params, operator, backend, task)
    refuse_changed_inputs(inputs, _input_samples(prepared, backend), operator.mutates)
    try:
        _check_all_written(found, before)
        if not drawn:
            compare_outputs(operator, params, found, expected, factor=_TWICE)
        # Zeros everywhere (a gradient that vanishes) may be the same twice; poison has shown that they were written.
        if operator.result != "constant" and _equal(found, before) and any(array.any() for array in found):
            _check_unchanged(task, operator, backend, prepared)
    except WrongResult as error:
        raise WrongResult(
            "with other data in the same tensors the launch that was timed does not compute it anew, or changes its "
            f"inputs: {error.message}"
        ) from None
    return "same"


def _check_all_written(found: tuple[Any, ...], before: tuple[Any, ...]) -> None:
    """Raise WrongResult for elements that no call wrote: they still have what the output was overwritten with."""
    for i, (now, then) in enumerate(zip(found, before, strict=True)):
        marks = _find_poison(now)
        if marks.any() and not _find_poison(then).any():
            raise WrongResult(f"output {i}: {int(marks.sum())} of {now.size} elements were not written")


def _find_poison(array: Any) -> Any:
    """Where a poisoned array is still poisoned; a truth value cannot tell."""
    if array.dtype.kind in "iu":
        return array == np.iinfo(array.dtype).max
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)


def _equal(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(one.shape == other.shape and (one == other).all() for one, other in zip(some, others, strict=True))


def _check_unchanged(task: Task, operator: Operator, backend: Backend, prepared: PreparedLaunch) -> None:
    """Raise WrongResult where other data gave the same result, unless the reference says that it should."""
    params = task.case.params
    if task.case.phase != "forward" or operator.result == "random" or too_large(operator, params):
        raise WrongResult("the result is the same to the last bit")
    if operator.mutates:
        refill(params, task, operator, backend, prepared, variant=1)
    arrays = input_arrays(operator, prepared, backend)
    check_outputs(operator, params, tuple(map(backend.to_numpy, as_tuple(prepared.launch()))), arrays)


def _call_for_comparison(
    prepared: PreparedLaunch,
    launch: Launch,
    params: Params,
    operator: Operator,
    backend: Backend,
    task: Task,
    *,
    poison: bool = False,
) -> tuple[Any, ...]:
    """Call once, and return the arrays to compare. With `poison`, the outputs are overwritten afterwards."""
    arrays = input_arrays(operator, prepared, backend) if _observes(operator, task) else None
    native = as_tuple(launch())
    compared = _comparable(native, params, operator, backend, arrays, MAX_RECHECKED_ELEMENTS)
    if poison:
        for output in native:
            backend.poison(output)
    return compared


def _observes(operator: Operator, task: Task) -> bool:
    """Whether the operator says what of its outputs can be compared. Draws are never the same."""
    return operator.observe is not None and task.case.phase == "forward" and operator.result != "random"


def _comparable(
    native: tuple[Any, ...],
    params: Params,
    operator: Operator,
    backend: Backend,
    arrays: Mapping[str, Any] | None,
    most: int,
) -> tuple[Any, ...]:
    """The arrays to compare: what the operator makes of its outputs and of its inputs `arrays`, where there are any,
    else so many elements of each output."""
    if arrays is None:
        return tuple(backend.sample(output, most) for output in native)
    return as_tuple(output_arrays(operator, params, tuple(map(backend.to_numpy, native)), arrays))


def _input_samples(prepared: PreparedLaunch, backend: Backend) -> dict[str, Any]:
    return {name: backend.sample(tensor, MAX_RECHECKED_ELEMENTS) for name, tensor in prepared.inputs.items()}


# A smaller case in place of one that is too large to check: same operator, same dtype, same options.

# The reference then takes a fraction of a second and a few tens of megabytes.
MAX_FLOPS = 500_000_000
MAX_VERIFIED_ELEMENTS = 1 << 22


def too_large(operator: Operator, params: Params, evaluations: int = 1) -> bool:
    """Whether computing the reference so many times would take too long, or too much memory."""
    limit = MAX_VERIFIED_ELEMENTS if evaluations == 1 else MAX_VERIFIED_ELEMENTS // 4
    return evaluations * (operator.cost(params).flops or 0) > MAX_FLOPS or count_elements(operator, params) > limit


def scale_down(operator: Operator, params: Params, evaluations: int = 1) -> dict[str, Any]:
    """Parameters of a smaller case: the largest size is halved again and again until the case is small enough to check.

    Rules of the operator hold at every step. Where they do not let a size go alone, all sizes of the same value go
    together (queries and keys of a causal attention, channels and groups of a depthwise convolution), or it stays. So
    does what makes the work no less (a stride). Where nothing goes any more, everything goes at once.
    """
    scaled, fixed = dict(params), set[Place]()
    while too_large(operator, scaled, evaluations):
        sizes = {place: n for place, n in size_places(operator, scaled).items() if place not in fixed and n > 1}
        if not sizes:
            every = [place for place, n in size_places(operator, scaled).items() if n > 1]
            smaller = resize(scaled, every, lambda n: n // 2)
            if not rules_allow(operator, smaller) or _work(operator, smaller) >= _work(operator, scaled):
                return scaled
            scaled = smaller
            fixed.clear()
            continue
        largest = max(sizes, key=lambda place: sizes[place])
        alike = [place for place, n in sizes.items() if n == sizes[largest]]
        for at in ([largest], alike):
            smaller = resize(scaled, at, lambda n: n // 2)
            if rules_allow(operator, smaller) and _work(operator, smaller) < _work(operator, scaled):
                scaled = smaller
                break
        else:
            fixed.add(largest)
    return scaled


def _work(operator: Operator, params: Params) -> float:
    cost = operator.cost(params)
    return (cost.flops or 0) / MAX_FLOPS + count_elements(operator, params) / MAX_VERIFIED_ELEMENTS
