"""Runs as opperf writes them: names, units, percentiles, failures; and read again as the same cases."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.api.run import run
from opmark.catalogue.workload_file import suite
from opmark.interop.opperf.exporter import JSON, MARKDOWN, csv_text, document, in_kilobytes, lines, names_of
from opmark.plugin import Results
from opmark.runner.workload_source import read_source
from opmark.schema import Case, Caution, Measurement, Record, Run, Sampling, Settings, Task
from opmark.schema.record import Memory

SAMPLING = Sampling(0, 1, 1, 1e-4, 1, 0.1, 0.2, 0.1)
RUN = Run(id="r1", started="2026-01-01T00:00:00+00:00", plan="p", tasks=1)


def record(
    op: str, params: dict[str, Any], phase: Any = "forward", samples: tuple[float, ...] = (), *, source: str = "",
    backend: str = "null", **more: Any,
) -> Record:  # fmt: skip
    case = Case.of(op, params, phase, sources=(source,) if source else ())
    task = Task(case, backend, "null", Settings(1, "quick", SAMPLING))
    found = (Measurement("latency", "warm", "host", list(samples), 1, 0.0, 1, 0.0, "count"),) if samples else ()
    return Record(task, more.pop("status", "ok"), measurements=found, **more)


def results(*records: Record) -> Results:
    return Results(RUN, records, {"e": {"torch": "2.0", "machine": "mine", "governor": None}}, {})


ADD = {"shape": [4, 8], "y": "same", "dtype": "float32"}


def test_forward_and_backward_are_one_result_in_milliseconds_and_bytes() -> None:
    forward = record("add", ADD, "forward", (1e-3, 3e-3), source="f.json#broadcast_add[0]", memory=Memory(100, 0, "x"))
    backward = record("add", ADD, "backward", (4e-3,), source="f.json#broadcast_add[0]", memory=Memory(300, 0, "x"))
    assert document(lines(results(forward, backward))) == {
        "broadcast_add": [
            {
                "inputs": {"lhs": [4, 8], "rhs": [4, 8]},
                "max_storage_mem_alloc_cpu/0": 300,
                "avg_time_forward_broadcast_add": 2.0,
                "p50_time_forward_broadcast_add": 2.0,
                "avg_time_backward_broadcast_add": 4.0,
                "p50_time_backward_broadcast_add": 4.0,
            }
        ]
    }


def test_a_forward_pass_belongs_to_every_choice_of_gradients() -> None:
    forward, one, both = (
        record("add", ADD, phase, (seconds,), source="f.json#add[0]")
        for phase, seconds in (("forward", 1e-3), ("backward", 2e-3), ("backward", 3e-3))
    )
    case = Case.of("add", ADD, "backward", wrt=("x",), sources=("f.json#add[0]",))
    one = replace(one, task=replace(one.task, case=case))
    assert [
        (found.get("wrt"), found["avg_time_forward_add"], found["avg_time_backward_add"])
        for found in document(lines(results(forward, one, both)))["add"]
    ] == [(["x"], 1.0, 2.0), (None, 1.0, 3.0)]
    (alone,) = document(lines(results(forward, one)))["add"]
    assert (alone["avg_time_forward_add"], alone["avg_time_backward_add"]) == (1.0, 2.0)


def test_both_in_one_step_has_percentiles() -> None:
    samples = tuple(i * 1e-3 for i in range(1, 102))
    found = document(lines(results(record("exp", {"shape": [4], "dtype": "float32"}, "both", samples))))
    assert found == {
        "exp": [
            {
                "inputs": {"data": [4]},
                "avg_time_exp": 51.0,
                "p50_time_exp": 51.0,
                "p90_time_exp": 91.0,
                "p99_time_exp": 100.0,
            }
        ]
    }


def test_failures_are_included_with_their_reason() -> None:
    good = record("exp", {"shape": [4], "dtype": "float32"}, "forward", (1e-3,))
    bad = record("exp", {"shape": [4], "dtype": "float32"}, "backward", status="oom", reason="too | large\nby far")
    (found,) = document(lines(results(good, bad)))["exp"]
    assert found["failed"] == [{"phase": "backward", "status": "oom", "reason": "too | large\nby far"}]
    assert found["avg_time_forward_exp"] == 1.0
    text = MARKDOWN.files(results(good, bad))["opperf.md"]
    assert "| exp | {'data': (4,)} | backward | oom | too \\| large by far |" in text
    assert csv_text(lines(results(good, bad)), "native").splitlines()[1].endswith("backward: oom: too | large")


def test_reasons_to_doubt_a_number_stand_beside_it() -> None:
    found = record("exp", {"shape": [4], "dtype": "float32"}, "forward", (1e-3, 2e-3, 9e-3))
    doubtful = replace(found.measurements[0], cautions=(Caution("loaded", "a neighbour is busy"),))
    (result,) = document(lines(results(replace(found, measurements=(doubtful,)))))["exp"]
    assert (result["avg_time_forward_exp"], result["p50_time_forward_exp"]) == (4.0, 2.0)
    assert result["cautions"] == ["loaded: a neighbour is busy"]


def test_tables_mark_doubtful_numbers_with_reasons() -> None:
    found = record("exp", {"shape": [4], "dtype": "float32"}, "forward", (1e-3,))
    doubtful = replace(found.measurements[0], cautions=(Caution("loaded", "a | busy"), Caution("noisy", "twice")))
    other = record("log", {"shape": [4], "dtype": "float32"}, "forward", (1e-3,))
    both = results(replace(found, measurements=(doubtful,)), other)
    text = MARKDOWN.files(both)["opperf.md"].splitlines()
    assert "| exp ! | {'data': (4,)} | --- | 1.0 | --- |" in text
    assert "| log | {'data': (4,)} | --- | 1.0 | --- |" in text
    assert text[text.index("# To Be Doubted (!)") :] == [
        "# To Be Doubted (!)",
        "| Operator | Inputs | Reason |",
        "| :--- | :--- | :--- |",
        "| exp | {'data': (4,)} | loaded: a \\| busy |",
        "| exp | {'data': (4,)} | noisy: twice |",
    ]
    first, second = csv.DictReader(io.StringIO(csv_text(lines(both), "native")))
    assert (first["Operator"], first["To Be Doubted"]) == ("exp", "loaded: a | busy; noisy: twice")
    assert second["To Be Doubted"] == ""


@pytest.mark.parametrize(
    ("memory", "cell"),
    [
        (Memory(0, 0, "kernel", 4096), "< 4096"),
        (Memory(4096, 0, "kernel", 4096), "4096"),
        (Memory(0, 0, "allocator", 1), "< 1"),
        (None, "---"),
    ],
)
def test_memory_below_the_resolution_is_not_zero(memory: Memory | None, cell: str) -> None:
    small = results(record("exp", {"shape": [4], "dtype": "float32"}, "forward", (1e-3,), memory=memory))
    assert f"| exp | {{'data': (4,)}} | {cell} | 1.0 | --- |" in MARKDOWN.files(small)["opperf.md"]
    (row,) = csv.DictReader(io.StringIO(csv_text(lines(small), "native")))
    assert row["Max Mem Usage (Storage) (Bytes)"] == cell
    (result,) = document(lines(small))["exp"]
    assert result.get("memory_resolution") == (memory.resolution if memory and not memory.peak else None)


@pytest.mark.parametrize(
    ("memory", "cell"),
    [(Memory(0, 0, "kernel", 4096), "< 4.096"), (Memory(8192, 0, "kernel", 4096), "8.192"), (None, "---")],
)
def test_memory_in_units_of_1000_bytes(memory: Memory | None, cell: str) -> None:
    found = lines(results(record("exp", {"shape": [4], "dtype": "float32"}, "forward", (1e-3,), memory=memory)))
    (row,) = csv.DictReader(io.StringIO(csv_text([in_kilobytes(line) for line in found], "native")))
    assert row["Max Mem Usage (Storage) (Bytes)"] == cell


def test_the_tables_have_opperfs_columns() -> None:
    native = results(record("exp", {"shape": [4], "dtype": "float32"}, "forward", (1e-3,)))
    text = MARKDOWN.files(native)["opperf.md"].splitlines()
    assert text[:2] == ["# Runtime Features", "0. TORCH : 2.0"]
    assert text[2:] == [
        "# Benchmark Results",
        "| Operator | Inputs | Max Mem Usage (Storage) (Bytes) | Avg Forward Time (ms) | Avg. Backward Time (ms) |",
        "| :---: | :---: | :---: | :---: | :--- |",
        "| exp | {'data': (4,)} | --- | 1.0 | --- |",
    ]
    python = results(record("exp", {"shape": [4], "dtype": "float32"}, "both", (1e-3,)))
    assert (
        "| Operator | Avg Time (ms) | P50 Time (ms) | P90 Time (ms) | P99 Time (ms) | Inputs |"
        in (MARKDOWN.files(python)["opperf.md"])
    )
    rows = list(csv.DictReader(io.StringIO(csv_text(lines(python), "python"))))
    assert rows[0]["P99 Time (ms)"] == "1.0"


def test_cases_unknown_to_opperf_keep_names_of_opmark() -> None:
    product = record("matmul", {"M": 2, "N": 3, "K": 4, "dtype": "float32"}, "forward", (1e-3,))
    call = record("torch.add", {"args": ["4 float32", 2], "kwargs": {}, "build": None}, "forward", (2e-3,))
    found = document(lines(results(product, call)))
    assert found["matmul"][0]["inputs"] == {"M": 2, "N": 3, "K": 4, "dtype": "float32"}
    assert found["torch.add"][0]["inputs"] == {"args": ["4 float32", 2]}
    assert found["torch.add"][0]["avg_time_forward_torch.add"] == 2.0


def test_several_backends_are_told_apart() -> None:
    params = {"shape": [4], "dtype": "float32"}
    other = record("exp", params, "forward", (2e-3,), backend="torch-cuda", memory=Memory(7, 0, "x"))
    two = results(record("exp", params, "forward", (1e-3,)), other)
    first, second = document(lines(two))["exp"]
    assert (first["backend"], second["backend"]) == ("null, 1 threads", "torch-cuda, 1 threads")
    assert second["max_storage_mem_alloc_gpu/0"] == 7


def test_a_case_of_the_suite_stands_under_each_of_opperfs_names() -> None:
    source = "opperf broadcast_add, broadcast_plus, elemwise_add; DL Operator Benchmarks Add"
    assert names_of("add", [source]) == ["broadcast_add", "broadcast_plus", "elemwise_add"]
    assert names_of("unravel_index", ["opperf ravel_multi_index; itself not covered there"]) == ["unravel_index"]
    assert names_of("iadd", ["DL Operator Benchmarks IAdd"]) == ["iadd"]


def test_exported_cases_are_imported_as_the_same_cases(tmp_path: Path) -> None:
    """Every operator of the suite is exported and imported, through the null backend."""
    measured = run(
        workload=suite("opperf"), backend="null", warmup=0, samples=1, processes=1, effort="quick", db=":memory:"
    )
    file = tmp_path / "results.json"
    file.write_text(JSON.files(measured.results())["opperf.json"])
    assert json.loads(file.read_text()).keys() >= {"broadcast_add", "Pooling", "sgd_update", "linalg_gemm"}
    taken = read_source(file)
    assert taken.problems == ()
    assert {case.id for case in taken.distinct()} == {r.task.case.id for r in measured.records}
