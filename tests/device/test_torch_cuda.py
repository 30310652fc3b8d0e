"""On a machine with an NVIDIA GPU: `python -m pytest tests/device`."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

import opmark
from opmark.schema import Record

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def measure(tmp_path: Path, *ops: str, **options: object) -> list[Record]:
    return opmark.run(ops, backend="torch-cuda", effort="quick", db=tmp_path / "store.db", **options).records  # type: ignore[arg-type]


def test_every_case_of_the_quick_suite_is_verified_and_measured(tmp_path: Path) -> None:
    records = measure(tmp_path, suite="quick")
    assert [r.reason for r in records if r.status != "ok"] == []
    assert {r.verification.checked for r in records if r.verification} <= {"full", "scaled"}
    assert all(r.measurements[0].samples for r in records)


def test_memory_is_what_the_tensors_take(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "add", params={"shape": [4096, 4096]})
    assert record.memory is not None
    assert record.memory.source == "allocator"
    assert 3 * 4096 * 4096 * 4 <= record.memory.peak <= 1.01 * 3 * 4096 * 4096 * 4


def test_float32_convolutions_keep_float32(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "conv2d", size="small")
    assert record.status == "ok"
    assert record.verification is not None
    assert record.verification.max_rel_error is not None


def test_products_in_tf32_are_less_exact_and_those_of_float32_stay_as_they_are(tmp_path: Path) -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs a GPU with TF32")
    sizes = {"M": 512, "N": 512, "K": 512, "dtype": ["float32", "tfloat32", "float32"]}
    records = measure(tmp_path, "matmul", "linear", params=sizes, phase=["forward", "backward"])
    assert [r.reason for r in records if r.status != "ok"] == []
    for record in records:
        if record.task.case.phase == "forward":
            assert record.verification is not None
            rough = (record.verification.max_abs_error or 0.0) > 1e-3
            assert rough == (record.task.case.params["dtype"] == "tfloat32")


def test_out_of_memory_costs_one_record(tmp_path: Path) -> None:
    records = measure(tmp_path, "add", params={"shape": [[400_000, 400_000], [64, 64]]})
    assert [r.status for r in records] == ["oom", "ok"]


def test_a_call_is_waited_for(tmp_path: Path) -> None:
    """A large product takes longer than a small one only if the clock waits for the device."""
    small, large = measure(tmp_path, "matmul", params={"M": [64, 8192], "N": 8192, "K": 8192, "dtype": "float16"})
    medians = [statistics.median(r.measurement("latency").samples) for r in (small, large)]  # type: ignore[union-attr]
    assert medians[1] > 5 * medians[0]


def test_the_environment_names_the_gpu(tmp_path: Path) -> None:
    result = opmark.run("add", backend="torch-cuda", effort="quick", db=tmp_path / "store.db")
    (facts,) = result.environments.values()
    assert facts["gpu"] == torch.cuda.get_device_properties().name
    assert facts["tf32"] is False


def test_every_quantity_is_there_cold_and_warm(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "softmax", params={"shape": [1024, 1024]})
    found = [(m.quantity, m.cache) for m in record.measurements]
    assert found == [
        ("device_time", "cold"), ("device_time", "warm"), ("device_span", "cold"), ("device_span", "warm"),
        ("latency", "warm"), ("host_time", "warm"), ("throughput", "warm"),
    ]  # fmt: skip
    assert record.notes == ()
    medians = {key: statistics.median(m.samples) for key, m in zip(found, record.measurements, strict=True)}
    assert medians["device_time", "warm"] < medians["device_time", "cold"] < medians["latency", "warm"]
    assert medians["host_time", "warm"] < medians["latency", "warm"]


def test_kernels_are_named_and_add_up(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "topk", params={"shape": [64, 100000], "k": 16}, quantity="device_time")
    for measurement in record.measurements:
        assert sum(kernel.count for kernel in measurement.kernels) > 1
        total = sum(kernel.time for kernel in measurement.kernels)
        assert total == pytest.approx(statistics.median(measurement.samples), rel=0.1)


def test_the_clock_is_read(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "add", size="small")
    readings = record.measurements[0].conditions.readings
    assert len(readings) >= 2
    assert all(reading.clock and reading.power and reading.temperature for reading in readings)


def test_sustained_load_says_that_clocks_moved_or_stayed(tmp_path: Path) -> None:
    (record,) = measure(
        tmp_path, "matmul", params={"M": 8192, "N": 8192, "K": 8192, "dtype": "float16"},
        quantity="throughput", max_time=2.0, min_time=2.0, rel_ci=0.0001,
    )  # fmt: skip
    (measurement,) = record.measurements
    clocks = measurement.conditions.clocks
    moved = min(clocks) < 0.97 * (measurement.conditions.highest_clock or 0.0)
    assert ("clocks-moved" in {caution.code for caution in measurement.cautions}) == moved
    assert (measurement.throttled != []) == any(r.throttle for r in measurement.conditions.readings)


def test_energy_is_counted(tmp_path: Path) -> None:
    (record,) = measure(
        tmp_path, "matmul", params={"M": 4096, "N": 4096, "K": 4096, "dtype": "float16"}, quantity="energy"
    )
    (measurement,) = record.measurements
    seconds = 2 * 4096**3 / 500e12
    assert 50 < statistics.median(measurement.samples) / seconds < 1500  # watts


@pytest.mark.parametrize(
    ("mode", "quantity"), [("discrete", "latency"), ("continuous", "throughput"), ("continuous_events", "event_time")]
)
def test_modes_of_param(tmp_path: Path, mode: str, quantity: str) -> None:
    (record,) = measure(tmp_path, "add", size="small", mode=mode, warmup=5, samples=30)
    (measurement,) = record.measurements
    assert (measurement.quantity, measurement.cache, measurement.stop) == (quantity, "warm", "count")
    assert len(measurement.samples) * measurement.calls == 30


def test_forward_and_backward_in_one_step(tmp_path: Path) -> None:
    records = measure(tmp_path, "layer_norm", size="typical", phase=["forward", "backward", "both"])
    assert [r.status for r in records] == ["ok"] * 3
    forward, backward, both = (statistics.median(r.measurements[0].samples) for r in records)
    assert both == pytest.approx(forward + backward, rel=0.3)


def test_a_device_that_refuses_everything_costs_one_record(tmp_path: Path) -> None:
    records = measure(tmp_path, "fault", params={"kind": ["none", "device_assert"], "n": [16, 32]})
    assert [(r.task.case.params["kind"], r.status) for r in records] == [
        ("none", "ok"), ("none", "ok"), ("device_assert", "error"), ("device_assert", "error"),
    ]  # fmt: skip
    after = measure(tmp_path, "fault", params={"kind": ["device_assert", "none"]})
    assert [r.status for r in after] == ["error", "ok"]


def test_a_kernel_that_does_not_end_costs_one_record(tmp_path: Path) -> None:
    records = measure(tmp_path, "fault", params={"kind": ["device_hang", "none"]}, timeout=20)
    assert [r.status for r in records] == ["timeout", "ok"]


def test_a_second_timer_is_asked_now_and_then(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "add", params={"shape": [8192, 8192]}, quantity="device_span")
    checks = [m.check for m in record.measurements if m.cache == "warm"]
    assert checks[0] is not None
    assert checks[0].timer == "events"
    assert "timers-disagree" not in {c.code for m in record.measurements for c in m.cautions}
