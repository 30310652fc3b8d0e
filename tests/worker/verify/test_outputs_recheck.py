"""After timing: a launch that does not compute anew is found out, an honest one passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from each_case import each_case
from msgspec.structs import replace

from opmark.errors import WrongResult
from opmark.plugin import Backend, Implementation, Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue, implementations, operator
from opmark.schema import EFFORTS, PHASES, Case, Phase, Record, Settings, Task
from opmark.worker import task_runner as module
from opmark.worker.preparation import prepare
from opmark.worker.task_runner import TaskRunner
from opmark.worker.verify.outputs import recheck

SETTINGS = Settings(1, "quick", replace(EFFORTS["quick"], warmup=2, samples=3))
Build = Callable[..., Any]


def make_task(op: Operator, given: Any, phase: Phase = "forward", backend: str = "torch-cpu") -> Task:
    info = find_backend(backend)
    params = op.complete(given)
    return Task(Case.of(op.name, params, phase), backend, implementations(op, info)[0].label, SETTINGS)


@pytest.fixture
def record_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    """The record of `exp` on a backend, computed by a stranger's implementation."""

    def record(build: Build, live: Backend, phase: Phase = "forward", **given: Any) -> Record:
        name = "numpy-cpu" if type(live).__name__ == "NumpyBackend" else "torch-cpu"
        framework = find_backend(name).framework
        stranger = dataclasses.replace(operator("exp"), implementations=(Implementation(framework, build),))
        monkeypatch.setattr(module, "find_operator", lambda _: stranger)
        return TaskRunner(find_backend(name), live).run(make_task(stranger, {"shape": [33, 17], **given}, phase, name))

    return record


RecordOf = Callable[..., Record]


# Launches that only seem to compute.


class CachedBy:
    """Remembers its result by something about its input, and hands out that or a copy of it."""

    def __init__(self, key: Callable[[Any], Any], *, copies: bool) -> None:
        self._key, self._copies = key, copies
        self._known: dict[Any, Any] = {}

    def __call__(self, p: Any, x: Any) -> Any:
        def launch() -> Any:
            key = self._key(x)
            if key not in self._known:
                self._known[key] = (x, torch.exp(x))
            found = self._known[key][1]
            return found.clone() if self._copies else found

        return launch


KEYS = {
    "identity": id,
    "address": lambda x: x.data_ptr(),
    "address and version": lambda x: (x.data_ptr(), x._version),
    "shape": lambda x: tuple(x.shape),
    "address and both ends": lambda x: (x.data_ptr(), float(x.view(-1)[0]), float(x.view(-1)[-1])),
}


@pytest.mark.parametrize("copies", [False, True], ids=["itself", "a copy"])
@pytest.mark.parametrize("key", KEYS)
def test_a_result_that_is_remembered_is_wrong(key: str, copies: bool, record_of: RecordOf, torch_cpu: Backend) -> None:
    record = record_of(CachedBy(KEYS[key], copies=copies), torch_cpu)
    assert record.status == "wrong"
    assert "verified before timing, wrong after it" in record.reason
    assert record.measurements == ()


def _once(p: Any, x: Any) -> Any:
    y = torch.exp(x)
    return lambda: y


def _once_then_copies(p: Any, x: Any) -> Any:
    y = torch.exp(x)
    return y.clone


def _in_the_first_calls_only(p: Any, x: Any) -> Any:
    made: list[Any] = []

    def launch() -> Any:
        if len(made) < 4:
            made.append(torch.exp(x))
        return made[-1]

    return launch


def _into_its_own_memory_once(p: Any, x: Any) -> Any:
    out = torch.empty_like(x)
    torch.exp(x, out=out)
    return lambda: out


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("build", [_once, _once_then_copies, _in_the_first_calls_only, _into_its_own_memory_once])
def test_a_tensor_that_is_never_written_again_is_wrong(
    build: Build, dtype: str, record_of: RecordOf, torch_cpu: Backend
) -> None:
    record = record_of(build, torch_cpu, dtype=dtype)
    assert record.status == "wrong"
    assert "does not compute it anew" in record.reason


