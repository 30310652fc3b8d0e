"""On a machine with an NVIDIA GPU and its profilers: `python -m pytest tests/device`."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.runner.profilers.ncu import FOLDERS
from opmark.schema import Record

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

NCU = shutil.which("ncu") or shutil.which("ncu", path=FOLDERS[0])
NSYS = shutil.which("nsys") or shutil.which("nsys", path=FOLDERS[0])
needs_ncu = pytest.mark.skipif(NCU is None, reason="needs Nsight Compute")
needs_nsys = pytest.mark.skipif(NSYS is None, reason="needs Nsight Systems")

TIME, TRAFFIC = "gpu__time_duration.sum [ns]", "dram__bytes.sum [byte]"


def measure(tmp_path: Path, profiler: str, op: str, params: dict[str, Any], **options: Any) -> Record:
    fields = {name: options.pop(name) for name in ("args", "iterations", "device") if name in options}
    profile = opmark.Profiling(profiler, folder=tmp_path / "profiles", **fields)
    asked = {"backend": "torch-cuda", "effort": "quick", "processes": 1, "db": tmp_path / "store.db"}
    (record,) = opmark.run(op, params=params, profile=profile, **asked, **options).records
    assert record.status == "ok", record.reason
    return record


def device_seconds(record: Record) -> float:
    """With cold caches: Nsight Compute empties them before each kernel."""
    measured = record.measurement("device_time", "cold") or record.measurement("device_time")
    assert measured is not None
    return statistics.median(measured.samples)


def total(record: Record, metric: str) -> float:
    (profile,) = record.profiles
    return sum(float(kernel.metrics[metric]) for kernel in profile.kernels)


ADD = ("add", {"shape": [4096, 4096]})
MATMUL = ("matmul", {"M": 2048, "N": 2048, "K": 2048})


@needs_ncu
@pytest.mark.parametrize(("op", "params", "kernel"), [(*ADD, "elementwise"), (*MATMUL, "gemm")])
def test_ncu_counts_what_opmark_measures(tmp_path: Path, op: str, params: dict[str, Any], kernel: str) -> None:
    record = measure(tmp_path, "ncu", op, params, args=("--metrics", "gpu__time_duration.sum,dram__bytes.sum"))
    assert record.notes == ()
    (profile,) = record.profiles
    assert any(kernel in k.name for k in profile.kernels), [k.name for k in profile.kernels]
    measured = device_seconds(record)
    assert measured / 3 <= total(record, TIME) * 1e-9 <= measured * 3
    assert total(record, TRAFFIC) > 0


@needs_ncu
def test_ncu_sees_the_traffic_of_an_addition(tmp_path: Path) -> None:
    """Two inputs are read; of the output a part may still be in the cache when the kernel ends."""
    record = measure(tmp_path, "ncu", *ADD)
    read = 2 * 4 * 4096 * 4096
    assert 0.9 * read <= total(record, TRAFFIC) <= 1.7 * read


@needs_ncu
def test_ncu_sees_each_iteration_and_not_the_warm_up(tmp_path: Path) -> None:
    record = measure(tmp_path, "ncu", *ADD, iterations=3)
    assert len(record.profiles[0].kernels) == 3


@needs_ncu
def test_ncu_sees_the_backward_pass(tmp_path: Path) -> None:
    """Which autograd would run in a thread of its own, outside of the range."""
    record = measure(tmp_path, "ncu", *MATMUL, phase="backward")
    assert record.notes == ()
    assert sum("gemm" in kernel.name for kernel in record.profiles[0].kernels) >= 2


@needs_ncu
def test_ncu_tells_several_tasks_apart(tmp_path: Path) -> None:
    profile = opmark.Profiling("ncu", folder=tmp_path / "profiles")
    sizes = [[1024, 1024], [4096, 4096], [512, 512]]
    records = opmark.run(
        "add",
        params={"shape": sizes},
        backend="torch-cuda",
        effort="quick",
        processes=1,
        profile=profile,
        db=":memory:",
    ).records
    assert [len(record.profiles[0].kernels) for record in records] == [1, 1, 1]
    times = [total(record, TIME) for record in records]
    assert times[1] > max(times[0], times[2])


@needs_ncu
def test_an_option_that_ncu_does_not_know_costs_a_note(tmp_path: Path) -> None:
    record = measure(tmp_path, "ncu", *ADD, args=("--no-such-option",))
    (note,) = record.notes
    assert note.startswith("no profile by ncu: ended with exit code ")
    assert "no-such-option" in note


def test_a_trace_has_the_kernels_of_its_ranges(tmp_path: Path) -> None:
    for phase in ("forward", "backward"):
        record = measure(tmp_path, "trace", *MATMUL, iterations=2, phase=phase)
        (profile,) = record.profiles
        kernels = [kernel for kernel in profile.kernels if "gemm" in kernel.name]
        assert len(kernels) >= (2 if phase == "forward" else 4)
        events = json.loads(Path(profile.file).read_text())["traceEvents"]
        assert any("matmul" in e["name"] and e.get("cat") == "user_annotation" for e in events if e["ph"] == "X")


@needs_nsys
def test_nsys_sees_the_kernels_or_says_why_not(tmp_path: Path) -> None:
    """Some installations come without the part that imports what was recorded."""
    record = measure(tmp_path, "nsys", *MATMUL, iterations=2)
    if record.profiles and record.profiles[0].kernels:
        durations = [kernel.metrics["duration [ns]"] for kernel in record.profiles[0].kernels if "gemm" in kernel.name]
        assert len(durations) >= 2
        assert device_seconds(record) / 3 <= float(durations[0]) * 1e-9 <= device_seconds(record) * 3
    else:
        (note,) = record.notes
        assert note.startswith("no profile by nsys: ")
