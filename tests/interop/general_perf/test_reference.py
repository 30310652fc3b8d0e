"""The reference results that ship: which machine, which model, and that they are shown beside one's own."""

from __future__ import annotations

from opmark.interop.general_perf.pictures import load_charts
from opmark.interop.general_perf.reference import read_reference, stored_reference
from opmark.interop.general_perf.resolution import TaskFolders, read_workload, resolve_task
from opmark.schema.record import COUNTED


def test_the_store_that_ships_has_results_that_count_and_no_paths() -> None:
    runs = stored_reference()
    assert len(runs) >= 5
    for run, records, environments in runs:
        assert run.command == ""
        assert {record.status for record in records} <= COUNTED
        assert not any("interpreter" in environment.facts for environment in environments)


def test_a_task_finds_the_same_model_in_the_same_precision() -> None:
    def find(name: str) -> list[dict[str, object]]:
        workload, _ = read_workload(name, TaskFolders())
        return read_reference(resolve_task(name, workload, TaskFolders()))

    found = find("resnet50-torch-fp32")
    assert {one["Backend"] for one in found} == {"torch-cpu", "torch-cuda"}
    for one in found:
        assert one["Machine"]
        assert one["opmark"]
        assert str(one["Framework"]).startswith("torch ")
    assert find("resnet50-mhlo-fp32") == found
    assert {one["Backend"] for one in find("resnet50-torch-fp16")} == {"torch-cuda"}
    assert find("resnet50-torch-bf16") == []


def test_curves_have_the_reference_beside_the_own_line() -> None:
    own = {"BS": 1, "QPS": 10.0, "QPS Interval": [9.0, 11.0], "AVG Latency": 100.0, "AVG Latency Interval": None,
           "Clients": 3}  # fmt: skip
    failed = {"BS": 2, "QPS": None, "AVG Latency": None, "Clients": 3}
    machine = {"Machine": "chip", "Backend": "torch-cpu", "opmark": "1", "Performance": [{**own, "Clients": 1}]}
    throughput, latency = load_charts("task", [own, failed], [machine])
    assert [series.name for series in throughput.series] == [
        "3 clients", "reference: chip, torch-cpu, opmark 1, 1 client",
    ]  # fmt: skip
    assert [series.stated for series in throughput.series] == [False, True]
    assert [(mark.x, mark.y, mark.low, mark.unsure) for mark in throughput.series[0].marks] == [(1, 10.0, 9.0, False)]
    assert [(mark.y, mark.unsure) for mark in latency.series[0].marks] == [(0.1, True)]
    assert load_charts("task", [failed], []) == []