def _in_part(p: Any, x: Any) -> Any:
    out = torch.exp(x)

    def launch() -> Any:
        torch.exp(x[:-1], out=out[:-1])
        return out

    return launch


def test_a_row_that_is_left_over_from_the_first_call_is_wrong(record_of: RecordOf, torch_cpu: Backend) -> None:
    assert record_of(_in_part, torch_cpu).status == "wrong"


@pytest.mark.parametrize("kept", [True, False], ids=["itself", "a copy"])
def test_an_array_that_is_never_written_again_is_wrong(kept: bool, record_of: RecordOf, numpy_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        y = np.exp(x)
        return (lambda: y) if kept else y.copy

    assert record_of(build, numpy_cpu).status == "wrong"


class LazyTensor(torch.Tensor):
    """Computes when somebody looks."""

    source: Any

    @staticmethod
    def of(x: Any) -> LazyTensor:
        lazy = torch.Tensor._make_wrapper_subclass(LazyTensor, x.shape, dtype=x.dtype)
        lazy.source = x
        return lazy  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [torch.exp(arg.source) if isinstance(arg, LazyTensor) else arg for arg in args]
        return func(*args, **(kwargs or {}))


def test_a_tensor_that_is_computed_when_looked_at_is_wrong(record_of: RecordOf, torch_cpu: Backend) -> None:
    record = record_of(lambda p, x: lambda: LazyTensor.of(x), torch_cpu)
    assert record.status == "wrong"
    assert "LazyTensor" in record.reason
    assert "only when it is looked at" in record.reason


class LazyArray:
    """What NumPy takes for an array as soon as it looks."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.exp(self._x)


def test_an_array_that_is_computed_when_looked_at_is_wrong(record_of: RecordOf, numpy_cpu: Backend) -> None:
    record = record_of(lambda p, x: lambda: LazyArray(x), numpy_cpu)
    assert record.status == "wrong"
    assert "LazyArray" in record.reason


def test_without_verification_nothing_is_looked_at_afterwards(
    record_of: RecordOf, torch_cpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.SETTINGS", replace(SETTINGS, verify=False))
    record = record_of(_once, torch_cpu)
    assert record.status == "unchecked"
    assert record.verification is not None
    assert (record.verification.checked, record.verification.after) == ("none", "")


class CachedGradient(torch.autograd.Function):
    """exp that goes back once, and then hands out what it found."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = torch.exp(x)
        ctx.save_for_backward(y)
        ctx.known = None
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if ctx.known is None:
            ctx.known = gradient * ctx.saved_tensors[0]
        return ctx.known.clone()


def test_a_gradient_that_is_remembered_is_wrong(record_of: RecordOf, torch_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        return lambda: CachedGradient.apply(x)

    assert record_of(build, torch_cpu).status == "ok"
    record = record_of(build, torch_cpu, "backward")
    assert record.status == "wrong"
    assert "verified before timing, wrong after it" in record.reason


def test_a_step_whose_forward_pass_is_remembered_is_wrong(record_of: RecordOf, torch_cpu: Backend) -> None:
    """The graph is kept, so that going back again does not fail for that reason."""

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, known: dict[str, Any]) -> Any:
            ctx.known = known.setdefault("y", torch.exp(x).detach().clone())
            return ctx.known.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.known, None

    def build(p: Any, x: Any) -> Any:
        known: dict[str, Any] = {}
        return lambda: Once.apply(x, known)

    assert record_of(build, torch_cpu, "both").status == "wrong"


# Honest ones.


def _allocates(p: Any, x: Any) -> Any:
    return lambda: torch.exp(x)


def _reuses_its_memory(p: Any, x: Any) -> Any:
    out = torch.empty_like(x)
    return lambda: torch.exp(x, out=out)


def _writes_in_two_steps(p: Any, x: Any) -> Any:
    out = torch.empty_like(x)
    return lambda: out.copy_(x).exp_()


@pytest.mark.parametrize("build", [_allocates, _reuses_its_memory, _writes_in_two_steps])
def test_an_implementation_that_computes_every_time_passes(
    build: Build, record_of: RecordOf, torch_cpu: Backend
) -> None:
    record = record_of(build, torch_cpu)
    assert (record.status, record.reason) == ("ok", "")
    assert record.verification is not None
    assert record.verification.after == "same"


SHIPPED = [
    op for op in catalogue().values() if op.cost.__module__.startswith("opmark.") and not (op.ranks or op.device_only)
]


@pytest.mark.parametrize("op", SHIPPED, ids=lambda op: op.name)
def test_every_operator_of_the_catalogue_passes(op: Operator, numpy_cpu: Backend, torch_cpu: Backend) -> None:
    small = op.complete(op.preset("small"))
    single = {p.name: "float32" for p in op.params if p.kind == "dtype" and "float32" in p.choices}
    with each_case() as case:
        if op.implementations_for("numpy"):
            with case("numpy-cpu"):
                check_passes(op, make_task(op, {**op.preset("small"), **single}, "forward", "numpy-cpu"), numpy_cpu)
        for phase in PHASES if op.implementations_for("torch") else ():
            if op.why_no_phase(small, phase) is None:
                with case("torch-cpu", phase):
                    check_passes(op, make_task(op, op.preset("small"), phase), torch_cpu)


def check_passes(op: Operator, task: Task, live: Backend) -> None:
    (implementation, *_) = op.implementations_for(find_backend(task.backend).framework)
    prepared = prepare(task.case.params, task, op, implementation, live)
    assert recheck(task, op, implementation, live, prepared) == "same"


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("phase", ["forward", "backward", "both"])
@pytest.mark.parametrize("name", ["matmul", "softmax", "layer_norm", "scaled_dot_product_attention"])
def test_every_element_type_passes(name: str, phase: Phase, dtype: str, torch_cpu: Backend) -> None:
    op = operator(name)
    check_passes(op, make_task(op, {**op.preset("small"), "dtype": dtype}, phase), torch_cpu)


# What cannot be done is said.


class Full:
    """A backend with little memory left."""

    def __init__(self, live: Any, free: int) -> None:
        self._live, self._free = live, free

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def available_bytes(self) -> int:
        return self._free


def test_without_room_for_other_data_it_says_so(torch_cpu: Any) -> None:
    op = operator("exp")
    task = make_task(op, {"shape": [100]})
    (implementation, *_) = op.implementations_for("torch")
    prepared = prepare(task.case.params, task, op, implementation, torch_cpu)
    found = recheck(task, op, implementation, Full(torch_cpu, 799), prepared)  # type: ignore[arg-type]
    assert found.startswith("not done: ")
    assert "800 B" in found
    assert "799 B" in found
    assert recheck(task, op, implementation, Full(torch_cpu, 800), prepared) == "same"  # type: ignore[arg-type]


def test_a_large_output_is_looked_at_all_over(numpy_cpu: Any) -> None:
    """Only some elements are compared, but no half of the output is out of sight."""
    op = operator("exp")
    task = make_task(op, {"shape": [1 << 18]}, backend="numpy-cpu")

    def build(p: Any, x: Any) -> Any:
        out = np.exp(x)

        def launch() -> Any:
            np.exp(x[: 1 << 17], out=out[: 1 << 17])
            return out

        return launch

    implementation = Implementation("numpy", build)
    prepared = prepare(task.case.params, task, op, implementation, numpy_cpu)
    with pytest.raises(WrongResult):
        recheck(task, op, implementation, numpy_cpu, prepared)


# Operators that are not like the others.


def rechecked(live: Backend, build: Build, framework: str = "torch", **marks: Any) -> str:
    op = dataclasses.replace(operator("exp"), **marks)
    task = make_task(op, {"shape": [33, 17]}, backend=f"{framework}-cpu")
    implementation = Implementation(framework, build)
    prepared = prepare(task.case.params, task, op, implementation, live)
    for _ in range(3):  # as being timed does
        prepared.launch()
    return recheck(task, op, implementation, live, prepared)


def _zeros(p: Any, x: Any) -> Any:
    return lambda: torch.zeros_like(x)


ZEROS: dict[str, Any] = {"reference": lambda p, x: np.zeros_like(x)}


def test_a_constant_result_may_be_the_same_with_other_data(torch_cpu: Backend) -> None:
    assert rechecked(torch_cpu, _zeros, result="constant", **ZEROS) == "same"


def test_a_constant_that_is_not_written_again_is_wrong(torch_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        kept = torch.zeros_like(x)
        return lambda: kept

    with pytest.raises(WrongResult, match="were not written"):
        rechecked(torch_cpu, build, result="constant", **ZEROS)


def test_the_same_result_with_other_data_is_wrong_where_the_reference_differs(torch_cpu: Backend) -> None:
    with pytest.raises(WrongResult):
        rechecked(torch_cpu, _once_then_copies)


def _drawn(p: Any, x: Any) -> Any:
    return lambda: torch.rand_like(x)


def _drawn_once(p: Any, x: Any) -> Any:
    y = torch.rand_like(x)
    return y.clone


def _drawn_in_part(p: Any, x: Any) -> Any:
    out = torch.rand_like(x)

    def launch() -> Any:
        out[:-1].uniform_()
        return out

    return launch


def test_what_is_drawn_anew_by_every_call_passes(torch_cpu: Backend) -> None:
    assert rechecked(torch_cpu, _drawn, result="random") == "same"
    with pytest.raises(WrongResult):
        rechecked(torch_cpu, _drawn)


def test_what_was_drawn_once_is_wrong(torch_cpu: Backend) -> None:
    with pytest.raises(WrongResult, match="the same to the last bit"):
        rechecked(torch_cpu, _drawn_once, result="random")


def test_what_is_drawn_only_in_part_is_wrong(torch_cpu: Backend) -> None:
    with pytest.raises(WrongResult, match="17 of 561 elements were not written"):
        rechecked(torch_cpu, _drawn_in_part, result="random")


DOUBLED: dict[str, Any] = {"reference": lambda p, x: 2 * x, "mutates": ("x",)}


def test_an_operator_that_changes_its_input_starts_anew(torch_cpu: Backend, numpy_cpu: Backend) -> None:
    assert rechecked(torch_cpu, lambda p, x: lambda: x.mul_(2), **DOUBLED) == "same"
    assert rechecked(numpy_cpu, lambda p, x: lambda: np.multiply(x, 2, out=x), "numpy", **DOUBLED) == "same"


def test_an_operator_that_changes_its_input_once_only_is_wrong(torch_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        left = [2.0]
        return lambda: x.mul_(left.pop() if left else 1.0)

    with pytest.raises(WrongResult):
        rechecked(torch_cpu, build, **DOUBLED)


def test_an_input_that_is_changed_without_a_word_is_wrong(torch_cpu: Backend) -> None:
    with pytest.raises(WrongResult):
        rechecked(torch_cpu, lambda p, x: lambda: x.mul_(2), reference=lambda p, x: 2 * x)


def test_an_input_that_only_the_timed_launch_changes_is_wrong(torch_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        def launch() -> Any:
            made = torch.exp(x)
            x.abs_()  # no change the second time
            return made

        return launch

    with pytest.raises(WrongResult, match="changes its input `x`"):
        rechecked(torch_cpu, build)


def test_two_calls_that_draw_the_same_on_the_same_data_are_wrong(torch_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        mask = torch.rand_like(x) < 0.5
        return lambda: x * mask

    with pytest.raises(WrongResult, match="two calls on the same data draw the same"):
        rechecked(torch_cpu, build, result="random")


def test_a_view_of_the_input_passes(torch_cpu: Backend) -> None:
    assert rechecked(torch_cpu, lambda p, x: lambda: x.T, reference=lambda p, x: x.T, view=True) == "same"
