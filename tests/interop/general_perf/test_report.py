"""The figures of a report: what each of ByteMLPerf's keys means here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from opmark.interop.general_perf.report import TaskResults, join_differences, make_report, performance
from opmark.interop.general_perf.resolution import BackendChoice, ResolvedTask, TaskFolders, read_workload, resolve_task
from opmark.schema import Case, Measurement, Numerics, Record, Settings, Task, Verification
from opmark.schema.load import Load, LoadFacts
from opmark.schema.record import Compilation, GraphCoverage
from opmark.schema.task import EFFORTS


def task(**changes: Any) -> ResolvedTask:
    workload, _ = read_workload("widedeep-tf-fp32", TaskFolders())
    return resolve_task("widedeep-tf-fp32", replace(workload, batch_sizes=(1, 2), **changes), TaskFolders())


def record(size: int, latencies: list[float], status: str = "ok", clients: int = 1, **more: Any) -> Record:
    load = Load(clients, len(latencies) // clients)
    settings = Settings(threads=1, effort="quick", sampling=EFFORTS["quick"], load=load)
    case = Case.of("model:wide-and-deep", {"batch": size}, "forward", sources=(f"widedeep-tf-fp32#{size}",))
    due, ends = [], [0.0] * clients
    for i, latency in enumerate(latencies):
        due.append(ends[i % clients])
        ends[i % clients] += latency
    facts = LoadFacts(load, max(ends), float(clients), tuple(due))
    measured = Measurement("request_latency", "warm", "clock", latencies, 1, 0.0, 2, 0.1, "count", load=facts)
    return Record(
        Task(case, "torch-cpu", "torch", settings), status, measurements=(measured,) * (status == "ok"), **more
    )  # type: ignore[arg-type]


def report(records: list[Record], **changes: Any) -> dict[str, Any]:
    return make_report(
        TaskResults(task(**changes), "CPU", BackendChoice("torch-cpu", "torch", "said"), "2026-01-01", records)
    )


def numerics(found: Any, expected: Any) -> Numerics:
    error = np.abs(found - expected)
    relative = error / np.abs(expected)
    return Numerics(
        found.size, found.size, 0, 0, 0, 0, max_abs=float(error.max()), mean_abs=float(error.mean()),
        max_rel=float(relative.max()), mean_rel=float(relative.mean()), rmse=float(np.sqrt((error**2).mean())),
        rms=float(np.sqrt((expected**2).mean())),
    )  # fmt: skip


def test_a_percentile_is_a_percentile_and_not_the_largest_sample() -> None:
    latencies = [0.010 + 0.00001 * (i * 619 % 1000) for i in range(1000)]
    (line,) = performance(4, [record(4, latencies)])
    assert line["P99 Latency"] == pytest.approx(1000 * sorted(latencies)[989])
    assert line["AVG Latency"] == pytest.approx(1000 * sum(latencies) / 1000, rel=1e-4)
    assert line["QPS"] == pytest.approx(4 * 1000 / sum(latencies), rel=1e-4)


def test_a_percentile_that_the_samples_cannot_support_is_null_with_a_reason() -> None:
    (line,) = performance(1, [record(1, [0.01 + 1e-5 * (i % 7) for i in range(100)])])
    assert line["P99 Latency"] is None
    assert "368" in line["P99 Latency Reason"]
    assert "--iterations" in line["P99 Latency Reason"]


def test_throughput_counts_all_clients_over_the_window() -> None:
    lines = performance(2, [record(2, [0.01] * 90), record(2, [0.01] * 90, clients=3)])
    assert [line["Clients"] for line in lines] == [1, 3]
    assert lines[1]["QPS"] == pytest.approx(3 * lines[0]["QPS"], rel=0.05)


def test_what_failed_has_a_line_with_the_reason() -> None:
    (line,) = performance(2, [record(2, [], "oom", reason="needed 80 GiB")])
    assert (line["BS"], line["QPS"], line["Status"], line["Reason"]) == (2, None, "oom", "needed 80 GiB")
    assert report([record(1, [0.01] * 50)])["Performance"][1]["Status"] == "not tried"


def test_differences_over_outputs_are_those_over_all_elements() -> None:
    generator = np.random.default_rng(0)
    pairs = [(generator.normal(size=n), generator.normal(size=n) + 3) for n in (50, 200)]
    found = join_differences([numerics(*pair) for pair in pairs])
    errors = np.abs(np.concatenate([a - b for a, b in pairs]))
    expected = np.abs(np.concatenate([b for _, b in pairs]))
    assert found["Mean Diff"] == pytest.approx(errors.mean())
    assert found["Std Diff"] == pytest.approx(errors.std())
    assert found["Max Diff"] == pytest.approx(errors.max())
    assert found["Max Rel-Diff"] == pytest.approx((errors / expected).max())
    assert found["Mean Rel-Diff"] == pytest.approx((errors / expected).mean())


def test_undefined_numbers_are_counted_and_fail() -> None:
    bad = Numerics(10, 8, 1, 1, 0, 0, max_abs=0.0, mean_abs=0.0, rmse=0.0, rms=1.0)
    check = Verification("full", numerics=(bad,), outputs=("logits",), bounds=(0.1,))
    found = report([record(1, [], "wrong", verification=check)])["Accuracy"]
    assert (found["NaN"], found["Inf"], found["Verdict"]) == (1, 1, "FAIL")
    assert found["Verdict by BS"] == {"1": "FAIL", "2": None}


def test_coverage_is_what_the_compiler_took() -> None:
    compilation = Compilation(1.5, coverage=GraphCoverage(40, 30, 0.9, {"Gather": 10}))
    found = report([record(1, [0.01] * 50, compilation=compilation)])["Graph Compile"]
    assert (found["Compile Duration"], found["Subgraph Coverage"], found["FLOP Coverage"]) == (1.5, 75.0, 90.0)
    assert found["Fallback"] == {"Gather": 10}
    eager = report([record(1, [0.01] * 50)])["Graph Compile"]
    assert eager["Subgraph Coverage"] is None
    assert "compiles nothing" in eager["Note"]


def test_sections_are_those_that_were_asked_for() -> None:
    found = report([], test_accuracy=False, test_numeric=False)
    assert "Accuracy" not in found
    assert "Performance" not in report([], compile_only=True)
    assert found["Notes"][0] == "said"
    assert (found["Model"], found["Backend"], found["Dataset"]) == ("WIDEDEEP-TF-FP32", "CPU", "OPEN_CRITEO_KAGGLE")
