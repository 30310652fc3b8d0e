"""JAX on the CPU: its arrays, what a call of its functions costs, and what it cannot do."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls, computes
from opmark.plugin import BLOCK, Backend, Function, Implementation, TensorSlot
from opmark.plugin.registry import backend, implementations, operator
from opmark.schema import EFFORTS, Case, Cost, Phase, Record, Settings, Task, TensorSpec
from opmark.schema.tensor import DTYPES, is_float
from opmark.worker.preparation import prepare
from opmark.worker.task_runner import TaskRunner

jax = pytest.importorskip("jax")
jnp = jax.numpy

INFO = backend("jax-cpu")
SETTINGS = Settings(1, "quick", EFFORTS["quick"])


@pytest.fixture(scope="module")
def live() -> Any:
    return INFO.load(threads=1)


def _spec(dtype: str, shape: tuple[int, ...] = (200, 3)) -> TensorSpec:
    return TensorSpec(shape, dtype, *((-1.0, 1.0) if is_float(dtype) else (0, 2)))


# Where it is


def test_it_can_run_on_a_processor(live: Backend) -> None:
    assert INFO.why_missing() is None
    assert live.why_unavailable() is None


def test_without_a_gpu_it_says_so_in_one_line() -> None:
    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("there is a GPU here")
    reason = backend("jax-cuda").load(threads=1).why_unavailable()
    assert reason is not None
    assert reason.startswith(f"jax {jax.__version__} has no cuda device here")
    assert "\n" not in reason


def test_the_environment_says_what_ran(live: Backend) -> None:
    found = live.environment()
    assert found == json.loads(json.dumps(found))
    assert found["jax"] == jax.__version__
    assert found["jaxlib"] == version("jaxlib")
    assert (found["device"], found["threads"]) == ("cpu", 1)
    assert found["device_kind"]


def test_there_is_as_much_memory_as_the_system_has_left(live: Backend) -> None:
    free = live.available_bytes()
    assert free is not None
    assert free > 0
    assert backend("jax-cuda").load(threads=1).available_bytes() is None


# Data


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_a_tensor_of_every_claimed_element_type_can_be_made(dtype: str, live: Backend) -> None:
    held = live.tensor(_spec(dtype), 0)
    array = held.value
    assert isinstance(array, jax.Array)
    assert live.dtype(held) == str(array.dtype) == dtype
    assert array.dtype.itemsize == DTYPES[dtype].size
    assert array.shape == (200, 3)
    assert len(np.unique(live.to_numpy(held))) > 1


@given(
    st.sampled_from(["float64", "float32", "float16", "bfloat16"]), st.integers(-8, 7), st.integers(1, 8),
    st.integers(0, 9),
)  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_floats_are_in_their_domain(dtype: str, low: int, width: int, seed: int) -> None:
    backend_ = INFO.load(threads=1)
    values = backend_.to_numpy(backend_.tensor(TensorSpec((50,), dtype, float(low), float(low + width)), seed))
    assert values.dtype == np.float64
    assert low <= values.min() <= values.max() <= low + width


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_whole_numbers_are_in_their_domain_and_reach_both_ends(dtype: str, live: Backend) -> None:
    values = live.to_numpy(live.tensor(TensorSpec((5000,), dtype, 3, 100), 7))
    assert (values.min(), values.max()) == (3, 99)
    assert str(values.dtype) == dtype


def test_truth_values_are_both(live: Backend) -> None:
    values = live.to_numpy(live.tensor(TensorSpec((100,), "bool", 0, 2), 0))
    assert values.dtype == np.bool_
    assert set(values.tolist()) == {True, False}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int64", "uint8"])
def test_a_seed_gives_the_same_data_again_and_another_seed_other_data(dtype: str, live: Backend) -> None:
    spec = TensorSpec((200, 3), dtype, 0, 100)
    first, again, other = (live.to_numpy(live.tensor(spec, seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_input_that_makes_its_own_values_has_them(live: Backend) -> None:
    spec = TensorSpec((4,), "int64", 0, 4, make=lambda generator: generator.permutation(4))
    assert sorted(live.to_numpy(live.tensor(spec, 0)).tolist()) == [0, 1, 2, 3]


def test_a_scalar_and_an_empty_tensor_can_be_made(live: Backend) -> None:
    assert live.tensor(_spec("float32", ()), 0).value.shape == ()
    assert live.tensor(_spec("float32", (0, 3)), 0).value.shape == (0, 3)


def test_a_large_tensor_repeats_a_block_of_values(live: Backend) -> None:
    values = live.to_numpy(live.tensor(TensorSpec((BLOCK + 5,), "int8", 0, 100), 0))
    np.testing.assert_array_equal(values[BLOCK:], values[:5])


def test_other_data_goes_into_the_same_place(live: Backend) -> None:
    target, source = (live.tensor(_spec("float32", (8,)), seed) for seed in (0, 1))
    live.copy_into(target, source)
    np.testing.assert_array_equal(live.to_numpy(target), live.to_numpy(source))


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_a_thinned_array_is_a_few_of_its_elements(most: int, live: Backend) -> None:
    array = live.tensor(_spec("float32", (10, 30)), 0)
    found = live.sample(array, most)
    assert 0 < found.size <= most
    assert set(found.tolist()) <= set(live.to_numpy(array).reshape(-1).tolist())


def test_what_is_no_array_is_told(live: Backend) -> None:
    assert live.deferred(jnp.ones(3)) is None
    assert live.deferred(np.ones(3)) == "a ndarray, which is no array of JAX"


def test_overwriting_can_be_called_again_and_again(live: Any) -> None:
    launch = live.overwrite(1000)
    first, second = launch(), launch()
    assert first.nbytes == 1000
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


# What a call costs


def test_bytes_are_those_of_the_tensors_in_and_out_and_operations_are_not_known(live: Backend) -> None:
    x, y = (live.tensor(_spec("float32", (8, 16)), seed).value for seed in (0, 1))
    found = live.count(lambda: jnp.add(x, y), [x, y])
    assert found.cost == Cost(None, 2 * 8 * 16 * 4, 8 * 16 * 4)


def test_a_tensor_that_is_given_twice_is_read_once(live: Backend) -> None:
    x = live.tensor(_spec("float32", (8,)), 0).value
    assert live.count(lambda: jnp.add(x, x), [x, x]).cost == Cost(None, 32, 32)


def test_all_of_several_outputs_are_counted(live: Backend) -> None:
    x = live.tensor(_spec("float32", (8,)), 0).value
    found = live.count(lambda: {"a": x + 1, "b": [x > 0, (x + 2, 3)]}, [x])
    assert found.cost == Cost(None, 32, 32 + 8 + 32)


# Functions, compiled


def _function(live: Backend, call: Any, *shapes: tuple[int, ...], state: tuple[TensorSlot, ...] = ()) -> Function:
    places = tuple(live.tensor(_spec("float32", shape), i) for i, shape in enumerate(shapes))
    return Function(call, places, state)


def test_a_launch_takes_its_data_anew(live: Backend) -> None:
    built = _function(live, lambda x, y: x * y, (8,), (8,))
    launch = live.compile(built, {})
    for seed in (0, 5):
        live.copy_into(built.arguments[0], live.tensor(_spec("float32", (8,)), seed))
        x, y = (live.to_numpy(place) for place in built.arguments)
        np.testing.assert_allclose(live.to_numpy(launch()), x * y, rtol=1e-6)


def test_what_was_compiled_is_told_in_the_words_of_jax_and_xla(live: Backend) -> None:
    found = live.compile(_function(live, lambda x: jnp.tanh(x @ x).sum(), (8, 8)), {}).compilation  # type: ignore[attr-defined]
    assert {"dot_general", "tanh", "reduce_sum"} <= set(found.operators)
    assert found.kernels
    assert found.graphs == 1
    assert found.cold > 0


@pytest.mark.parametrize("call", [lambda x: jnp.float32(3), jnp.zeros_like, lambda x: jnp.arange(8) + x.size])
def test_a_result_that_does_not_depend_on_data_is_told_as_a_constant(live: Backend, call: Any) -> None:
    found = live.compile(_function(live, call, (8,)), {}).compilation  # type: ignore[attr-defined]
    assert found.kernels[0] == "constant"


def test_a_result_that_depends_on_data_is_no_constant(live: Backend) -> None:
    for call in (jnp.copy, lambda x: x + 1, lambda x: x[::-1].at[0].set(1)):
        found = live.compile(_function(live, call, (8,)), {}).compilation  # type: ignore[attr-defined]
        assert "constant" not in found.kernels


def test_a_program_is_compiled_once_and_shared_only_by_its_like(live: Any) -> None:
    first, again, other = (
        live.compile(_function(live, call, (8,), (8,)), {})
        for call in (lambda x, y: x + 1, lambda x, y: x + 1, lambda x, y: y + 1)
    )
    assert first.run is again.run
    assert first.run is not other.run
    x, y = (live.to_numpy(place) for place in other.places)
    np.testing.assert_allclose(live.to_numpy(again()), x + 1)
    np.testing.assert_allclose(live.to_numpy(other()), y + 1)


def test_programs_that_return_a_value_and_a_tuple_of_it_are_two(live: Backend) -> None:
    alone = live.compile(_function(live, lambda x: x + 1, (8,)), {})()
    several = live.compile(_function(live, lambda x: (x + 1,), (8,)), {})()
    assert isinstance(alone, jax.Array)
    assert isinstance(several, tuple)


def test_what_was_compiled_before_is_told_as_it_was(live: Backend) -> None:
    """Another task may have had the same program: what it takes when it is cold is still what it took then."""
    first, again = (
        live.compile(_function(live, lambda x: x * 2 + 1, (8,)), {}).compilation
        for _ in range(2)  # type: ignore[attr-defined]
    )
    assert first == again
    assert min(again.cached, again.cold) > 0


def test_the_second_time_is_that_of_a_program_which_jax_has_kept(live: Backend) -> None:
    steps: list[str] = []

    def note(event: str, _: float, **__: Any) -> None:
        steps.append(event.rpartition("/")[2])

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        live.compile(_function(live, lambda x: x * 3 + 1, (8,)), {})
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert steps.count("jaxpr_trace_duration") == 2
    assert steps.count("backend_compile_duration") == 1


def test_what_is_left_to_python_is_refused(live: Backend) -> None:
    def call(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(Unsupported, match="to Python"):
        live.compile(_function(live, call, (8,)), {})


def test_a_key_goes_in_and_the_next_comes_out(live: Backend) -> None:
    def call(x: Any, key: Any) -> Any:
        now, following = jax.random.split(key)
        return x + jax.random.normal(now, x.shape, x.dtype), (following,)

    key = TensorSlot(jax.random.PRNGKey(0))
    launch = live.compile(_function(live, call, (8,), state=(key,)), {})
    first, second = (live.to_numpy(launch()) for _ in range(2))
    assert not np.array_equal(first, second)


# Gradients


def _product(x: Any, n: Any, y: Any) -> Any:
    return x * x * y, n + 1


@pytest.mark.parametrize("forward", [False, True])
def test_gradients_of_some_inputs_for_given_gradients_of_the_outputs(live: Backend, forward: bool) -> None:
    places = (live.tensor(_spec("float32", (8,)), 0), live.tensor(TensorSpec((8,), "int32", 0, 9), 1),
              live.tensor(_spec("float32", (8,)), 2))  # fmt: skip
    launch, seeds = live.backward(live.compile(Function(_product, places), {}), [places[2], places[0]], 7,
                                  forward=forward)  # fmt: skip
    assert seeds[1] is None  # a whole number has none
    for again in range(2):  # other gradients in the same place
        if again:
            live.copy_into(seeds[0], live.tensor(_spec("float32", (8,)), 9))
        x, y, seed = (live.to_numpy(one) for one in (places[0], places[2], seeds[0]))
        of_y, of_x = map(live.to_numpy, launch())
        np.testing.assert_allclose(of_x, 2 * x * y * seed, rtol=1e-5)
        np.testing.assert_allclose(of_y, x * x * seed, rtol=1e-5)


def test_a_step_computes_with_the_data_of_now_and_a_pullback_with_those_it_was_made_of(live: Backend) -> None:
    place = live.tensor(_spec("float32", (8,)), 0)
    launch = live.compile(Function(lambda x: x * x, (place,)), {})
    (back, seeds), (step, others) = (live.backward(launch, [place], 7, forward=forward) for forward in (False, True))
    before = live.to_numpy(place)
    live.copy_into(place, live.tensor(_spec("float32", (8,)), 5))
    np.testing.assert_allclose(live.to_numpy(back()[0]), 2 * before * live.to_numpy(seeds[0]), rtol=1e-5)
    np.testing.assert_allclose(live.to_numpy(step()[0]), 2 * live.to_numpy(place) * live.to_numpy(others[0]), rtol=1e-5)


def test_both_phases_in_one_program_leave_no_output_out(live: Any) -> None:
    built = _function(live, lambda x: jnp.sin(x) + 1, (8,))
    step, _ = live.backward(live.compile(built, {}), built.arguments, 0, forward=True)
    assert {"sin", "cos"} <= set(step.compilation.operators)


def test_whole_numbers_alone_have_no_gradient(live: Backend) -> None:
    built = _function(live, lambda x: jnp.argmax(x), (8,))
    with pytest.raises(Unsupported, match="no output"):
        live.backward(live.compile(built, {}), built.arguments, 0)


# Rows


def _row_record(live: Backend, name: str, row: Any, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setattr("opmark.worker.task_runner.implementations", lambda operator, info, *, every: (row,))
    op = operator(name)
    case = Case.of(name, op.complete(op.preset("small")), "forward")
    return TaskRunner(INFO, live).run(Task(case, INFO.name, "jax", SETTINGS))


def test_a_row_is_verified_before_and_after_timing(live: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _row_record(live, "exp", calls("jax.numpy.exp", "x"), monkeypatch)
    assert (found.status, found.reason) == ("ok", "")
    assert found.verification is not None
    assert found.verification.after == "same"
    assert found.compilation is not None
    assert found.compilation.operators == ("exp",)
    assert found.compilation.cached is not None


def test_a_wrong_row_is_found(live: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _row_record(live, "exp", calls("jax.numpy.exp2", "x"), monkeypatch).status == "wrong"


def test_a_result_that_was_remembered_is_found(live: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right for the data that it is verified with, and a constant of the program."""

    def build(p: Any, x: Any) -> Function:
        kept = jnp.exp(x.value)
        return Function(lambda x: kept, (x,))

    found = _row_record(live, "exp", Implementation("jax", build), monkeypatch)
    assert found.status == "wrong"
    assert "verified before timing, wrong after it" in found.reason


