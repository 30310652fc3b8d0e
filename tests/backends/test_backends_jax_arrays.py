"""JAX on the CPU: its arrays, what a call of its functions costs, and what it cannot do."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import Unsupported
from opmark.interfaces import Backend
from opmark.registry import backend, operator
from opmark.runner.execute import Bench
from opmark.runner.plan import implementations, make_plan
from opmark.schema import EFFORTS, Case, Cost, Phase, Record, Settings, Task, TensorSpec
from opmark.schema.dtype import DTYPES, is_float

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
    array = live.tensor(_spec(dtype), 0)
    assert isinstance(array, jax.Array)
    assert live.dtype(array) == str(array.dtype) == dtype
    assert array.dtype.itemsize == DTYPES[dtype].size
    assert array.shape == (200, 3)
    assert len(np.unique(live.to_numpy(array))) > 1


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
    assert live.tensor(_spec("float32", ()), 0).shape == ()
    assert live.tensor(_spec("float32", (0, 3)), 0).shape == (0, 3)


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_a_thinned_array_is_a_few_of_its_elements(most: int, live: Backend) -> None:
    array = live.tensor(_spec("float32", (10, 30)), 0)
    found = live.thin(array, most)
    assert 0 < found.size <= most
    assert set(live.to_numpy(found).tolist()) <= set(live.to_numpy(array).reshape(-1).tolist())


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
    x, y = (live.tensor(_spec("float32", (8, 16)), seed) for seed in (0, 1))
    found = live.count(lambda: jnp.add(x, y), [x, y])
    assert found.cost == Cost(None, 2 * 8 * 16 * 4, 8 * 16 * 4)


def test_a_tensor_that_is_given_twice_is_read_once(live: Backend) -> None:
    x = live.tensor(_spec("float32", (8,)), 0)
    assert live.count(lambda: jnp.add(x, x), [x, x]).cost == Cost(None, 32, 32)


def test_all_of_several_outputs_are_counted(live: Backend) -> None:
    x = live.tensor(_spec("float32", (8,)), 0)
    found = live.count(lambda: {"a": x + 1, "b": [x > 0, (x + 2, 3)]}, [x])
    assert found.cost == Cost(None, 32, 32 + 8 + 32)


def test_there_is_no_backward_phase(live: Backend) -> None:
    x = live.tensor(_spec("float32", (8,)), 0)
    with pytest.raises(Unsupported, match="no backward phase"):
        live.backward(lambda: x, [x], 0)


# Callables of JAX


def task(name: str, phase: Phase = "forward", **call: Any) -> Task:
    op = operator(name)
    given = {"args": [], "kwargs": {}, "build": None, **call}
    return Task(Case.of(name, op.complete(given), phase), INFO.name, implementations(op, INFO)[0].label, SETTINGS)


def record(live: Backend, name: str, phase: Phase = "forward", **call: Any) -> Record:
    return Bench(INFO, live).record(task(name, phase, **call))


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
    assert (found.status, found.reason) == ("ok", "")
    assert found.measurements
    assert found.cost == cost
    assert not found.view


def test_a_function_that_raises_is_a_record_with_what_it_said(live: Backend) -> None:
    found = record(live, "jax.numpy.add", args=["3 float32", "4 float32"])
    assert found.status == "error"
    assert "incompatible shapes" in found.reason


def test_a_function_that_does_not_exist_is_a_record_with_its_name(live: Backend) -> None:
    found = record(live, "jax.numpy.no_such_function", args=["3 float32"])
    assert found.status != "ok"
    assert "no_such_function" in found.reason


def test_the_backward_phase_of_a_callable_is_skipped_with_the_reason() -> None:
    cases = [task("jax.numpy.exp", phase, args=["8 float32"]).case for phase in ("forward", "backward", "both")]
    plan = make_plan(cases, [INFO.name], [SETTINGS])
    assert [planned.case for planned in plan.tasks] == cases[:1]
    assert [(skipped.task.case.phase, skipped.status) for skipped in plan.skipped] == [
        ("backward", "skipped"),
        ("both", "skipped"),
    ]
    assert all("jax-cpu has no automatic differentiation" in skipped.reason for skipped in plan.skipped)
