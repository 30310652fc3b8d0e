"""Tests of every operator of the catalogue: a new operator is tested by being in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from math import isfinite, prod
from typing import Any

import numpy as np
import pytest
from each_case import each_case

from opmark.errors import Unsupported
from opmark.plugin import Backend, Operator
from opmark.plugin.operator import SIZES
from opmark.plugin.registry import backend, catalogue
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Cost
from opmark.schema.case import PHASES
from opmark.schema.cost import nbytes
from opmark.schema.tensor import DTYPES, is_float, sizeof

EVERY = list(catalogue().values())
OPERATORS = [op for op in EVERY if not (op.ranks or op.device_only)]
"""Operators that one process computes; test_operators_communication.py tests the others."""
BACKENDS = ("numpy-cpu", "torch-cpu")
FRAMEWORKS = ("torch", "jax", "tensorflow", "onnxruntime", "openvino", "tvm", "mxnet", "cupy")

Check = Callable[..., None]
CHECKS: list[Check] = []
"""What holds for every operator. Takes the operator."""
CHECKS_OF_COMPUTED: list[Check] = []
"""What holds for every operator of OPERATORS. Takes the operator."""
CHECKS_ON_NUMPY: list[Check] = []
"""The same on NumPy. Takes the operator and the backend."""
CHECKS_ON_BACKENDS: list[Check] = []
"""The same on each of BACKENDS. Takes the operator, the backend's name and the backend."""


def added_to(checks: list[Check]) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        checks.append(check)
        return check

    return add


@pytest.mark.parametrize("op", EVERY, ids=lambda op: op.name)
def test_what_holds_for_every_operator(op: Operator, numpy_cpu: Backend, torch_cpu: Backend) -> None:
    checks = [(check, (op,)) for check in CHECKS]
    if not (op.ranks or op.device_only):
        checks += [(check, (op,)) for check in CHECKS_OF_COMPUTED]
        checks += [(check, (op, numpy_cpu)) for check in CHECKS_ON_NUMPY]
        lives = zip(BACKENDS, (numpy_cpu, torch_cpu), strict=True)
        checks += [(check, (op, *live)) for check, live in product(CHECKS_ON_BACKENDS, lives)]
    with each_case() as case:
        for check, given in checks:
            with case(check.__name__, *given[1:2]):
                check(*given)


def with_dtypes(op: Operator, size: str, allowed: frozenset[str] = frozenset(DTYPES)) -> Iterator[dict[str, Any]]:
    """Return the preset in every combination of element types that the operator takes."""
    dtypes = [param for param in op.params if param.kind == "dtype"]
    for chosen in product(*([name for name in param.choices if name in allowed] for param in dtypes)):
        yield op.complete({**op.preset(size), **{p.name: name for p, name in zip(dtypes, chosen, strict=True)}})


def in_float32(op: Operator) -> dict[str, Any]:
    """Return the small preset with the default element types: float32 if possible."""
    return op.complete(op.preset("small"))


def make_inputs(op: Operator, params: dict[str, Any], live: Any, seed: int = 0) -> dict[str, Any]:
    return {name: live.tensor(spec, seed + i) for i, (name, spec) in enumerate(op.inputs(params).items())}


def reference_inputs(op: Operator, params: dict[str, Any], live: Any) -> dict[str, Any]:
    return {name: live.to_numpy(tensor) for name, tensor in make_inputs(op, params, live).items()}


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def test_the_catalogue_has_the_operators_that_were_promised() -> None:
    promised = {
        "add", "exp", "gelu", "cast", "matmul", "batched_matmul", "softmax", "layer_norm", "rms_norm", "reduce_sum",
        "topk", "embedding", "conv2d", "scaled_dot_product_attention",
    }  # fmt: skip
    assert promised <= set(catalogue())


def test_a_name_or_alias_means_one_operator() -> None:
    names = [name for op in EVERY for name in (op.name, *op.aliases)]
    assert len(names) == len(set(names))
    assert all(find_operator(name) is op for op in EVERY for name in (op.name, *op.aliases))


