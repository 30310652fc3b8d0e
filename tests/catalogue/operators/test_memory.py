"""copy and triad."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.catalogue.operators.memory import COPY, TRIAD
from opmark.errors import Unsupported
from opmark.plugin import Operator
from opmark.plugin.registry import backend
from opmark.schema import EFFORTS, Case, Cost, Settings, Task
from opmark.worker.verify.outputs import verify

both_operators = pytest.mark.parametrize("op", [COPY, TRIAD], ids=lambda op: op.name)
both_frameworks = pytest.mark.parametrize("framework", ["numpy", "torch"])


def _launch(op: Operator, framework: str, live: Any, **given: Any) -> tuple[dict[str, Any], Callable[[], Any]]:
    """Return (inputs, launch)."""
    params = op.complete(given)
    inputs = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for(framework)
    return inputs, implementation.build(params, **inputs)


# Six elements by hand: one vector in and one out; of triad two in, and a product and a sum for each element.
COSTS = [
    (COPY, {"n": 6}, Cost(0, 24, 24)),
    (COPY, {"n": 6, "dtype": "float64"}, Cost(0, 48, 48)),
    (COPY, {"n": 6, "repeats": 10, "dtype": "bfloat16"}, Cost(0, 120, 120)),
    (TRIAD, {"n": 6}, Cost(12, 48, 24)),
    (TRIAD, {"n": 6, "repeats": 10, "dtype": "float16"}, Cost(66, 240, 120)),
]


@pytest.mark.parametrize(("op", "given", "cost"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], cost: Cost) -> None:
    assert op.cost(op.complete(given)) == cost


@both_operators
def test_one_pass_is_the_default(op: Operator) -> None:
    assert op.complete({"n": 6})["repeats"] == 1


def test_references_by_hand() -> None:
    x, y = np.array([1.0, 2.0]), np.array([10.0, -1.0])
    np.testing.assert_array_equal(COPY.reference({}, x=x), [1, 2])
    np.testing.assert_array_equal(TRIAD.reference({}, x=x, y=y), [31, -1])


@both_operators
@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 300), repeats=st.integers(1, 40), dtype=st.sampled_from(["float64", "float32", "float16"]))
def test_however_often_it_is_done_numpy_s_result_is_the_same(op: Operator, n: int, repeats: int, dtype: str) -> None:
    live = backend("numpy-cpu").load(threads=1)
    inputs, launch = _launch(op, "numpy", live, n=n, repeats=repeats, dtype=dtype)
    found = launch()
    assert found.shape == (n,)
    assert found.dtype == dtype
    due = op.reference({}, **{name: live.to_numpy(tensor) for name, tensor in inputs.items()})
    np.testing.assert_allclose(live.to_numpy(found), due, rtol=1e-12, atol=8 * np.finfo(dtype).eps)


@both_operators
@pytest.mark.parametrize("repeats", [1, 7])
def test_numpy_s_result_is_found_right(op: Operator, repeats: int, numpy_cpu: Any) -> None:
    (implementation,) = op.implementations_for("numpy")
    case = Case.of(op.name, op.complete({"n": 100, "repeats": repeats}), "forward")
    task = Task(case, "numpy-cpu", implementation.label, Settings(1, "quick", EFFORTS["quick"]))
    assert verify(task, op, implementation, numpy_cpu).checked == "full"


@both_operators
@pytest.mark.parametrize("repeats", [2, 100])
def test_torch_does_not_write_one_place_several_times(op: Operator, repeats: int, torch_cpu: Any) -> None:
    with pytest.raises(Unsupported, match="numpy-cpu"):
        _launch(op, "torch", torch_cpu, n=16, repeats=repeats)


@both_operators
@both_frameworks
def test_every_call_writes_the_same_memory_and_all_of_it(
    op: Operator, framework: str, request: pytest.FixtureRequest
) -> None:
    """It is not the memory of an input, and it is overwritten in full."""
    live = request.getfixturevalue(f"{framework}_cpu")
    inputs, launch = _launch(op, framework, live, n=1000)
    first = launch()
    due = live.to_numpy(first).copy()
    live.poison(first)
    second = launch()
    assert np.shares_memory(np.asarray(first), np.asarray(second))
    np.testing.assert_array_equal(live.to_numpy(second), due)
    for tensor in inputs.values():
        assert not np.shares_memory(np.asarray(tensor), np.asarray(second))


@both_operators
@both_frameworks
def test_a_call_sees_what_is_in_its_inputs_then(op: Operator, framework: str, request: pytest.FixtureRequest) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    inputs, launch = _launch(op, framework, live, n=50)
    launch()
    for tensor in inputs.values():
        live.copy_into(tensor, tensor * 2 + 1)
    due = op.reference({}, **{name: live.to_numpy(tensor) for name, tensor in inputs.items()})
    np.testing.assert_allclose(live.to_numpy(launch()), due, rtol=1e-6)


@both_operators
@pytest.mark.parametrize("repeats", [1, 50])
def test_a_call_of_numpy_takes_no_vector_s_worth_of_memory(op: Operator, repeats: int, numpy_cpu: Any) -> None:
    """Rows that share memory must not be copied: that would measure another level of the caches."""
    _, launch = _launch(op, "numpy", numpy_cpu, n=200_000, repeats=repeats)
    launch()
    tracemalloc.start()
    try:
        launch()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400_000


def _seconds(launch: Callable[[], Any]) -> float:
    """Return the time that this thread computes, without what other processes take away."""
    start = time.thread_time()
    launch()
    return time.thread_time() - start


@pytest.mark.serial
@both_operators
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_passes_in_one_call_are_no_slower_than_as_many_calls(op: Operator, dtype: str, numpy_cpu: Any) -> None:
    """A pass goes over a whole vector; element by element it would not reach the speed of memory."""
    passes = 40
    together, alone = (
        _launch(op, "numpy", numpy_cpu, n=30_000, repeats=repeats, dtype=dtype)[1] for repeats in (passes, 1)
    )
    ratios = [
        min(_seconds(together) for _ in range(5))
        / min(_seconds(lambda: [alone() for _ in range(passes)]) for _ in range(5))
        for _ in range(3)
    ]
    assert min(ratios) < 2.5


@both_operators
def test_moving_data_has_no_gradient(op: Operator) -> None:
    assert op.why_no_phase(op.complete({"n": 6}), "backward") == f"`{op.name}` has no gradient"
