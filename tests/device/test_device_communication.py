"""Communication and transfers on a machine with at least one NVIDIA GPU: `python -m pytest tests/device`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.errors import UserError
from opmark.plugin.registry import catalogue
from opmark.schema import Record
from opmark.stats.measurement import summarize

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GPUS = torch.cuda.device_count()
COLLECTIVES = sorted(op.name for op in catalogue().values() if op.ranks and op.category == "communication")
PAIRS = {"p2p", "incast", "multicast"}
"""What one rank cannot do alone."""


def measure(tmp_path: Path, *ops: str, **options: Any) -> list[Record]:
    return opmark.run(ops, backend="torch-cuda", effort="quick", db=tmp_path / "store.db", **options).records


def seconds(record: Record, quantity: str = "latency") -> float:
    found = record.measurement(quantity)
    assert found is not None, (record.task.case.op, record.status, record.reason, record.notes)
    return summarize([found]).median


@pytest.mark.parametrize("op", ["host2device", "device2host"])
def test_a_transfer_is_verified_and_timed_by_the_device(tmp_path: Path, op: str) -> None:
    pinned, pageable = measure(tmp_path, op, params={"size": 64 << 20, "pinned": [True, False]})
    for record in (pinned, pageable):
        assert record.status == "ok", record.reason
        assert record.verification is not None
        assert record.verification.checked in ("full", "scaled")
        assert record.cost is not None
        assert record.cost.traffic is not None
        assert record.cost.traffic.link == "host"
    assert seconds(pinned) < seconds(pageable)
    copied = record_kernels(pinned)
    assert any("memcpy" in name.lower() for name in copied), copied


def record_kernels(record: Record) -> list[str]:
    found = record.measurement("device_time")
    return [kernel.name for kernel in found.kernels] if found else []


def test_every_dtype_is_transferred(tmp_path: Path) -> None:
    dtypes = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
    records = measure(tmp_path, "host2device", "device2host", params={"size": 4096, "dtype": dtypes})
    assert [(r.task.case.params["dtype"], r.reason) for r in records if r.status != "ok"] == []


def test_every_collective_runs_on_nccl_with_a_rank_for_each_device(tmp_path: Path) -> None:
    names = [op for op in COLLECTIVES if GPUS > 1 or op not in PAIRS]
    records = measure(tmp_path, *names, size="small", ranks=GPUS)
    assert [(r.task.case.op, r.status, r.reason) for r in records if r.status != "ok"] == []
    assert all(len(r.measurements[0].by_rank) == GPUS for r in records)


def test_nccl_takes_every_dtype(tmp_path: Path) -> None:
    dtypes = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
    names = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
    records = measure(tmp_path, *names, params={"size": 1 << 16, "dtype": dtypes}, ranks=GPUS)
    assert [(r.task.case.op, r.task.case.params["dtype"], r.reason) for r in records if r.status != "ok"] == []


def test_the_engine_is_nccl_and_quantities_are_those_of_a_queue(tmp_path: Path) -> None:
    result = opmark.run("all_reduce", backend="torch-cuda", effort="quick", ranks=GPUS, db=tmp_path / "store.db")
    (record,) = result.records
    assert {m.quantity for m in record.measurements} == {"latency", "host_time", "throughput"}
    assert result.environments[record.environment]["engine"] == "nccl"


def test_all_reduce_beside_a_copy_tells_what_is_hidden(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "all_reduce_h2d", params={"size": 64 << 20}, ranks=GPUS)
    assert record.status == "ok", record.reason
    assert record.overlap is not None
    assert (record.overlap.first, record.overlap.second) == ("all_reduce", "host2device")
    assert record.overlap.together >= 0.9 * max(record.overlap.first_alone, record.overlap.second_alone)


def test_an_asynchronous_collective_tells_what_hides_behind_computation(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "all_reduce", params={"size": 1 << 20, "asynchronous": True}, ranks=GPUS)
    assert record.status == "ok", record.reason
    assert record.overlap is not None
    assert 0 <= record.overlap.share <= 1


def test_more_ranks_than_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{GPUS + 1} ranks need a device each, {GPUS} device"):
        measure(tmp_path, "all_reduce", ranks=GPUS + 1)


def test_a_rank_that_dies_on_a_device_costs_one_record(tmp_path: Path) -> None:
    faults = {"op": "fault_ranks", "params": {"size": 4096, "rank": 0, "kind": ["kill", "raise"]}}
    whole = {"schema": 1, "name": "drill", "cases": [faults, {"op": "all_reduce", "params": {"size": 4096}}]}
    *failed, after = measure(tmp_path, workload=whole, ranks=GPUS)
    assert [record.status for record in failed] == ["killed", "error"]
    assert after.status == "ok", after.reason