def test_a_row_that_cannot_is_skipped(live: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(p: Any, x: Any) -> Any:
        raise Unsupported("there is no such mode")

    found = _row_record(live, "exp", computes("jax", refuse), monkeypatch)
    assert (found.status, found.reason) == ("skipped", "there is no such mode")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"), "oom"),
        (MemoryError(), "oom"),
        (NotImplementedError("Differentiation rule for 'x' not implemented"), "skipped"),
        (RuntimeError("UNIMPLEMENTED: no such thing"), "skipped"),
        (ValueError("shapes do not match"), None),
    ],
)
def test_errors_are_told_apart(live: Backend, error: Exception, status: str | None) -> None:
    assert live.classify(error) == status


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_what_was_asked(threads: int) -> None:
    """In a process of its own: XLA has one pool, and starts it once."""
    code = (
        "from opmark.plugin.registry import backend\n"
        f"live = backend('jax-cpu').load({threads})\n"
        "assert live.why_unavailable() is None\n"
        "print(live.environment()['threads'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={
        **os.environ, "JAX_PLATFORMS": "cpu"})  # fmt: skip
    assert found.stdout.split() == [str(threads)]


# Callables of JAX


def task(name: str, phase: Phase = "forward", **call: Any) -> Task:
    op = operator(name)
    given = {"args": [], "kwargs": {}, "build": None, **call}
    return Task(Case.of(name, op.complete(given), phase), INFO.name, implementations(op, INFO)[0].label, SETTINGS)


