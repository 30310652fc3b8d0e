"""Any callable as an operator: which names are callables, their arguments, and their cost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.families.callables import CALLABLES, operator_of
from opmark.errors import UnknownName, UserError
from opmark.plugin import Backend, Operator, registry
from opmark.plugin.registry import backend as find_backend
from opmark.runner.selection import select_cases
from opmark.schema import EFFORTS, Phase, Record, Settings, Task
from opmark.schema.options import Selection
from opmark.worker.measure import instruments
from opmark.worker.preparation import PreparedLaunch, prepare
from opmark.worker.task_runner import TaskRunner

SETTINGS = Settings(1, "quick", EFFORTS["quick"])


def operator(name: str) -> Operator:
    found = operator_of(name)
    assert found is not None
    return found


def task_of(name: str, phase: Phase = "forward", backend: str = "torch-cpu", wrt: Any = (), **call: Any) -> Task:
    """Make a task from `args`, `kwargs` and `build`, as the command line does."""
    (case,) = select_cases(Selection(name, phase=phase, wrt=wrt, **call)).cases
    return Task(case, backend, find_backend(backend).framework, SETTINGS)


def prepared_of(live: Backend, name: str, phase: Phase = "forward", **call: Any) -> PreparedLaunch:
    backend = "numpy-cpu" if type(live).__name__ == "NumpyBackend" else "torch-cpu"
    task, op = task_of(name, phase, backend, **call), operator(name)
    (implementation,) = op.implementations_for(find_backend(backend).framework)
    return prepare(task.case.params, task, op, implementation, live)


# Names.


@pytest.mark.parametrize(
    ("name", "frameworks"),
    [
        ("torch.baddbmm", {"torch"}),
        ("torch.nn.functional.gelu", {"torch"}),
        ("torch.ops.aten.add.Tensor", {"torch"}),
        ("torch.nn.Linear", {"torch"}),
        ("numpy.cumsum", {"numpy"}),
        ("numpy.linalg.svd", {"numpy"}),
        ("scipy.special.erf", {"numpy"}),
        ("package.module:function", {"numpy", "torch"}),
        ("module:function", {"numpy", "torch"}),
        ("module:Class.method", {"numpy", "torch"}),
    ],
)
def test_a_callable_is_for_the_framework_whose_tensors_it_takes(name: str, frameworks: set[str]) -> None:
    found = operator(name)
    others = {"jax", "tensorflow", "mxnet"}
    exported = {"onnx"} if "torch" in frameworks else set()
    assert {implementation.framework for implementation in found.implementations} - others == frameworks | exported
    assert {implementation.path for implementation in found.implementations} == {name}
    assert (found.name, found.foreign, found.presets) == (name, True, {})


@pytest.mark.parametrize(
    "name",
    ["matmul", "torch", "torch.", ".torch", "torch..add", "torch.1x", "os.system", "null.anything",
     "a:b:c", ":f", "m:", "torch add", "torch.add()", "", "torch.*"],
)  # fmt: skip
def test_what_is_no_name_of_a_callable_is_none(name: str) -> None:
    assert operator_of(name) is None


def test_a_file_is_no_module() -> None:
    with pytest.raises(UserError, match="names a file, expected a module") as caught:
        operator_of("kernels.py:softmax")
    assert "kernels:softmax, in the folder of the file" in (caught.value.hint or "")


def test_nobody_lists_every_function_that_there_is() -> None:
    assert CALLABLES.names("torch.*") is None


def test_a_name_whose_framework_has_no_backend_is_the_users_mistake() -> None:
    with pytest.raises(UserError) as caught:
        registry.operator("os.system")
    assert "no callable named `os.system`" in caught.value.message
    assert "jax, mxnet, numpy, tensorflow, torch" in str(caught.value.hint)


def test_planning_a_callable_imports_no_framework() -> None:
    script = """
