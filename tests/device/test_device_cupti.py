"""One source of device time for every framework on an NVIDIA GPU: `python -m pytest tests/device`."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.worker.measure.cupti import CuptiClock, open_cupti
from opmark.worker.measure.sampler import busy, span

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

BACKENDS = "torch-cuda,torch-compile-cuda,triton-cuda,jax-cuda"


@pytest.fixture(scope="module")
def jax() -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = pytest.importorskip("jax")
    if not any(device.platform == "gpu" for device in found.devices()):
        pytest.skip("this JAX has no GPU")
    return found


class Program:
    """A compiled function of JAX as a backend launches it: nobody waits."""

    def __init__(self, jax: Any, function: Any, *given: Any) -> None:
        self._jax, self._given = jax, given
        self._run = jax.jit(function).lower(*given).compile()
        self.last: Any = None
        jax.block_until_ready(self())

    def __call__(self) -> Any:
        self.last = self._run(*self._given)
        return self.last

    def wait(self) -> None:
        self._jax.block_until_ready(self.last)


@pytest.fixture
def program(jax: Any) -> Program:
    x = jax.random.normal(jax.random.key(0), (2048, 2048))
    return Program(jax, lambda a: jax.numpy.sort(jax.nn.softmax(a @ a, axis=-1), axis=-1), x)


@pytest.fixture
def clock(program: Program) -> Iterator[CuptiClock]:
    found, why = open_cupti(program.wait, None)
    assert found is not None, why
    yield found
    found.detach()


def test_calls_of_jax_have_their_kernels(program: Program, clock: CuptiClock) -> None:
    trace = clock.trace([program] * 20, None, 0.05)
    counts = {len(call) for call in trace.calls}
    assert len(counts) == 1
    assert counts.pop() >= 3
    assert (trace.lost, trace.stray, trace.queued) == (0, 0, True)


def test_as_many_calls_as_jax_has_ahead_are_queued(program: Program, clock: CuptiClock) -> None:
    from opmark.frameworks.jax.backend import JaxBackend

    assert clock.trace([program] * JaxBackend.calls_ahead, None, 0.2).queued
    assert not clock.trace([program] * (JaxBackend.calls_ahead + 10), None, 0.05).queued


def test_queued_calls_of_jax_have_no_gaps(program: Program, clock: CuptiClock) -> None:
    calls = clock.trace([program] * 20, None, 0.05).calls
    assert statistics.median(map(span, calls)) < 1.2 * statistics.median(map(busy, calls))


def test_four_frameworks_have_the_same_quantities_from_the_same_clock(jax: Any, tmp_path: Path) -> None:
    result = opmark.run(
        ["softmax"], params={"shape": [1024, 4096], "dtype": "float16"}, backend=BACKENDS, effort="quick",
        db=tmp_path / "store.db",
    )  # fmt: skip
    seen = {}
    for record in result.records:
        assert record.status == "ok", record.reason
        seen[record.task.backend] = {(m.quantity, m.cache): m.timer for m in record.measurements}
    assert set(seen) == set(BACKENDS.split(","))
    for quantities in seen.values():
        for quantity in ("device_time", "device_span"):
            assert {quantities[quantity, cache] for cache in ("cold", "warm")} == {"cupti"}
        assert {("latency", "warm"), ("host_time", "warm"), ("throughput", "warm")} <= set(quantities)


def test_unqueued_time_is_measured_beside_the_queued_one(tmp_path: Path) -> None:
    result = opmark.run(
        ["sort"], params={"shape": [1024, 4096]}, backend="torch-cuda", effort="quick",
        quantity=["device_time", "unqueued_time"], cache="warm", db=tmp_path / "store.db",
    )  # fmt: skip
    queued, alone = (statistics.median(m.samples) for m in result.records[0].measurements)
    assert 0.9 * queued < alone < 1.5 * queued


def test_energy_of_a_program_of_jax(jax: Any, tmp_path: Path) -> None:
    result = opmark.run(
        ["matmul"], params={"M": 4096, "N": 4096, "K": 4096, "dtype": "bfloat16"}, backend="jax-cuda", effort="quick",
        quantity=["energy"], db=tmp_path / "store.db",
    )  # fmt: skip
    (measured,) = result.records[0].measurements
    assert 1e-3 < statistics.median(measured.samples) < 10
