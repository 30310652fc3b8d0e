"""Energy a call, with counters of coarse steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmark.errors import Unsupported
from opmark.schema import Measurement, SensorReading
from opmark.worker.measure import instruments, sampler
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.sampler import measure_energy

# Longer than a look is apart from the next, if there are two.
CALL = 1.1e-3


def nothing() -> None:
    return None


@pytest.fixture
def consume(fake_time: Any, told_sensors: Any) -> Callable[..., tuple[Measurement, int]]:
    """Measures calls of `seconds`; `joules(calls, seconds)` is what the counter says after so many and so long."""
    now = fake_time(instruments, sampler)

    def consume(joules: Callable[[int, float], float | None], seconds: float = CALL) -> tuple[Measurement, int]:
        made, begun = 0, now.now

        def launch() -> None:
            nonlocal made
            made += 1
            now.pass_(seconds)

        sensors = told_sensors([SensorReading(clock=1e9)], lambda: joules(made, (now.now - begun) * 1e-9))
        return measure_energy(launch, nothing, ConditionsMonitor(sensors)), made

    return consume


@pytest.mark.parametrize("step", [2, 100, 358])
def test_a_counter_of_coarse_steps_gives_the_joules_of_a_call_exactly(
    consume: Callable[..., tuple[Measurement, int]], step: int
) -> None:
    # Every `step` calls it moves on by what they took: half a joule each.
    found, _ = consume(lambda calls, _: 0.5 * step * (calls // step))
    assert found.calls == 2
    assert found.samples == [0.5] * 3


@given(st.floats(0.02, 0.3), st.floats(1e-5, 5e-3))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_power_over_time_is_right_to_a_batch_however_coarse_the_steps(
    consume: Callable[..., tuple[Measurement, int]], period: float, seconds: float
) -> None:
    found, _ = consume(lambda _, elapsed: 100.0 * period * (elapsed // period), seconds)
    # A window is half a second at least; the beginning and the end of it are seen a batch late at most.
    late = 2 * found.calls * seconds / 0.5
    assert found.samples == pytest.approx([100.0 * seconds] * 3, rel=late)


def test_there_are_three_windows_of_half_a_second(consume: Callable[..., tuple[Measurement, int]]) -> None:
    found, made = consume(lambda calls, _: float(calls))
    assert len(found.samples) == 3
    assert 1.5 <= (made - found.warmup_calls) * CALL <= 1.6


def test_a_counter_that_moves_on_and_stops_again_is_waited_for(
    consume: Callable[..., tuple[Measurement, int]],
) -> None:
    # A step every two seconds, four times as long as a window.
    found, made = consume(lambda _, elapsed: 200.0 * (elapsed // 2.0))
    assert found.samples == pytest.approx([100.0 * CALL] * 3, rel=0.01)
    assert made * CALL > 6.0


def test_a_counter_that_stands_still_is_no_counter(consume: Callable[..., tuple[Measurement, int]]) -> None:
    with pytest.raises(Unsupported, match="did not change for 5 s"):
        consume(lambda calls, _: 7.0)


def test_a_counter_that_stops_to_answer_is_no_counter(consume: Callable[..., tuple[Measurement, int]]) -> None:
    with pytest.raises(Unsupported, match="stopped answering"):
        consume(lambda calls, _: float(calls) if calls < 600 else None)


def test_a_window_in_which_the_counter_starts_again_from_nothing_is_no_sample(
    consume: Callable[..., tuple[Measurement, int]],
) -> None:
    # In the second window, of which about 450 calls make one.
    found, _ = consume(lambda calls, _: float(calls if calls < 700 else calls - 700))
    assert found.samples == [1.0] * 2


def test_a_counter_that_goes_backwards_is_no_counter(consume: Callable[..., tuple[Measurement, int]]) -> None:
    with pytest.raises(Unsupported, match="goes backwards"):
        consume(lambda calls, _: -float(calls))


def test_a_call_longer_than_the_patience_with_a_counter_is_measured_all_the_same(
    consume: Callable[..., tuple[Measurement, int]],
) -> None:
    found, _ = consume(lambda calls, _: 3.0 * calls, 8.0)
    assert (found.calls, found.samples) == (1, [3.0] * 3)


def test_the_kind_of_measurement_is_written_down(consume: Callable[..., tuple[Measurement, int]]) -> None:
    found, _ = consume(lambda calls, _: float(calls))
    assert (found.quantity, found.cache, found.timer, found.stop) == ("energy", "warm", "energy counter", "count")
    assert [reading.at for reading in found.conditions.readings] == [0, 3]
    assert found.warmup_time == pytest.approx(found.warmup_calls * CALL, rel=1e-3)


def test_work_is_waited_for_before_the_counter_is_read(fake_time: Any, told_sensors: Any) -> None:
    # Calls return at once; the device works, and the counter counts, only while it is waited for.
    now = fake_time(instruments, sampler)
    queued = done = 0

    def launch() -> None:
        nonlocal queued
        queued += 1

    def synchronize() -> None:
        nonlocal queued, done
        now.pass_(CALL * queued)
        done, queued = done + queued, 0

    def joules() -> float:
        assert queued == 0
        return 0.5 * done

    found = measure_energy(launch, synchronize, ConditionsMonitor(told_sensors([SensorReading()], joules)))
    assert found.samples == [0.5] * 3