def record(live: Backend, name: str, phase: Phase = "forward", **call: Any) -> Record:
    return TaskRunner(INFO, live).run(task(name, phase, **call))


@pytest.mark.parametrize(
    ("name", "call", "cost"),
    [
        ("jax.numpy.exp", {"args": ["8x16 float32"]}, Cost(None, 512, 512)),
        ("jax.numpy.add", {"args": ["8 bfloat16", "8 bfloat16"]}, Cost(None, 32, 16)),
        ("jax.numpy.cumsum", {"args": ["4x4 float64"], "kwargs": {"axis": 1}}, Cost(None, 128, 128)),
        ("jax.nn.softmax", {"args": ["4x8 float32"], "kwargs": {"axis": -1}}, Cost(None, 128, 128)),
        ("jax.numpy.astype", {"args": ["8 float32", {"dtype": "bool"}]}, Cost(None, 32, 8)),
        ("jax.lax.top_k", {"args": ["4x8 float32", 2]}, Cost(None, 128, 4 * 2 * 4 + 4 * 2 * 4)),
    ],
)
def test_a_function_of_jax_is_measured(live: Backend, name: str, call: dict[str, Any], cost: Cost) -> None:
    found = record(live, name, **call)
    assert found.status == "unchecked"
    assert found.measurements
    assert found.cost == cost
    assert not found.view


