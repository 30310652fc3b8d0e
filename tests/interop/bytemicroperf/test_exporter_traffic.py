"""Records of communication in ByteMicroPerf's reports: its metrics, its formulas, and every rank's figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from opmark.catalogue.expansion import expand
from opmark.interop.bytemicroperf.importer import BYTEMICROPERF
from opmark.interop.bytemicroperf.report_v1 import REPORT as V1
from opmark.interop.bytemicroperf.report_v3 import REPORT as V3
from opmark.interop.bytemicroperf.report_v3 import V3Report
from opmark.interop.bytemicroperf.workload_exporter import BYTEMICROPERF as WORKLOAD
from opmark.plugin import Results
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Measurement, Record, Run, Settings, Task, Verification, Workload
from opmark.schema.machine import Interconnect, Level, Peaks

RUN = Run("20300101-000000-abcd", "2030-01-01T00:00:00.000+00:00", "plan", 1, version="9.9")
GPU = "NVIDIA A800-SXM4-80GB"
FACTS = {"cpu": "a host", "gpu": GPU, "device": "cuda"}
LINKS = [Interconnect("NVLink 3", 200e9), Interconnect("PCIe Gen4 x16", 32e9)]
CHIP = Peaks(GPU, "datasheet", {}, [Level("memory", 2039e9)], interconnect=LINKS)

EXAMPLE = {"size": 131072 * 1024 * 4, "dtype": "float32", "ranks": 8}
"""The one of ByteMicroPerf's README: 6281.726 us on the fastest of eight A800."""
TIMES = [6299.236, 6314.211, 6312.343, 6311.595, 6304.193, 6301.111, 6305.494, 6281.726]


def measured(by_rank: list[list[float]], quantity: str = "throughput") -> Measurement:
    """Seconds of each rank; a sample is the slowest's."""
    slowest = [max(times) for times in zip(*by_rank, strict=True)]
    ranks = tuple(tuple(times) for times in by_rank) if len(by_rank) > 1 else ()
    return Measurement(quantity, "warm", "virtual", slowest, 1, 0.0, 10, 0.0, "count", by_rank=ranks)


def make(op: str, params: dict[str, Any], *taken: Measurement, process: int = 0) -> Record:
    case = Case.of(op, operator(op).complete(params), "forward")
    task = Task(case, "torch-cuda", "torch", Settings(1, "quick", EFFORTS["quick"], process=process))
    if not taken:
        return Record(task, "timeout", "took too long")
    cost = operator(op).cost(case.params)
    return Record(task, "ok", measurements=taken, cost=cost, verification=Verification("full"), environment="here")


def readme() -> Record:
    return make("all_reduce", EXAMPLE, measured([[microseconds * 1e-6] for microseconds in TIMES]))


def results(*records: Record) -> Results:
    return Results(RUN, records, {"here": FACTS}, {"here": CHIP})


def lines(*records: Record) -> list[dict[str, Any]]:
    found = V3.files(results(*records))
    return [json.loads(line) for path, text in found.items() if path.endswith(".jsonl") for line in text.splitlines()]


def test_notes_on_communication_are_about_the_generation_of_the_report() -> None:
    """Of 2024, a broadcast is one broadcast there too."""
    sent = make("broadcast", {"size": 4096, "dtype": "float32", "ranks": 2}, measured([[1e-3], [1e-3]]))
    (first,) = V1.files(results(sent)).values()
    assert not any("broadcast" in note for note in json.loads(first)["Notes"])
    third = json.loads(V3.files(results(sent))[f"GPU/{GPU}/info.json"])
    assert any("broadcasts from every rank" in note for note in third["opmark"]["notes"])


def test_an_empty_utilisation_of_a_link_says_why() -> None:
    known = Results(RUN, [readme()], {"here": FACTS}, {})
    (text,) = V1.files(known).values()
    assert any("a link of `NVIDIA A800-SXM4-80GB` is not known" in note for note in json.loads(text)["Notes"])