@added_to(CHECKS)
def check_an_operator_describes_itself(op: Operator) -> None:
    assert op.summary.strip()
    assert op.category.strip()
    assert all(param.doc.strip() for param in op.params)


@added_to(CHECKS_OF_COMPUTED)
def check_implementations_have_names_of_their_own(op: Operator) -> None:
    for framework in ("numpy", "torch"):
        labels = [implementation.label for implementation in op.implementations_for(framework)]
        assert labels, framework
        assert len(labels) == len(set(labels)), framework


@added_to(CHECKS)
def check_presets_are_small_typical_and_large(op: Operator) -> None:
    assert tuple(op.presets) == SIZES


@added_to(CHECKS)
def check_a_preset_is_complete_and_keeps_the_rules(op: Operator) -> None:
    for size in SIZES:
        params = op.complete(op.preset(size))
        assert list(params) == [param.name for param in op.params if not param.later]
        assert set(op.preset(size)) <= set(params)
        assert {name: op.param(name).check(value) for name, value in params.items()} == params
        op.check_rules(params)


@added_to(CHECKS_OF_COMPUTED)
def check_float32_is_the_default_element_type_where_there_is_one(op: Operator) -> None:
    param = op.param("dtype")
    assert param.default == ("float32" if "float32" in param.choices else param.choices[0])


@added_to(CHECKS_OF_COMPUTED)
def check_inputs_are_tensors_that_can_exist(op: Operator) -> None:
    for size in SIZES:
        for params in with_dtypes(op, size):
            specs = op.inputs(params)
            assert specs or op.result != "computed"
            for spec in specs.values():
                assert spec.dtype in DTYPES
                assert all(isinstance(n, int) and n >= 1 for n in spec.shape)
                assert isfinite(spec.low)
                assert isfinite(spec.high)
                assert spec.low < spec.high
                if DTYPES[spec.dtype].kind == "bool":
                    assert (spec.low, spec.high) == (0, 2)
                elif not is_float(spec.dtype):
                    limits = np.iinfo(spec.dtype)
                    assert limits.min <= spec.low
                    assert spec.high - 1 <= limits.max


@added_to(CHECKS_ON_BACKENDS)
def check_data_lies_in_its_domain_and_is_not_constant(op: Operator, backend_name: str, live: Any) -> None:
    for params in with_dtypes(op, "small", backend(backend_name).dtypes):
        specs = op.inputs(params)
        for name, tensor in make_inputs(op, params, live).items():
            spec, values = specs[name], live.to_numpy(tensor)
            assert str(tensor.dtype).removeprefix("torch.") == spec.dtype
            assert values.shape == spec.shape
            known = values[~np.isnan(values)]  # only operators about NaN make them
            assert known.size == values.size or "nan" in op.name
            assert known.min() >= spec.low
            assert known.max() <= (spec.high if is_float(spec.dtype) else spec.high - 1)
            assert known.min() < known.max() or known.size == 1 or spec.make


@added_to(CHECKS_OF_COMPUTED)
def check_cost_is_whole_and_something_is_moved(op: Operator) -> None:
    for size, phase in product(SIZES, PHASES):
        for params in with_dtypes(op, size):
            cost = op.phase_cost(params, phase)
            if cost is None:
                assert op.view or not op.gradients or op.gradient_view, "an operator with a gradient needs a cost"
                continue
            assert all(type(n) is int for n in (cost.flops, cost.bytes_read, cost.bytes_written))
            assert cost.flops >= 0
            assert cost.bytes_read > 0 or not op.inputs(params) or op.result == "constant"
            assert cost.bytes_written > 0


