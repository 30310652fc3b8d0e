"""opmark micro-perf with communication: how many ranks it takes, and a run on a processor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from micro_perf_runs import quickly

from opmark.interop.bytemicroperf.command import main
from opmark.interop.bytemicroperf.machine import fit_ranks, most_ranks
from opmark.interop.bytemicroperf.selection import WorkloadEntry, choose_tasks, read_offer

pytestmark = pytest.mark.ranks

Write = Callable[[str, Any], Path]

BUFFER = {"arg_type": "default", "dtype": "float32", "batch_size": 4, "dim_size": 8}
EXP = {"exp": [BUFFER]}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)
    quickly(monkeypatch)

    def put(name: str, data: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(data))
        return path

    return put


def items(write: Write, data: dict[str, Any]) -> list[WorkloadEntry]:
    return choose_tasks(read_offer(write("mine.json", data), None, v1=False), "all").items


def ranks(found: list[WorkloadEntry]) -> list[Any]:
    return [item.entry.params.get("ranks") for item in found]


def all_reduce(*worlds: int) -> dict[str, Any]:
    return {"all_reduce": [{**BUFFER, "world_size": list(worlds)}]}


def test_a_list_of_devices_is_as_many_ranks(write: Write) -> None:
    asked = items(write, {**all_reduce(2, 4, 8), **EXP})
    assert ranks(asked) == [2, 4, 8, None]
    kept, said = fit_ranks(asked, "0,1,2,3", "cuda", v1=False)
    assert ranks(kept) == [2, 4, None]
    assert said == ["all_reduce: left out with 8 ranks: --device names 4"]
    assert (most_ranks(asked), most_ranks(kept)) == (8, 4)


def test_all_devices_are_counted_by_those_who_see_them(write: Write) -> None:
    asked = items(write, all_reduce(2, 64))
    assert fit_ranks(asked, None, "cuda", v1=False) == (asked, [])
    assert fit_ranks(asked, "all", "cuda", v1=False) == (asked, [])


def test_a_processor_has_a_rank_a_core_unless_more_are_listed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    asked = items(write, all_reduce(2, 3, 4))
    assert ranks(fit_ranks(asked, None, "cpu", v1=False).items) == [2, 3]
    assert ranks(fit_ranks(asked, "0,1,2,3", "cpu", v1=False).items) == [2, 3, 4]


def test_axes_of_a_workload_of_ours_are_cut(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("""
schema: 1
name: mine
cases:
  - {op: all_reduce, params: {size: [8, 16], ranks: [2, 4, 8]}}
  - {op: p2p, params: {size: 8, ranks.src.dst: [[2, 0, 1], [4, 2, 3]]}}
""")
    asked = choose_tasks(read_offer(path, None, v1=True), "all").items
    kept, said = fit_ranks(asked, "0,1,2", "cuda", v1=True)
    assert [(item.entry.params, item.cases) for item in kept] == [
        ({"size": [8, 16], "ranks": [2]}, 2), ({"size": 8, "ranks.src.dst": [[2, 0, 1]]}, 1)
    ]  # fmt: skip
    assert [line.partition(":")[0] for line in said] == ["allreduce", "p2p"]


def test_a_processor_has_no_device_to_copy_to(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    path = write("mine.json", {"host2device": [BUFFER], **EXP})
    assert main(["--workload", str(path), "--backend", "numpy-cpu"]) == 0
    said = capfd.readouterr()
    assert "host2device: left out, because there is no device" in said.err
    assert len(said.out.splitlines()) == 1


def test_nothing_left_is_a_failure(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    path = write("mine.json", all_reduce(8))
    assert main(["--workload", str(path), "--backend", "torch-cpu", "--device", "0,1"]) == 1
    assert "left out with 8 ranks" in capfd.readouterr().err


@pytest.mark.parametrize("generation", ["--backend", "--hardware_type"])
def test_two_processes_on_a_processor(write: Write, generation: str, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path = write("mine.json", {"all_gather": [{**BUFFER, "world_size": 2}], **EXP})
    assert main(["--workload", str(path), generation, "CPU", "--device", "0,1", "--threads", "1"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    (talked,) = [line for line in lines if line.startswith(("all_gather", "allgather"))]
    assert "GB/s, bus " in talked
    if generation == "--backend":
        (report,) = Path("reports/CPU").glob("*/all_gather/torch/all_gather-torch.jsonl")
        targets = json.loads(report.read_text())["targets"]
        assert (targets["algo_size(B)"], targets["bus_size(B)"]) == (4 * 8 * 4, 4 * 8 * 2)
        assert len(targets["latency_list(us)"]) == 2
        assert targets["latency(us)"] >= max(targets["latency_list(us)"])
    else:
        assert talked.startswith("allgather float32 [[1, 32]] group 2: ")
        found = json.loads(Path("reports/CPU/allgather/result-float32-group2.json").read_text())
        (only,) = found["Performance"]
        assert (only["Group"], only["device_list"], only["Verified"]) == (2, [0, 1], "full")