import sys
from opmark.runner.selection import select_cases
from opmark.schema.options import Selection
(case,) = select_cases(Selection("torch.baddbmm", args=["2x3x4 float32"])).cases
from opmark.plugin.registry import operator
assert operator("torch.baddbmm").inputs(case.params)["args.0"].shape == (2, 3, 4)
print(*({"torch", "jax"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# Arguments.


def test_tensors_are_inputs_by_their_places() -> None:
    given = {
        "args": ["2x3 float32", 2, ["4 int64", {"tuple": ["5 int8"]}]],
        "kwargs": {"out": "6 float32", "n": 1},
        "build": None,
    }
    found = operator("torch.add").inputs(given)
    assert {place: spec.shape for place, spec in found.items()} == {
        "args.0": (2, 3), "args.2.0": (4,), "args.2.1.0": (5,), "kwargs.out": (6,),
    }  # fmt: skip


def test_a_function_is_called_with_what_was_written(torch_cpu: Backend) -> None:
    prepared = prepared_of(
        torch_cpu, "torch.baddbmm", args=["2x3x5 float32", "2x3x4 float32", "2x4x5 float32"], kwargs={"alpha": 0.5}
    )
    a, b, c = (prepared.inputs[f"args.{i}"] for i in range(3))
    torch.testing.assert_close(prepared.launch(), torch.baddbmm(a, b, c, alpha=0.5))
    assert [id(tensor) for tensor in prepared.reads] == [id(a), id(b), id(c)]


def test_the_function_itself_is_launched(torch_cpu: Backend) -> None:
    launch: Any = prepared_of(torch_cpu, "torch.neg", args=["2 float32"]).launch
    assert launch.func is torch.neg


def test_a_list_of_tensors_is_one_argument(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.cat", args=[["2 float32", "3 float32"]], kwargs={"dim": 0})
    assert prepared.launch().shape == (5,)
    assert len(prepared.reads) == 2


def test_an_overload_of_an_operator_is_a_callable(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.ops.aten.add.Tensor", args=["3 float32", "3 float32"])
    torch.testing.assert_close(prepared.launch(), prepared.inputs["args.0"] + prepared.inputs["args.1"])


def test_a_tuple_and_a_text_are_passed_on(torch_cpu: Backend) -> None:
    prepared = prepared_of(
        torch_cpu, "torch.nn.functional.pad", args=["1x4 float32", {"tuple": [1, 2]}], kwargs={"mode": "reflect"}
    )
    assert prepared.launch().shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "kwargs", "found"),
    [
        ("torch.sum", {"dtype": {"dtype": "float64"}}, torch.float64),
        ("torch.sum", {"dtype": {"dtype": "float64"}, "dim": 0}, torch.float64),
    ],
)
def test_an_argument_may_be_an_element_type(name: str, kwargs: Any, found: Any, torch_cpu: Backend) -> None:
    """This also holds for the only keyword argument if its name is `dtype`."""
    assert prepared_of(torch_cpu, name, args=["3 float32"], kwargs=kwargs).launch().dtype == found


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
def test_an_element_type_of_numpy_is_its_own(dtype: str, numpy_cpu: Backend) -> None:
    found = prepared_of(numpy_cpu, "numpy.astype", args=["3 float32", {"dtype": dtype}]).launch()
    assert found.dtype == np.dtype(dtype)


@pytest.mark.parametrize("kwargs", [{"value": 2.0}, {"value": 2.0, "mode": "constant"}])
def test_an_argument_may_be_named_value(kwargs: Any, torch_cpu: Backend) -> None:
    """Argument names belong to the function, whatever they mean elsewhere in a workload."""
    found = prepared_of(torch_cpu, "torch.nn.functional.pad", args=["3 float32", [1, 0]], kwargs=kwargs).launch()
    assert (found.shape, float(found[0])) == ((4,), 2.0)


def test_arguments_may_be_named_shape_and_dtype(numpy_cpu: Backend) -> None:
    found = prepared_of(numpy_cpu, "numpy.zeros", kwargs={"shape": [2, 3], "dtype": "float32"}).launch()
    assert (found.shape, found.dtype) == ((2, 3), np.float32)


# Classes.


@pytest.mark.parametrize("build", [[4, 3], {"args": [4, 3]}, {"args": [4], "kwargs": {"out_features": 3}}])
def test_a_class_is_built_and_then_called(build: Any, torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.nn.Linear", args=["2x4 float32"], build=build)
    launch: Any = prepared.launch
    assert isinstance(launch.func, torch.nn.Linear)
    assert launch().shape == (2, 3)
    assert [tuple(tensor.shape) for tensor in prepared.reads] == [(2, 4), (3, 4), (3,)]


def test_a_class_is_built_with_an_element_type(torch_cpu: Backend) -> None:
    build = {"args": [4, 3], "kwargs": {"dtype": {"dtype": "float64"}}}
    assert prepared_of(torch_cpu, "torch.nn.Linear", args=["2x4 float64"], build=build).launch().dtype == torch.float64


def test_a_class_without_anything_to_build_it_with_is_built_too(torch_cpu: Backend) -> None:
    launch: Any = prepared_of(torch_cpu, "torch.nn.GELU", args=["3 float32"]).launch
    assert isinstance(launch.func, torch.nn.GELU)
    assert launch().shape == (3,)


def test_a_module_is_called_as_it_is_after_training(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.nn.Dropout", args=["1000 float32 1..2"], build=[0.5])
    assert (prepared.launch() > 0).all()
    assert prepared.called == "eval()"


def test_a_module_is_called_as_in_training_where_it_is_asked_for(torch_cpu: Backend) -> None:
    prepared = prepared_of(
        torch_cpu, "torch.nn.Dropout", args=["1000 float32 1..2"], build={"args": [0.5], "train": True}
    )
    assert 0 < (prepared.launch() == 0).sum() < 1000
    assert prepared.called == "train()"


@pytest.mark.parametrize(
    ("build", "mode"), [(None, "eval()"), ({"train": False}, "eval()"), ({"train": True}, "train()")]
)
def test_a_module_that_exists_already_is_put_into_its_mode_too(
    build: Any, mode: str, torch_cpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "made_before", torch.nn.Dropout(0.5), raising=False)
    prepared = prepared_of(torch_cpu, "torch:made_before", args=["1000 float32 1..2"], build=build)
    assert bool((prepared.launch() == 0).any()) is (mode == "train()")
    assert prepared.called == mode


def test_a_function_has_no_mode(torch_cpu: Backend) -> None:
    assert prepared_of(torch_cpu, "torch.relu", args=["3 float32"]).called == ""
    with pytest.raises(UserError, match="is a function, but `build` is for classes"):
        prepared_of(torch_cpu, "torch.relu", args=["3 float32"], build={"train": True})


def test_the_mode_is_yes_or_no() -> None:
    with pytest.raises(UserError, match="expected true or false, got 'yes'"):
        task_of("torch.nn.Dropout", args=["3 float32"], build={"args": [0.5], "train": "yes"})


@pytest.mark.parametrize("build", [{"in_features": 4, "out_features": 3}, {"arg": [4, 3]}])
def test_what_a_class_is_built_with_stands_under_args_and_kwargs(build: Any) -> None:
    with pytest.raises(UserError, match="build"):
        task_of("torch.nn.Linear", args=["2x4 float32"], build=build)


# Backward.


def test_every_tensor_with_a_gradient_gets_one(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.nn.Linear", "backward", args=["2x4 float32"], build=[4, 3])
    found = prepared.launch()
    assert [tuple(gradient.shape) for gradient in found] == [(2, 4), (3, 4), (3,)]


def test_what_the_result_does_not_depend_on_is_left_out(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.nn.functional.embedding", "backward", args=["5 int64 0..7", "7x2 float32"])
    (gradient,) = prepared.launch()
    assert gradient.shape == (7, 2)
    prepared = prepared_of(torch_cpu, "torch.ones_like", "forward", args=["5 float32"])
    assert prepared.launch().shape == (5,)


def test_outputs_that_are_nested_go_back_together(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.split", "backward", args=["6 float32", 2])
    (gradient,) = prepared.launch()
    seeds = torch.cat([seed for seed in prepared.seeds if seed is not None])
    torch.testing.assert_close(gradient, seeds)


def test_gradients_of_some_inputs_are_named_by_their_places(torch_cpu: Backend) -> None:
    prepared = prepared_of(torch_cpu, "torch.mul", "backward", args=["4 float32", "4 float32"], wrt=["args.1"])
    (gradient,) = prepared.launch()
    (seed,) = prepared.seeds
    torch.testing.assert_close(gradient, seed * prepared.inputs["args.0"])


def test_an_input_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(UserError, match=r"args\.7"):
        task_of("torch.mul", "backward", args=["4 float32", "4 float32"], wrt=["args.7"])


# The records.


def record_of(live: Backend, name: str, phase: Phase = "forward", **call: Any) -> Record:
    backend = "numpy-cpu" if type(live).__name__ == "NumpyBackend" else "torch-cpu"
    return TaskRunner(find_backend(backend), live).run(task_of(name, phase, backend, **call))


def test_the_cost_is_counted_by_the_framework(torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, "torch.mm", args=["64x128 float32", "128x32 float32"])
    assert record.status == "unchecked"
    assert record.cost is not None
    assert record.cost.flops == 2 * 64 * 128 * 32
    assert (record.cost.bytes_read, record.cost.bytes_written) == (4 * (64 * 128 + 128 * 32), 4 * 64 * 32)
    assert record.verification is not None
    assert record.verification.checked == "none"
    assert "no reference in the catalogue" in record.verification.note
    assert not record.view


def test_what_nobody_can_count_is_empty_and_not_zero(numpy_cpu: Backend) -> None:
    record = record_of(numpy_cpu, "numpy.cumsum", args=["64x64 float32"])
    assert record.status == "unchecked"
    assert record.cost is not None
    assert record.cost.flops is None
    assert (record.cost.bytes_read, record.cost.bytes_written) == (4 * 64 * 64, 4 * 64 * 64)


def test_an_element_type_among_the_arguments_is_no_tensor(numpy_cpu: Backend) -> None:
    """NumPy's element types are classes with an attribute `shape`."""
    record = record_of(numpy_cpu, "numpy.astype", args=["64x64 float32", {"dtype": "float64"}])
    assert (record.status, record.reason.partition(":")[0]) == ("unchecked", "not verified")
    assert record.cost is not None
    assert (record.cost.bytes_read, record.cost.bytes_written) == (4 * 64 * 64, 8 * 64 * 64)


@pytest.mark.parametrize("name", ["torch.t", "torch.detach", "torch.ravel"])
def test_a_view_is_marked_and_has_no_cost(name: str, torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, name, args=["512x512 float32"])
    assert (record.status, record.view, record.cost) == ("unchecked", True, None)


def test_a_view_of_numpy_is_marked_too(numpy_cpu: Backend) -> None:
    record = record_of(numpy_cpu, "numpy.transpose", args=["512x512 float32"])
    assert (record.status, record.view, record.cost) == ("unchecked", True, None)


def test_a_call_that_writes_where_it_is_told_is_no_view(torch_cpu: Backend) -> None:
    for name, kwargs in (("torch.neg", {"out": "512x512 float32"}), ("torch.relu_", {})):
        record = record_of(torch_cpu, name, args=["512x512 float32"], kwargs=kwargs)
        assert (record.status, record.view) == ("unchecked", False)
        assert record.cost is not None
        assert record.cost.bytes_written == 4 * 512 * 512


def test_an_array_of_numpy_that_is_written_to_is_no_view(numpy_cpu: Backend) -> None:
    record = record_of(numpy_cpu, "numpy.negative", args=["512x512 float32"], kwargs={"out": "512x512 float32"})
    assert record.status == "unchecked"
    assert not record.view


def test_a_small_call_is_labelled_and_a_large_one_is_not(torch_cpu: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "fastest_call", lambda *_: 60.0)  # so that no call of a busy machine is too long
    small, large = (record_of(torch_cpu, "torch.neg", args=[f"{n} float32"]) for n in (4, 1 << 20))
    assert "overhead-bound" in {caution.code for caution in small.measurements[0].cautions}
    assert "overhead-bound" not in {caution.code for caution in large.measurements[0].cautions}


def test_a_function_that_does_not_exist_is_a_record_that_names_the_nearest(torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, "torch.badbmm", args=["4 float32"])
    assert record.status == "error"
    assert "no function of torch named `badbmm`" in record.reason
    assert "did you mean `baddbmm`?" in record.reason
    assert "\n" not in record.reason


def test_arguments_that_a_function_refuses_are_a_record(torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, "torch.mm", args=["2x3 float32", "4x5 float32"])
    assert record.status == "error"
    assert record.reason.startswith("RuntimeError: ")


def test_a_backward_pass_of_integers_is_skipped(torch_cpu: Backend) -> None:
    record = record_of(torch_cpu, "torch.add", "backward", args=["4 int64", "4 int64"])
    assert (record.status, record.reason) == ("skipped", "nothing that goes in has a gradient")


# A function of the user.

OWN = """
class Scale:
    def __init__(self, by=3):
        self.by = by

    def __call__(self, x):
        return x * self.by

def twice(x, *, plus=0):
    return x + x + plus

def broken(x):
    import a_module_that_nobody_has
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_functions.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_functions", None)


@pytest.mark.usefixtures("own")
def test_a_function_of_ones_own_takes_the_tensors_of_any_framework(torch_cpu: Backend, numpy_cpu: Backend) -> None:
    for live in (torch_cpu, numpy_cpu):
        prepared = prepared_of(live, "own_functions:twice", args=["3 float32"], kwargs={"plus": 1})
        x = prepared.inputs["args.0"]
        assert type(prepared.launch()) is type(x)
        assert bool((prepared.launch() == x + x + 1).all())


@pytest.mark.usefixtures("own")
def test_a_class_of_ones_own_is_built(numpy_cpu: Backend) -> None:
    prepared = prepared_of(numpy_cpu, "own_functions:Scale", args=["3 float32"], build={"kwargs": {"by": 5}})
    np.testing.assert_array_equal(prepared.launch(), prepared.inputs["args.0"] * np.float32(5))


@pytest.mark.usefixtures("own")
def test_what_a_function_of_ones_own_raises_is_a_record(numpy_cpu: Backend) -> None:
    record = record_of(numpy_cpu, "own_functions:broken", args=["3 float32"])
    assert record.status == "error"
    assert "a_module_that_nobody_has" in record.reason


def test_a_module_that_does_not_exist_is_a_record_that_names_it(numpy_cpu: Backend) -> None:
    record = record_of(numpy_cpu, "no_such_module_here:f", args=["3 float32"])
    assert record.status == "error"
    assert "no_such_module_here" in record.reason


def test_unknown_names_are_unknown_names() -> None:
    with pytest.raises(UnknownName):
        registry.resolve("numpy.linalg.no_such")
