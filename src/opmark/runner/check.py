"""Verifies one task: its outputs (or gradients) against the reference of its operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from opmark.errors import WrongResult
from opmark.interfaces import Backend
from opmark.runner.prepare import Prepared, prepare, wanted_gradients
from opmark.schema import Implementation, Numerics, Operator, Params, Task, Verification
from opmark.schema.dtype import sizeof
from opmark.verify.compare import Errors, compare
from opmark.verify.gradient import EVALUATIONS, any_direction, check_gradients
from opmark.verify.numerics import numerics
from opmark.verify.scale import scale_down, too_large


def verify(task: Task, operator: Operator, implementation: Implementation, backend: Backend) -> Verification:
    """How a task was checked and how far off its outputs are. Raise WrongResult where that is too far."""
    params: Params = task.case.params
    backward = task.case.phase != "forward"
    evaluations = EVALUATIONS * len(wanted_gradients(task, operator, params)) if backward else 1
    scaled = too_large(operator, params, evaluations)
    if scaled:
        params = scale_down(operator, params, evaluations)
    gradients = wanted_gradients(task, operator, params) if backward else ()
    prepared = prepare(params, task, operator, implementation, backend)
    arrays = input_arrays(operator, prepared, backend)
    relative, typical = bounds(operator, params)
    numbers: list[Numerics] = []
    how = Verification(
        checked="scaled" if scaled else "full",
        params=dict(params) if scaled else None,
        tolerance=(relative, 0.0 if gradients and not operator.observe_gradients else typical),
        reference="" if operator.reference_by == "NumPy" else operator.reference_by,
    )
    try:
        if gradients and operator.observe_gradients:
            errors = _check_observed_gradients(prepared, operator, params, arrays, backend, numbers)
        elif gradients:
            errors = _check_backward(prepared, operator, params, arrays, backend, relative, gradients)
        else:
            errors = _check_forward(prepared, operator, params, arrays, backend, numbers)
    except WrongResult as error:
        error.verification = replace(how, numerics=tuple(numbers))
        raise
    return replace(how, max_abs_error=errors.max_abs, max_rel_error=errors.max_rel, numerics=tuple(numbers))


def input_arrays(operator: Operator, prepared: Prepared, backend: Backend) -> dict[str, Any]:
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
) -> Errors:
    """Compare arrays of outputs with the reference."""
    if operator.observe:  # what is observed has no last place any more
        outputs, dtypes = observed(operator, params, outputs, arrays), ()
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
) -> Errors:
    """Raise WrongResult where outputs are further off than `factor` times the operator's tolerance. How far off each
    one is goes to `numbers`, also where that is too far."""
    if numbers is not None:
        numbers += numerics_of(outputs, expected, dtypes)
    relative, typical = (factor * bound for bound in bounds(operator, params))
    return compare(outputs, expected, relative, typical * operator.tolerance.magnitude(params), typical)


def _check_forward(
    prepared: Prepared,
    operator: Operator,
    params: Params,
    arrays: Mapping[str, Any],
    backend: Backend,
    numbers: list[Numerics],
) -> Errors:
    native = _computed(prepared.launch(), backend)
    dtypes = [backend.dtype(output) for output in native]
    due = operator.result_dtype(params)
    if dtypes[0] != due:
        raise WrongResult(f"output 0 is {dtypes[0]}, expected {due}")
    outputs = tuple(backend.to_numpy(output) for output in native)
    return check_outputs(operator, params, outputs, arrays, numbers, dtypes)


def numerics_of(outputs: Sequence[Any], expected: Sequence[Any], dtypes: Sequence[str] = ()) -> Iterator[Numerics]:
    """How far off each output is that can be compared at all; a wrong number or shape is found elsewhere."""
    for i, (output, due) in enumerate(zip(outputs, expected, strict=False)):
        if output.shape == due.shape:
            yield numerics(output, due, dtypes[i] if i < len(dtypes) else "")


def _computed(outputs: Any, backend: Backend) -> tuple[Any, ...]:
    """The outputs, if they are computed: one that is computed only when somebody looks would be timed without its
    work."""
    native = as_tuple(outputs)
    if any(output is None for output in native):
        raise WrongResult("the launch returns nothing, or nothing for one of its outputs")
    for i, output in enumerate(native):
        if reason := backend.deferred(output):
            raise WrongResult(f"output {i} is {reason}")
    return native


def observed(operator: Operator, params: Params, outputs: tuple[Any, ...], arrays: Mapping[str, Any]) -> Any:
    """What the operator says is to be compared of its outputs; outputs that it cannot read are wrong."""
    assert operator.observe is not None
    try:
        return as_tuple(operator.observe(params, outputs if len(outputs) > 1 else outputs[0], **arrays))
    except (IndexError, TypeError, ValueError) as error:
        raise WrongResult(f"the outputs make no sense: {type(error).__name__}: {error}") from None


def _check_backward(
    prepared: Prepared,
    operator: Operator,
    params: Params,
    arrays: Mapping[str, Any],
    backend: Backend,
    relative: float,
    names: Sequence[str],
) -> Errors:
    native = _computed(prepared.launch(), backend)
    found = [backend.to_numpy(gradient) for gradient in native]
    seeds = [None if seed is None else backend.to_numpy(seed) for seed in prepared.seeds]
    custom = operator.direction

    def reference(inputs: Mapping[str, Any]) -> Sequence[Any]:
        return as_tuple(operator.reference(params, **inputs))

    def direction(name: str, generator: Any, array: Any) -> Any:
        return custom(params, name, generator, array) if custom else any_direction(name, generator, array)

    gradients = dict(zip(names, found, strict=True))
    return check_gradients(reference, arrays, gradients, seeds, relative, direction)


def _check_observed_gradients(
    prepared: Prepared,
    operator: Operator,
    params: Params,
    arrays: Mapping[str, Any],
    backend: Backend,
    numbers: list[Numerics],
) -> Errors:
    """Where what was drawn decides about the gradient, the operator says what of it can be compared."""
    assert operator.observe_gradients is not None
    gradients = [backend.to_numpy(gradient) for gradient in _computed(prepared.launch(), backend)]
    seeds = [None if seed is None else backend.to_numpy(seed) for seed in prepared.seeds]
    pairs = operator.observe_gradients(params, gradients, seeds, **arrays)
    found, expected = zip(*pairs, strict=True)
    numbers += numerics_of(found, expected)
    relative, typical = bounds(operator, params)
    return compare(found, expected, relative, typical=typical)


def bounds(operator: Operator, params: Params) -> tuple[float, float]:
    return operator.tolerance.bounds(_coarsest(operator, params), params)


def _coarsest(operator: Operator, params: Params) -> str:
    """The element type with the least precision among result and inputs: rounding happens to that."""
    result = operator.result_dtype(params)
    inputs = (spec.dtype for spec in operator.inputs(params).values())
    relative = operator.tolerance.bounds
    return max((result, *inputs), key=lambda dtype: (relative(dtype, params)[0], -sizeof(dtype)))


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)