@added_to(CHECKS_OF_COMPUTED)
def check_cost_grows_from_small_to_large(op: Operator) -> None:
    for phase in PHASES:
        costs = [op.phase_cost(op.complete(op.preset(size)), phase) for size in SIZES]
        if None in costs:
            assert costs == [None] * 3
            continue
        moved, flops = [c.bytes_moved for c in costs if c], [c.flops for c in costs if c]
        assert moved[0] < moved[1] < moved[2]
        assert flops[0] < flops[1] < flops[2] or flops == [0, 0, 0]


@added_to(CHECKS_OF_COMPUTED)
def check_both_phases_cost_what_each_of_them_costs(op: Operator) -> None:
    for params in with_dtypes(op, "small"):
        forward, backward, both = (op.phase_cost(params, phase) for phase in ("forward", "backward", "both"))
        if backward is None:
            assert both is None or (op.view and both == forward)
        elif op.view:
            assert both == backward
        else:
            assert forward
            assert both.flops == forward.flops + backward.flops
            assert both.bytes_read == forward.bytes_read + backward.bytes_read
            assert both.bytes_written == forward.bytes_written + backward.bytes_written


@added_to(CHECKS_OF_COMPUTED)
def check_every_input_is_read_once(op: Operator) -> None:
    for params in with_dtypes(op, "small"):
        if op.view:
            assert op.cost(params) == Cost(0, 0, 0)
        elif not op.partial:
            assert op.cost(params).bytes_read == nbytes(op.inputs(params).values())


@added_to(CHECKS_ON_NUMPY)
def check_every_output_is_written_once(op: Operator, numpy_cpu: Any) -> None:
    """The NumPy implementation says how large the outputs really are, and in which element type they come."""
    (implementation,) = op.implementations_for("numpy")
    for params in with_dtypes(op, "small", backend("numpy-cpu").dtypes):
        outputs = as_tuple(implementation.build(params, **make_inputs(op, params, numpy_cpu))())
        assert str(outputs[0].dtype) == op.result_dtype(params)
        if not (op.partial or op.view):
            assert op.cost(params).bytes_written == sum(output.nbytes for output in outputs)


@added_to(CHECKS_OF_COMPUTED)
def check_backward_writes_every_gradient_once(op: Operator) -> None:
    for params in with_dtypes(op, "small"):
        specs = op.inputs(params)
        assert bool(op.gradients) == bool(op.gradients_of(params))
        if op.backward_cost:
            assert op.backward_cost(params).bytes_written == nbytes(specs[name] for name in op.gradients_of(params))


@added_to(CHECKS_OF_COMPUTED)
def check_twice_the_element_size_is_twice_the_bytes(op: Operator) -> None:
    if not {"float32", "float64"} <= set(op.param("dtype").choices):
        return
    single = op.complete({**op.preset("small"), "dtype": "float32"})
    double = {**single, "dtype": "float64"}
    inputs = op.inputs(single)
    wider = op.inputs(double)
    floats = sum(prod(spec.shape) for name, spec in inputs.items() if spec.dtype != wider[name].dtype)
    assert op.cost(double).flops == op.cost(single).flops
    if not (op.partial or op.view):
        assert op.cost(double).bytes_read - op.cost(single).bytes_read == 4 * floats


@added_to(CHECKS_ON_NUMPY)
def check_the_reference_is_finite_float64_and_leaves_its_inputs_alone(op: Operator, numpy_cpu: Any) -> None:
    """Integers and bool are allowed if the operator computes them."""
    for params in with_dtypes(op, "small", backend("numpy-cpu").dtypes):
        inputs = reference_inputs(op, params, numpy_cpu)
        before = {name: array.copy() for name, array in inputs.items()}
        for output in as_tuple(op.reference(params, **inputs)):
            assert output.dtype == np.float64 or output.dtype.kind in "iub"
            assert np.isfinite(output).all()
        assert all(np.array_equal(inputs[name], before[name], equal_nan=True) for name in inputs)