def test_a_function_that_raises_is_a_record_with_what_it_said(live: Backend) -> None:
    found = record(live, "jax.numpy.add", args=["3 float32", "4 float32"])
    assert found.status == "error"
    assert "incompatible shapes" in found.reason


def test_a_function_that_does_not_exist_is_a_record_with_its_name(live: Backend) -> None:
    found = record(live, "jax.numpy.no_such_function", args=["3 float32"])
    assert found.failed or found.status == "skipped"
    assert "no_such_function" in found.reason


@pytest.mark.parametrize("phase", ["backward", "both"])
def test_the_backward_phase_of_a_callable_is_skipped_with_the_reason(live: Backend, phase: Phase) -> None:
    found = record(live, "jax.numpy.exp", phase, args=["8 float32"])
    assert found.status == "skipped"
    assert "functions, not calls" in found.reason


# On a GPU, calls return before their work is done. Here a processor stands in for it.


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    info = dataclasses.replace(backend("jax-cuda"), environ={})
    found: Any = info.load(threads=1)
    monkeypatch.setattr(type(found), "_device", jax.devices("cpu")[0])
    return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was waited for."""
    seen: list[Any] = []
    wait = jax.block_until_ready

    def note(value: Any) -> Any:
        seen.append(value)
        return wait(value)

    monkeypatch.setattr(jax, "block_until_ready", note)
    return seen


def launch_on(device: Any, op: str, phase: Phase = "forward", **params: Any) -> Any:
    chosen = operator(op).complete(params) if operator(op).category != "callable" else {**params}
    task = Task(Case.of(op, chosen, phase), "jax-cuda", "jax", SETTINGS)
    return prepare(chosen, task, operator(op), implementations(operator(op), device.info)[0], device)


@pytest.mark.parametrize(
    ("op", "phase"),
    [("exp", "forward"), ("topk", "forward"), ("dropout", "forward"), ("exp", "backward"), ("exp", "both")],
)
def test_a_call_on_a_gpu_returns_and_synchronizing_waits_for_the_last(
    op: str, phase: Phase, device: Any, waits: list[Any]
) -> None:
    sizes = {"shape": [64, 64], **({"k": 4} if op == "topk" else {})}
    launch = launch_on(device, op, phase, **sizes).launch
    waits.clear()
    launch()
    launch()
    assert waits == []
    device.synchronize()
    assert len(waits) == 1
    assert jax.tree.leaves(waits[0])
    device.synchronize()
    assert waits[1] is None, "nothing is kept once it was waited for"


def test_random_numbers_go_on_from_call_to_call_on_a_gpu(device: Any) -> None:
    prepared = launch_on(device, "dropout", shape=[64, 64])
    first, second = (np.asarray(jax.tree.leaves(prepared.launch())[0]) for _ in range(2))
    assert (first != second).any()


def test_callables_are_waited_for_on_a_processor_and_not_on_a_gpu(device: Any, live: Any, waits: list[Any]) -> None:
    for one, count in ((device, 0), (live, 1)):
        launch = one.compile(lambda: jnp.ones(3), {})
        launch()
        assert len(waits) == count
        waits.clear()


def test_caches_of_a_gpu_are_overwritten_without_waiting(device: Any, waits: list[Any]) -> None:
    fill = device.overwrite(10)
    filled = fill()
    assert waits == []
    assert filled.nbytes == 12
    assert not np.asarray(filled).any()


def test_each_client_of_a_gpu_waits_for_its_own_answer(device: Any, waits: list[Any]) -> None:
    prepared = launch_on(device, "exp", shape=[8])
    (client,) = device.clients(prepared.launch, [], lambda inputs: prepared.launch)
    waits.clear()
    client()
    assert len(waits) == 1


def test_calls_on_a_gpu_are_verified_and_have_times_of_the_host(device: Any) -> None:
    task = Task(
        Case.of("softmax", operator("softmax").complete({"shape": [64, 64]}), "forward"), "jax-cuda", "jax", SETTINGS
    )
    found = TaskRunner(device.info, device).run(task)
    assert found.status == "ok", found.reason
    assert {m.quantity for m in found.measurements} == {"latency"}
    assert found.verification is not None
    assert found.verification.after == "same"
