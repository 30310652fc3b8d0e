"""No hardware, and a clock that is only counted."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.frameworks.null.backend import IMPLEMENTATIONS, NullLaunch, VirtualTimer
from opmark.plugin.registry import ANY_OPERATOR, catalogue
from opmark.schema import TensorSpec

HOUR = 3600.0
NOTHING = IMPLEMENTATIONS[ANY_OPERATOR]


def _samples(seed: int, count: int = 20) -> list[float]:
    timer = VirtualTimer(seed)
    return [timer.time(NullLaunch(1.0), 1) for _ in range(count)]


def test_a_seed_gives_the_same_times_again() -> None:
    assert _samples(1) == _samples(1)


def test_another_seed_gives_other_times() -> None:
    assert _samples(1) != _samples(2)


def test_there_is_jitter_and_it_only_adds() -> None:
    samples = _samples(0, 500)
    assert len(set(samples)) == 500
    assert min(samples) >= 1
    assert max(samples) < 1.03


@settings(deadline=None)
@given(seconds=st.floats(1e-9, 1e3), calls=st.integers(1, 10**6))
def test_time_is_proportional_to_calls_and_to_what_a_launch_takes(seconds: float, calls: int) -> None:
    timer = VirtualTimer(jitter=0)
    assert timer.time(NullLaunch(seconds), calls) == pytest.approx(calls * seconds)


def test_hours_pass_at_once() -> None:
    started = time.perf_counter()
    assert VirtualTimer().time(NullLaunch(HOUR), 1000) >= 1000 * HOUR
    assert time.perf_counter() - started < HOUR


def test_the_launch_is_really_called_so_that_its_failure_shows() -> None:
    def fails() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        VirtualTimer().time(fails, 5)


def test_a_launch_that_says_nothing_takes_some_time() -> None:
    assert VirtualTimer(jitter=0).time(lambda: None, 10) > 0


def test_the_harness_costs_nothing() -> None:
    assert VirtualTimer().overhead(10**6) == 0


def _seconds(elements: int) -> float:
    launch: Any = NOTHING.build({}, x=TensorSpec((elements,), "float32"), y=TensorSpec((elements,), "float32"))
    return float(launch.seconds)


def test_a_launch_takes_as_long_as_its_tensors_are_large() -> None:
    fixed = _seconds(0)
    assert 0 < fixed < _seconds(10**9) / 100
    assert _seconds(2 * 10**9) - fixed == pytest.approx(2 * (_seconds(10**9) - fixed))
    wide: Any = NOTHING.build({}, x=TensorSpec((10**9,), "float64"), y=TensorSpec((10**9,), "float64"))
    assert wide.seconds - fixed == pytest.approx(2 * (_seconds(10**9) - fixed))


def test_backward_takes_twice_as_long_and_a_whole_step_three_times(null: Any) -> None:
    backward, gradients = null.backward(NullLaunch(3.0), (), 0)
    both, _ = null.backward(NullLaunch(3.0), (), 0, forward=True)
    assert backward() == backward.seconds == 6
    assert both() == both.seconds == 9
    assert tuple(gradients) == ()


def test_a_launch_of_somebody_else_can_be_gone_back_through_too(null: Any) -> None:
    backward, _ = null.backward(lambda: None, (), 0)
    both, _ = null.backward(lambda: None, (), 0, forward=True)
    assert 0 < backward() < both()


def test_any_operator_can_be_not_computed(null: Any) -> None:
    for op in catalogue().values():
        params = op.complete(op.preset("large"))
        inputs = {name: null.tensor(spec, 0) for name, spec in op.inputs(params).items()}
        assert {name: (spec.shape, spec.dtype) for name, spec in inputs.items()} == {
            name: (spec.shape, spec.dtype) for name, spec in op.inputs(params).items()
        }, op.name
        assert NOTHING.build(params, **inputs)() > 0, op.name


def test_the_backend_counts_virtually_and_keeps_nothing(null: Any) -> None:
    timers = null.timers()
    assert set(timers) == {"latency", "throughput"}
    assert all(isinstance(timer, VirtualTimer) for timer in timers.values())
    assert null.device_clock() is None
    assert null.sensors() is None
    assert null.cache_bytes() is None
    assert null.why_unavailable() is None
    assert null.memory() is None
    assert null.available_bytes() is None
    assert null.synchronize() is None
    assert null.usable()
    assert not null.asynchronous
    assert null.environment() == {"device": "none", "threads": 1}


def test_two_runs_of_the_backend_see_the_same_times(null: Any) -> None:
    first, second = null.timers()["latency"], null.timers()["latency"]
    assert [first.time(NullLaunch(1.0), 1) for _ in range(5)] == [second.time(NullLaunch(1.0), 1) for _ in range(5)]


def test_a_tensor_is_its_own_description(null: Any) -> None:
    spec = TensorSpec((2, 3), "bfloat16")
    assert null.tensor(spec, 0) == spec
    assert null.dtype(spec) == "bfloat16"


def test_a_tensor_without_data_cannot_be_spoiled(null: Any) -> None:
    spec = TensorSpec((2, 3), "float32")
    null.poison(spec)
    null.copy_into(spec, TensorSpec((2, 3), "float32", 5.0, 6.0))
    assert spec == TensorSpec((2, 3), "float32")
    assert null.deferred(spec) is None


def test_overwriting_takes_as_long_as_there_are_bytes(null: Any) -> None:
    assert null.overwrite(2 << 20)() == pytest.approx(2 * null.overwrite(1 << 20)())


def test_there_is_nothing_to_look_at(null: Any) -> None:
    with pytest.raises(TypeError, match="computes nothing"):
        null.to_numpy(TensorSpec((1,), "float32"))


def test_errors_are_told_apart(null: Any) -> None:
    assert null.classify(MemoryError()) == "oom"
    assert null.classify(RuntimeError("something")) is None
