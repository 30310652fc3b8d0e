"""Verifies the outputs (or gradients) of one task against the reference of its operator.

Before timing, `verify` checks the case: all of it where the reference is quick, else a part of it (`sampled`). Where no
part can be checked, it checks a smaller case (`scale_down`), which says little about the one that is timed. After
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
from opmark.plugin.operator import count_elements, shrink
from opmark.schema import Numerics, Task, Verification
from opmark.schema.tensor import STORED_AS, is_float, sizeof
from opmark.units import count_bytes
from opmark.worker.preparation import PreparedLaunch, bind, case_bytes, gradient_names, make_inputs, prepare, refill
from opmark.worker.verify.accuracy import (
    DIRECTIONS,
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
from opmark.worker.verify.sampled import (
    WHOLE,
    SamplePlan,
    plan_gradient_sample,
    plan_rows,
    plan_sample,
    plan_second_sample,
)
from opmark.worker.verify.slices import ALL, Part, PartialSize, add_up, as_tuple, find_coincidences, forget_sizes

_INDEPENDENT_CALLS = 3


def verify(task: Task, operator: Operator, implementation: Implementation, backend: Backend) -> Verification:
    """Check a task: the result says how, and how far off its outputs are. Raise WrongResult where that is too far."""
    plan = plan_check(task, operator)
    try:
        return _verify_by(plan, task, operator, implementation, backend)
    except WrongResult:
        # The sizes that a part is cut along were found with a tiny case: was that a coincidence?
        if plan is None or not _drop_coincidences(plan, task, operator, backend):
            raise
    return verify(task, operator, implementation, backend)


def _drop_coincidences(plan: SamplePlan, task: Task, operator: Operator, backend: Backend) -> bool:
    """Whether the reference itself shows, at the size of the case, that it cannot be cut as the plan does. These sizes
    are then forgotten."""
    if plan.whole or operator.row_axes:
        return False
    params = task.case.params
    part, inputs = plan.draw(params), make_inputs(params, task, operator, backend)
    wrong = find_coincidences(
        operator, params, part, plan.summed, lambda some: input_arrays(operator, params, inputs, backend, some)
    )
    return forget_sizes(operator, params, *wrong)


def _verify_by(
    plan: SamplePlan | None, task: Task, operator: Operator, implementation: Implementation, backend: Backend
) -> Verification:
    params: Params = task.case.params
    if plan is None:
        evaluations = EVALUATIONS * len(gradient_names(task, operator, params)) if task.case.phase != "forward" else 1
        params = scale_down(operator, params, evaluations)
    gradients = gradient_names(task, operator, params) if task.case.phase != "forward" else ()
    prepared = prepare(params, task, operator, implementation, backend)
    inputs = _input_samples(prepared, backend)
    tolerance = bounds(operator, params)
    if gradients and not operator.observe_gradients:
        tolerance = (math.prod(operator.tolerance.gradient_bounds(_coarsest_dtype(operator, params), params)), 0.0)
    numbers: list[Numerics] = []
    verification = Verification(
        checked="scaled" if plan is None else "full" if plan.whole else "sampled",
        note="" if plan else "its reference would take too long at this size, and no part of it stands for the rest",
        params=None if plan else dict(params),
        tolerance=tolerance,
        reference="" if operator.reference_by == "NumPy" else operator.reference_by,
        outputs=operator.output_names(params),
        bounds=(not gradients and operator.tolerance.output_bounds(_coarsest_dtype(operator, params), params)) or (),
    )
    plan = plan or WHOLE
    try:
        if gradients and operator.observe_gradients:
            errors = _check_observed_gradients(prepared, operator, params, backend, numbers)
        elif gradients:
            errors = _check_backward(plan, prepared, operator, params, backend, gradients)
        else:
            errors = _check_forward(plan, prepared, operator, params, backend, numbers)
        if operator.draws and task.case.phase != "backward":  # which walks the graph of one draw
            forward = replace(task, case=replace(task.case, phase="forward", wrt=()))
            same = prepared if forward == task else prepare(params, forward, operator, implementation, backend)
            _check_draws(same, operator, params, backend)
        refuse_changed_inputs(inputs, _input_samples(prepared, backend), operator.mutates)
    except WrongResult as error:
        error.verification = replace(verification, numerics=tuple(numbers))
        raise
    blind = operator.tolerance.why_blind(_coarsest_dtype(operator, params), params)
    if blind:
        verification = replace(verification, checked="none", note=blind)
    return replace(verification, max_abs_error=errors.max_abs, max_rel_error=errors.max_rel, numerics=tuple(numbers))


def plan_check(task: Task, operator: Operator) -> SamplePlan | None:
    """How to check a task at its own size: in full, or a part of it. None where neither can be done."""
    params: Params = task.case.params
    if operator.row_axes:
        return plan_rows(operator, params)
    if task.case.phase == "forward":
        return plan_sample(operator, params) if too_large(operator, params) else WHOLE
    names = gradient_names(task, operator, params)
    if not too_large(operator, params, EVALUATIONS * len(names)):
        return WHOLE
    if operator.observe_gradients:
        return plan_sample(operator, params)
    return plan_gradient_sample(operator, params, names)


def input_arrays(
    operator: Operator, params: Params, inputs: Mapping[str, Any], backend: Backend, part: Part = ALL
) -> dict[str, Any]:
    """The inputs, or a part of them, as arrays for the reference. They are copies: a launch may change its inputs."""
    shapes = {name: spec.shape for name, spec in operator.inputs(params).items()}
    return {name: backend.take(tensor, part.positions(params, name, shapes[name])) for name, tensor in inputs.items()}


def check_outputs(
    operator: Operator,
    params: Params,
    outputs: tuple[Any, ...],
    arrays: Mapping[str, Any],
    numbers: list[Numerics] | None = None,
    dtypes: Sequence[str] = (),
    whole: Params | None = None,
    positions: Sequence[Mapping[int, Any]] = (),
) -> ArrayErrors:
    """Compare arrays of outputs with the reference. `whole` has the parameters of the case that these are a part of,
    `positions` where in its outputs they are."""
    if operator.observe:  # observed values have no last place
        outputs, dtypes, positions = output_arrays(operator, params, outputs, arrays), (), ()
    expected = as_tuple(operator.reference(params, **arrays))
    return compare_outputs(operator, whole or params, outputs, expected, numbers, dtypes, positions=positions)


def compare_outputs(
    operator: Operator,
    params: Params,
    outputs: Sequence[Any],
    expected: Sequence[Any],
    numbers: list[Numerics] | None = None,
    dtypes: Sequence[str] = (),
    factor: float = 1.0,
    positions: Sequence[Mapping[int, Any]] = (),
) -> ArrayErrors:
    """Raise WrongResult where outputs are further off than `factor` times the operator's tolerance. How far off each
    one is goes to `numbers`, also where that is too far."""
    outputs, expected = ([np.asarray(array, order="C") for array in arrays] for arrays in (outputs, expected))
    if numbers is not None:
        numbers += compute_numerics(outputs, expected, dtypes)
    relative, typical = (factor * bound for bound in bounds(operator, params))
    dtype = _coarsest_dtype(operator, params)
    absolute = typical * operator.tolerance.magnitude(params)
    if relative and is_float(dtype):  # numbers near zero are rounded to a step that does not shrink with them
        absolute += factor * smallest_spacing(dtype) / 2
    each = operator.tolerance.output_bounds(dtype, params)
    return compare_arrays(
        outputs, expected, relative, absolute, [factor * one for one in each] if each else typical, positions
    )


def _check_forward(
    plan: SamplePlan,
    prepared: PreparedLaunch,
    operator: Operator,
    params: Params,
    backend: Backend,
    numbers: list[Numerics] | None = None,
) -> ArrayErrors:
    """Call once, and compare the outputs with the reference, or parts of both."""
    part = plan.draw(params)
    arrays = {} if plan.chunked else input_arrays(operator, params, prepared.inputs, backend, part)
    sums = RandomSums(plan.summed, params, prepared.inputs, backend) if plan.summed else None
    native = _require_computed(prepared.launch(), backend)
    if not (operator.view or operator.trivial(params)):
        others = {name: tensor for name, tensor in prepared.inputs.items() if name not in operator.mutates}
        refuse_shared_memory(native, others, backend)
    dtypes = [backend.dtype(output) for output in native]
    _check_dtypes(operator, params, dtypes, backend)
    outputs = tuple(_take_output(part, params, i, output, backend) for i, output in enumerate(native))
    if plan.chunked:
        pieces = plan.pieces(params, part)
        given = ((piece, input_arrays(operator, params, prepared.inputs, backend, piece)) for piece in pieces)
        return compare_outputs(operator, params, outputs, add_up(operator, params, given), numbers, dtypes)
    taken = [part.positions(params, i, backend.shape(output)) for i, output in enumerate(native)]
    smaller = part.params(operator, params)
    errors = check_outputs(operator, smaller, outputs, arrays, numbers, dtypes, whole=params, positions=taken)
    if sums:
        sums.check(operator, native)
    return errors


class RandomSums:
    """Sums of all elements by random signs along a size in which the operator is linear (Freivalds' check): a single
    wrong element changes them, wherever it is."""

    def __init__(self, size: PartialSize, params: Params, inputs: Mapping[str, Any], backend: Backend) -> None:
        """The inputs are read now, since a launch may change them."""
        self._size, self._params, self._backend = size, params, backend
        self._signs = np.random.default_rng().choice((-1.0, 1.0), size.value(params))
        self._inputs = {name: self._sum(name, tensor) for name, tensor in inputs.items()}

    def check(self, operator: Operator, outputs: Sequence[Any]) -> None:
        """Raise WrongResult where sums of outputs are not the outputs of sums. Errors with random signs add up like the
        root of their number, and so does the size of the sums."""
        expected = as_tuple(operator.reference(self._size.resize(self._params, 1), **self._inputs))
        found = tuple(self._sum(i, output) for i, output in enumerate(outputs))
        relative, typical = bounds(operator, self._params)
        root = len(self._signs) ** 0.5
        absolute = typical * operator.tolerance.magnitude(self._params) * root
        try:
            compare_arrays(found, expected, relative, absolute, relative + typical)
        except WrongResult as error:
            raise WrongResult(f"sums of all elements by random signs, {error.message}") from None

    def _sum(self, tensor: str | int, value: Any) -> Any:
        for axis in self._size.axes:
            if axis.tensor == tensor:
                return self._backend.contract(value, axis.axis, self._signs)
        return self._backend.to_numpy(value)


def _take_output(part: Part, params: Params, index: int, output: Any, backend: Backend) -> Any:
    if not part.sizes:
        return backend.to_numpy(output)
    try:
        return backend.take(output, part.positions(params, index, backend.shape(output)))
    except ValueError as error:
        raise WrongResult(f"output {index}: {error}") from None


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


def _call_backward(prepared: PreparedLaunch, operator: Operator, params: Params, backend: Backend) -> tuple[Any, ...]:
    """The gradients. Raise WrongResult for gradients that are views of inputs or of the gradients of the outputs."""
    native = _require_computed(prepared.launch(), backend)
    if not (operator.gradient_view or operator.trivial(params)):
        seeds = {f"the gradient of output {i}": seed for i, seed in enumerate(prepared.seeds)}
        refuse_shared_memory(native, {**prepared.inputs, **seeds}, backend, "gradient")
    return native


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
        given = {name: arrays[name] for name in operator.observed_inputs(arrays)}
        return as_tuple(operator.observe(params, outputs if len(outputs) > 1 else outputs[0], **given))
    except (IndexError, TypeError, ValueError) as error:
        raise WrongResult(f"the outputs make no sense: {type(error).__name__}: {error}") from None


def _check_backward(
    plan: SamplePlan,
    prepared: PreparedLaunch,
    operator: Operator,
    params: Params,
    backend: Backend,
    names: Sequence[str],
) -> ArrayErrors:
    """Check gradients, or a part of them. Then the gradients of the outputs are zero outside of the part: so are those
    of the inputs, and within the part they are those of a case that has nothing else."""
    part, specs = plan.draw(params), operator.inputs(params)
    smaller = part.params(operator, params)
    arrays = input_arrays(operator, params, prepared.inputs, backend, part)
    kept = [
        {} if seed is None or not part.sizes else part.positions(params, i, backend.shape(seed))
        for i, seed in enumerate(prepared.seeds)
    ]
    smooth = operator.smooth(smaller, **arrays) if operator.smooth else True
    for i, (seed, positions) in enumerate(zip(prepared.seeds, kept, strict=True)):
        if positions or (i == 0 and operator.smooth):
            backend.keep_only(seed, positions, smooth if i == 0 else True)
    native = _call_backward(prepared, operator, params, backend)
    dtype = _coarsest_dtype(operator, params)
    relative, factor = operator.tolerance.gradient_bounds(dtype, params)
    weight = part.weight(params)
    seeds = [
        None if seed is None else weight * backend.take(seed, positions)
        for seed, positions in zip(prepared.seeds, kept, strict=True)
    ]
    gradients = {}
    for name, gradient in zip(names, native, strict=True):
        if (shape := backend.shape(gradient)) != specs[name].shape:
            raise WrongResult(f"gradient of `{name}` has shape {shape}, expected {specs[name].shape}")
        gradients[name] = backend.take(gradient, part.positions(params, name, shape))
        for outside in part.outside(params, name, shape):
            _check_vanishes(name, backend.take(gradient, outside), gradients[name], relative)

    def reference(inputs: Mapping[str, Any]) -> Sequence[Any]:
        return as_tuple(operator.reference(smaller, **inputs))

    custom = operator.direction

    def direction(name: str, generator: Any, array: Any) -> Any:
        return custom(smaller, name, generator, array) if custom else any_direction(name, generator, array)

    return check_gradients(
        reference, arrays, gradients, seeds, relative, direction, plan.directions or DIRECTIONS,
        factor=factor, spacing=smallest_spacing(dtype),
    )  # fmt: skip


def _check_vanishes(name: str, outside: Any, inside: Any, relative: float) -> None:
    """Raise WrongResult for a gradient that is not zero where nothing was asked for."""
    worst, typical = float(np.abs(outside).max(initial=0)), float(np.abs(inside).max(initial=0))
    if not worst <= relative * typical:
        raise WrongResult(
            f"gradient of `{name}`: {worst:.3g} for inputs whose outputs have a gradient of zero, expected 0"
        )


def _check_observed_gradients(
    prepared: PreparedLaunch, operator: Operator, params: Params, backend: Backend, numbers: list[Numerics]
) -> ArrayErrors:
    """Compare gradients that depend on random values: the operator says which part of them can be compared."""
    assert operator.observe_gradients is not None
    arrays = input_arrays(operator, params, prepared.inputs, backend)
    gradients = [backend.to_numpy(gradient) for gradient in _call_backward(prepared, operator, params, backend)]
    seeds = [None if seed is None else backend.to_numpy(seed) for seed in prepared.seeds]
    pairs = operator.observe_gradients(params, gradients, seeds, **arrays)
    found, expected = zip(*pairs, strict=True)
    numbers += compute_numerics(found, expected)
    relative, typical = bounds(operator, params)
    spacing = smallest_spacing(_coarsest_dtype(operator, params))
    return compare_arrays(found, expected, relative, spacing, typical)


def _check_draws(prepared: PreparedLaunch, operator: Operator, params: Params, backend: Backend) -> None:
    """Raise WrongResult where calls of the forward pass on the same data do not draw independently."""
    assert operator.draws is not None
    arrays = input_arrays(operator, params, prepared.inputs, backend)
    drawn = []
    for _ in range(_INDEPENDENT_CALLS):
        outputs = tuple(backend.to_numpy(output) for output in as_tuple(prepared.launch()))
        drawn.append(operator.draws(params, outputs if len(outputs) > 1 else outputs[0], **arrays))
    refuse_dependent_draws(drawn)


def bounds(operator: Operator, params: Params) -> tuple[float, float]:
    return operator.tolerance.bounds(_coarsest_dtype(operator, params), params)


def _coarsest_dtype(operator: Operator, params: Params) -> str:
    """The element type with the least precision among result, inputs and what is computed in: rounding happens to
    that."""
    result = operator.result_dtype(params)
    inputs = (spec.dtype for spec in operator.inputs(params).values())
    found = [result, *inputs, *(dtype for dtype in STORED_AS if dtype == params.get("dtype"))]
    relative = operator.tolerance.bounds
    return max(found, key=lambda dtype: (relative(dtype, params)[0], is_float(dtype), -sizeof(dtype)))


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
    plan = plan_second_sample(operator, params) if task.case.phase == "forward" and not drawn else None
    part = _observed_part(operator, task, plan)
    if not drawn:
        arrays = _observed_inputs(operator, params, prepared.inputs, backend, part)
        refuse_unsteady(
            prepared.launch,
            lambda native: _comparable(as_tuple(native), params, operator, backend, arrays, LOOKED_AT_ELEMENTS, part),
            lambda found, first: compare_outputs(operator, params, found, first, factor=_TWICE),
            seconds,
            keep=free is None or _BURST_ROOM * need <= free,
            reset=(lambda: refill(params, task, operator, backend, prepared, variant=0)) if changed else None,
        )
        if changed:
            refill(params, task, operator, backend, prepared, variant=0)
    before = _call_for_comparison(prepared, prepared.launch, params, operator, backend, task, part, poison=True)
    if drawn and task.case.phase != "backward":  # which walks the graph of one draw
        again = _call_for_comparison(prepared, prepared.launch, params, operator, backend, task, part, poison=True)
        if _equal(again, before):
            raise WrongResult("two calls on the same data draw the same: the result is the same to the last bit")
    if task.case.phase != "backward":  # whose graph has kept what it needs of the inputs
        # An output that is the input has been poisoned, ends and all.
        keep_ends = not (changed or operator.view or operator.trivial(params))
        refill(params, task, operator, backend, prepared, variant=1, keep_ends=keep_ends)
    inputs = _input_samples(prepared, backend)
    other = prepared  # a second call of the same launch, where the reference says whether it is right
    if plan is None:
        other = bind(params, task, operator, implementation, backend, prepared.inputs, variant=1)
        for target, source in zip(prepared.seeds, other.seeds, strict=True):
            if target is not None:
                backend.copy_into(target, source)
    expected = before if drawn else _call_for_comparison(prepared, other.launch, params, operator, backend, task, part)
    if changed:
        refill(params, task, operator, backend, prepared, variant=1)
    found = _call_for_comparison(prepared, prepared.launch, params, operator, backend, task, part)
    refuse_changed_inputs(inputs, _input_samples(prepared, backend), operator.mutates)
    try:
        _check_all_written(found, before)
        if not drawn:
            compare_outputs(operator, params, found, expected, factor=_TWICE)
        while plan is not None:
            if changed:
                refill(params, task, operator, backend, prepared, variant=1)
            try:
                _check_forward(plan, prepared, operator, params, backend)
                break
            except WrongResult:
                if not _drop_coincidences(plan, task, operator, backend):
                    raise
                plan = plan_second_sample(operator, params)
        # Zeros everywhere (a gradient that vanishes) may be the same twice; poison has shown that they were written.
        # A part that was compared with the reference may be the same too.
        same = operator.result != "constant" and _equal(found, before) and any(array.any() for array in found)
        if same and plan is None:
            raise WrongResult("the result is the same to the last bit")
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


def _call_for_comparison(
    prepared: PreparedLaunch,
    launch: Launch,
    params: Params,
    operator: Operator,
    backend: Backend,
    task: Task,
    part: Part | None,
    *,
    poison: bool = False,
) -> tuple[Any, ...]:
    """Call once, and return the arrays to compare. With `poison`, the outputs are overwritten afterwards."""
    arrays = _observed_inputs(operator, params, prepared.inputs, backend, part)
    native = as_tuple(launch())
    compared = _comparable(native, params, operator, backend, arrays, MAX_RECHECKED_ELEMENTS, part)
    if poison:
        for output in native:
            backend.poison(output)
    return compared


def _observed_part(operator: Operator, task: Task, plan: SamplePlan | None) -> Part | None:
    """The part of a case of which the operator says what can be compared; None where it says nothing, or where that
    would take too long: then outputs are compared as they are. Draws are never the same."""
    if operator.observe is None or task.case.phase != "forward" or operator.result == "random":
        return None
    if plan is None:
        return None if too_large(operator, task.case.params) else ALL
    return plan.draw(task.case.params)


def _observed_inputs(
    operator: Operator, params: Params, inputs: Mapping[str, Any], backend: Backend, part: Part | None
) -> dict[str, Any] | None:
    """The inputs that the operator looks at when it says what can be compared."""
    if part is None:
        return None
    return input_arrays(
        operator, params, {name: inputs[name] for name in operator.observed_inputs(inputs)}, backend, part
    )


def _comparable(
    native: tuple[Any, ...],
    params: Params,
    operator: Operator,
    backend: Backend,
    arrays: Mapping[str, Any] | None,
    most: int,
    part: Part | None,
) -> tuple[Any, ...]:
    """The arrays to compare: what the operator makes of a part of its outputs and of the inputs `arrays` of that part,
    else so many elements of each output."""
    if arrays is None or part is None:
        return tuple(backend.sample(output, most) for output in native)
    outputs = tuple(_take_output(part, params, i, output, backend) for i, output in enumerate(native))
    return as_tuple(output_arrays(operator, part.params(operator, params), outputs, arrays))


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
    """Parameters of a smaller case that is small enough to check."""
    return shrink(operator, params, lambda smaller: too_large(operator, smaller, evaluations))
