"""On a machine with an NVIDIA GPU: `python -m pytest tests/device`."""

from __future__ import annotations

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


def test_every_operator_in_every_dtype_forward_and_backward(tmp_path: Path) -> None:
    ops = [op.name for op in opmark.list("ops") if op.name not in ("fault", "cast")]
    records = measure(
        tmp_path, *ops, size="small", phase=["forward", "backward"],
        params={"dtype": ["float64", "float32", "float16", "bfloat16"]},
    )  # fmt: skip
    assert [
        (r.task.case.op, r.task.case.params["dtype"], r.task.case.phase, r.reason) for r in records if r.failed
    ] == []


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


def test_out_of_memory_costs_one_record(tmp_path: Path) -> None:
    records = measure(tmp_path, "add", params={"shape": [[400_000, 400_000], [64, 64]]})
    assert [r.status for r in records] == ["oom", "ok"]


def test_a_call_is_waited_for(tmp_path: Path) -> None:
    """A large product takes longer than a small one only if the clock waits for the device."""
    small, large = measure(tmp_path, "matmul", params={"M": [64, 8192], "N": 8192, "K": 8192, "dtype": "float16"})
    medians = [sorted(r.measurements[0].samples)[len(r.measurements[0].samples) // 2] for r in (small, large)]
    assert medians[1] > 5 * medians[0]


def test_the_environment_names_the_gpu(tmp_path: Path) -> None:
    result = opmark.run("add", backend="torch-cuda", effort="quick", db=tmp_path / "store.db")
    (facts,) = result.environments.values()
    assert facts["gpu"] == torch.cuda.get_device_properties().name
    assert facts["tf32"] is False