@added_to(CHECKS_ON_BACKENDS)
def check_a_launch_can_be_repeated_and_leaves_its_inputs_alone(op: Operator, backend_name: str, live: Any) -> None:
    live_dtypes = backend(backend_name).dtypes
    params = in_float32(op)
    implementations = op.implementations_for(backend(backend_name).framework)
    dtypes = {params.get(param.name, param.default) for param in op.params if param.kind == "dtype"}
    if op.result == "random" or not dtypes <= live_dtypes:
        return  # drawn anew each time, or of a type that this backend has not
    for implementation in implementations:
        if implementation.name == "compiled":
            continue
        inputs = make_inputs(op, params, live)
        before = {name: np.copy(live.to_numpy(tensor)) for name, tensor in inputs.items()}
        launch = implementation.build(params, **inputs)
        try:
            first = [np.copy(live.to_numpy(output)) for output in as_tuple(launch())]
        except Unsupported:
            continue
        for name in op.mutates:
            live.copy_into(inputs[name], live.tensor(op.inputs(params)[name], list(inputs).index(name)))
        for one, other in zip(first, as_tuple(launch()), strict=True):
            np.testing.assert_array_equal(one, live.to_numpy(other))
        for name in set(inputs) - set(op.mutates):
            tensor = inputs[name]
            np.testing.assert_array_equal(live.to_numpy(tensor), before[name])


@added_to(CHECKS_OF_COMPUTED)
def check_a_backward_phase_exists_exactly_for_floats_of_more_than_8_bits(op: Operator) -> None:
    for params in with_dtypes(op, "small"):
        specs = op.inputs(params)
        dtypes = [op.result_dtype(params), *(specs[name].dtype for name in op.gradients_of(params))]
        possible = bool(op.gradients) and all(is_float(dtype) and sizeof(dtype) > 1 for dtype in dtypes)
        assert (op.why_no_phase(params, "backward") is None) == possible
        assert (op.why_no_phase(params, "both") is None) == possible
        assert op.why_no_phase(params, "forward") is None


def in_child(code: str) -> Any:
    """Return what a fresh interpreter prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_catalogue_imports_no_framework() -> None:
    loaded = in_child(
        "import json, sys\n"
        "from opmark.plugin.registry import catalogue\n"
        "for op in catalogue().values():\n"
        "    for size in op.presets:\n"
        "        params = op.complete(op.preset(size))\n"
        "        op.check_rules(params), op.inputs(params), op.cost(params), op.phase_cost(params, 'backward')\n"
        "print(json.dumps([len(catalogue()), sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    count, modules = loaded
    assert count == len(EVERY)
    assert not set(FRAMEWORKS) & set(modules)


def test_references_and_numpy_need_no_framework() -> None:
    """Without any framework, the NumPy implementations and every reference still run."""
    checked = in_child(
        "import json, sys\n"
        f"sys.modules.update(dict.fromkeys({FRAMEWORKS}))\n"  # None in sys.modules: importing it fails
        "from opmark.plugin.registry import backend, catalogue\n"
        "live, checked = backend('numpy-cpu').load(1), []\n"
        "for op in catalogue().values():\n"
        "    if op.reference_by != 'NumPy' or op.ranks or op.device_only: continue\n"
        "    here = backend('numpy-cpu').dtypes\n"
        "    dtypes = {param.name: next(name for name in param.choices if name in here)\n"
        "              for param in op.params if param.kind == 'dtype' and param.default not in here}\n"
        "    params = op.complete({**op.preset('small'), **dtypes})\n"
        "    inputs = {name: live.tensor(spec, 0) for name, spec in op.inputs(params).items()}\n"
        "    op.reference(params, **{name: live.to_numpy(tensor) for name, tensor in inputs.items()})\n"
        "    [implementation.build(params, **inputs)() for implementation in op.implementations_for('numpy')]\n"
        "    checked.append(op.name)\n"
        "print(json.dumps(checked))"
    )
    assert checked == [op.name for op in OPERATORS if op.reference_by == "NumPy"]