def entry(record: Record) -> dict[str, Any]:
    (text,) = V1.files(results(record)).values()
    (only,) = json.loads(text)["Performance"]
    return dict(only)


# 2026


def test_the_example_of_the_readme_but_for_the_slowest_rank() -> None:
    (line,) = lines(readme())
    assert line["op_name"] == "all_reduce"
    assert line["arguments"] == {
        "arg_type": "default", "world_size": 8, "dtype": "float32", "batch_size": 131072, "dim_size": 1024
    }  # fmt: skip
    targets = line["targets"]
    assert (targets["algo_size(B)"], targets["bus_size(B)"]) == (536870912, 939524096)
    assert targets["latency(us)"] == 6314.211
    assert (targets["algo_bw(GB/s)"], targets["bus_bw(GB/s)"]) == (85.026, 148.795)
    assert targets["latency_list(us)"] == TIMES
    assert targets["algo_bw_list(GB/s)"][:2] == [85.228, 85.026]
    assert targets["bus_bw_list(GB/s)"][-1] == pytest.approx(149.565, abs=2e-3)
    assert targets["algo_bw_sum(GB/s)"] == pytest.approx(681.339, abs=2e-3)
    assert targets["bus_bw_sum(GB/s)"] == pytest.approx(1192.343, abs=2e-3)
    assert "mem_bw(GB/s)" not in targets


def test_the_bus_is_held_against_the_link() -> None:
    (line,) = lines(readme())
    assert line["opmark"]["bus_bw(%)"] == pytest.approx(100 * 148.795 / 200, abs=1e-2)
    (host,) = lines(make("host2device", {"size": 16_000_000, "dtype": "int8"}, measured([[1e-3]])))
    assert host["opmark"]["bus_bw(%)"] == 50.0


def test_what_one_rank_measured_alone_has_lists_of_one() -> None:
    (line,) = lines(make("host2device", {"size": 4096}, measured([[1e-6]], "latency")))
    assert (line["targets"]["latency_list(us)"], line["targets"]["algo_bw_sum(GB/s)"]) == ([1.0], 4.096)


def test_several_processes_are_one_line() -> None:
    first = make("all_gather", EXAMPLE, measured([[1e-3], [3e-3]]))
    second = make("all_gather", EXAMPLE, measured([[2e-3], [5e-3]]), process=1)
    (line,) = lines(first, second)
    assert line["targets"]["latency(us)"] == 4000.0
    assert line["targets"]["latency_list(us)"] == [1500.0, 4000.0]


def test_of_a_pair_only_the_two_count() -> None:
    params = {"size": 1 << 20, "ranks": 4, "src": 3, "dst": 1}
    record = make("p2p", params, measured([[1e-9], [2e-3], [1e-9], [1e-3]]))
    (line,) = lines(record)
    assert line["targets"]["latency_list(us)"] == [1000.0, 2000.0]
    assert line["targets"]["algo_bw(GB/s)"] == pytest.approx(0.524, abs=1e-3)
    assert entry(record)["device_list"] == [3, 1]


def test_calls_in_a_row_are_preferred_as_they_time_them() -> None:
    (line,) = lines(make("all_reduce", EXAMPLE, measured([[3e-3], [3e-3]], "latency"), measured([[1e-3], [1e-3]])))
    assert (line["opmark"]["quantity"], line["targets"]["latency(us)"]) == ("throughput", 1000.0)


def test_the_table_has_the_same_columns_also_where_all_failed() -> None:
    for record in (readme(), make("all_reduce", EXAMPLE)):
        (text,) = [text for path, text in V3.files(results(record)).items() if path.endswith(".csv")]
        (row,) = csv.DictReader(text.splitlines())
        assert {"algo_bw(GB/s)", "bus_bw_list(GB/s)", "bus_bw(%)"} <= row.keys()
        assert not {"mem_bw(GB/s)", "calc_flops"} & row.keys()
    assert row["error"] == "timeout: took too long"


def notes(report: V3Report, *records: Record) -> tuple[str, list[int]]:
    (text,) = [text for path, text in report.files(results(*records)).items() if path.endswith("info.json")]
    info = json.loads(text)
    return " ".join(info["opmark"]["notes"]), info["runtime"]["device_ids"]


def test_that_it_is_the_slowest_rank_is_said() -> None:
    said, devices = notes(V3, readme())
    assert "slowest rank" in said
    assert devices == list(range(8))
    alone = make("exp", {"shape": [4, 8]}, measured([[1e-6]], "latency"))
    assert "slowest rank" not in notes(V3, alone)[0]
    assert notes(V3Report(ranks=4), alone)[1] == [0, 1, 2, 3]


# 2024


def test_the_keys_of_2024() -> None:
    found = entry(readme())
    assert list(found)[:8] == [
        "Dtype", "Tensor Shapes", "Memory Size(MB)", "Group", "Kernel bandwidth(GB/s)", "Bus bandwidth(GB/s)",
        "Bandwidth Utilization(%)", "Avg latency(us)",
    ]  # fmt: skip
    assert (found["Tensor Shapes"], found["Memory Size(MB)"], found["Group"]) == ([[131072, 1024]], 512.0, 8)
    assert (found["Kernel bandwidth(GB/s)"], found["Bus bandwidth(GB/s)"]) == (85.03, 148.8)
    assert found["device_list"] == list(range(8))
    assert len(found["latency_list"]) == len(found["kernel_bw_list"]) == len(found["bus_bw_list"]) == 8
    assert "QPS" not in found


@pytest.mark.parametrize(
    ("op", "name"),
    [("all_reduce", "allreduce"), ("all_gather", "allgather"), ("all_to_all", "alltoall"), ("broadcast", "broadcast"),
     ("reduce_scatter", "reducescatter")],
)  # fmt: skip
def test_a_file_for_each_number_of_ranks(op: str, name: str) -> None:
    two = make(op, {**EXAMPLE, "ranks": 2}, measured([[1e-3], [1e-3]]))
    found = V1.files(results(two, make(op, EXAMPLE)))
    assert set(found) == {f"GPU/{name}/result-float32-group2.json", f"GPU/{name}/result-float32-group8.json"}
    assert "slowest rank" in " ".join(json.loads(next(iter(found.values())))["Notes"])


def test_transfers_of_several_devices_add_up() -> None:
    found = entry(make("device2host", {"size": 4_000_000, "ranks": 2}, measured([[1e-3], [2e-3]])))
    assert (found["Kernel bandwidth(GB/s)"], found["Bus bandwidth(GB/s)"]) == (6.0, 2.0)


def test_parameters_that_they_have_not_are_shown() -> None:
    assert "Parameters" not in entry(readme())
    pair = {"size": 1 << 20, "ranks": 4, "src": 3, "dst": 1}
    assert entry(make("p2p", pair, measured([[1e-3]] * 4)))["Parameters"].items() >= pair.items()
    found = entry(make("all_reduce", {**EXAMPLE, "group": 2}, measured([[1e-3]] * 8)))
    assert (found["Group"], found["Parameters"]["ranks"]) == (2, 8)


# Workloads


def test_cases_go_back_as_a_workload() -> None:
    cases = [Case.of(op, operator(op).complete({"size": size, "ranks": ranks}), "forward")
             for op in ("all_reduce", "device2host") for ranks in (2, 4) for size in (4096, 8192)]  # fmt: skip
    grouped = Case.of("all_reduce", operator("all_reduce").complete({"size": 8, "ranks": 4, "group": 2}), "forward")
    files, unsaid = WORKLOAD.files("mine", [*cases, grouped])
    data = json.loads(files["mine.json"])
    objects = {"arg_type": "default", "dtype": "float32", "dim_size": 1024, "world_size": [2, 4], "batch_size": [1, 2]}
    assert data == {"all_reduce": [objects], "device2host": [objects]}
    assert len(unsaid) == 1
    again = BYTEMICROPERF.read(Path("mine.json"), data, 0)
    assert [case.id for case in expand(Workload(1, "x", list(again.entries)), operator)] == [case.id for case in cases]
