"""The package through opmark's command line: nothing of opmark was touched, and it is all there."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import HERE, Site

SOURCES = sorted((HERE / "src").rglob("*.py"))
ALLOWED = ("opmark.interfaces", "opmark.schema", "opmark.errors", "opmark_example_npu")


@pytest.fixture(scope="module")
def measured(site: Site) -> dict[str, dict[str, Any]]:
    """With kernels of the chip, and without: one and two results, changed in place, a view, drawn, of integers."""
    ops = ("softmax", "npu_scale_add_relu", "matmul", "topk", "relu_", "transpose", "dropout", "argmax")
    found = site.records(*ops, "--size", "small")
    return {record["op"]: record for record in found}


def test_the_backend_is_listed(site: Site) -> None:
    rows = {row["backend"]: row for row in map(json.loads, site.opmark("list", "backends", "--json").splitlines())}
    assert rows["npu-sim"]["here"] is True


def test_every_result_is_verified_and_computed_anew_after_timing(measured: dict[str, dict[str, Any]]) -> None:
    assert len(measured) == 8
    assert {(r["status"], r["reason"], r["verification"]["after"]) for r in measured.values()} == {("ok", "", "same")}
    assert {r["verification"]["checked"] for r in measured.values()} == {"full"}


def test_the_chips_own_clock_tells_its_kernels_by_name(measured: dict[str, dict[str, Any]]) -> None:
    names = {op: record["quantities"]["device_time"]["warm"]["kernels"][0]["name"] for op, record in measured.items()}
    assert names["softmax"] == "npu_softmax"
    assert names["npu_scale_add_relu"] == "npu_scale_add_relu"
    assert names["matmul"] == "numpy"
    quantities = measured["softmax"]["quantities"]
    assert {"device_time", "device_span", "latency", "host_time", "throughput"} <= quantities.keys()
    assert quantities["device_time"]["cold"]["timer"] == "npu-log"


def test_a_kernel_of_the_boards_own_goes_before_everything_else(measured: dict[str, dict[str, Any]]) -> None:
    taken = {op: record["implementation"] for op, record in measured.items()}
    assert (taken["softmax"], taken["npu_scale_add_relu"]) == ("npu_softmax", "npu_scale_add_relu")
    assert {taken[op] for op in taken if op not in ("softmax", "npu_scale_add_relu")} == {"numpy"}


def test_memory_is_what_the_allocator_of_the_chip_counts(measured: dict[str, dict[str, Any]]) -> None:
    record = measured["npu_scale_add_relu"]
    cost = record["cost"]
    assert record["memory"]["source"] == "npu allocator"
    assert record["memory"]["peak"] == cost["bytes_read"] + cost["bytes_written"]


def test_an_override_is_described_with_where_it_comes_from(site: Site) -> None:
    rows = {line.partition(" ")[0]: line.split() for line in site.opmark("describe", "softmax").splitlines() if line}
    assert rows["npu-sim"][1:3] == ["npu_softmax", "(opmark-example-npu)"]
    assert rows["numpy-cpu"][1] == "numpy", "and the others have what they had"


def test_the_hardware_file_gives_a_share_of_the_datasheet(site: Site, measured: dict[str, dict[str, Any]]) -> None:
    shown = map(json.loads, site.opmark("show", "--json", measured["softmax"]["run"]).splitlines())
    shares = {record["op"]: record["metrics"]["of_datasheet_peak"] for record in shown}
    assert shares["npu_scale_add_relu"]["share"] > 0
    assert shares["npu_scale_add_relu"]["bound"] == "memory"
    assert "SRAM" in site.opmark("describe", "Example NPU-1")


def test_what_the_chip_cannot_do_is_skipped_with_a_reason(site: Site) -> None:
    (record,) = site.records("softmax", "--size", "small", "-p", "axis=0")
    assert (record["status"], record["reason"]) == ("skipped", "npu_softmax works along the last axis")
    done = site.run("-m", "opmark", "run", "softmax", "--size", "small", "-p", "dtype=float64", "--backend", "npu-sim")
    assert "npu-sim has no float64" in done.stderr


def test_a_launch_that_fails_in_the_queue_becomes_a_record(site: Site, tmp_path: Path) -> None:
    drill = tmp_path / "drill.yaml"
    kinds = {"wrong": ("wrong", "output 0"), "error": ("error", "raised on purpose"), "oom": ("oom", "MemoryError"),
             "segfault": ("error", "SIGSEGV"), "none": ("ok", "")}  # fmt: skip
    drill.write_text(f"schema: 1\nname: drill\ncases: [{{op: fault, params: {{kind: [{', '.join(kinds)}], n: 16}}}}]\n")
    found = {record["params"]["kind"]: record for record in site.records("-w", str(drill))}
    assert {kind: found[kind]["status"] for kind in kinds} == {kind: status for kind, (status, _) in kinds.items()}
    assert all(says in found[kind]["reason"] for kind, (_, says) in kinds.items())


def test_what_does_not_fit_into_the_boards_memory_is_a_record(site: Site) -> None:
    (record,) = site.records("softmax", "-p", "shape=1024x1024", OPMARK_NPU_MEMORY="1000000")
    assert (record["status"], record["reason"]) == ("oom", "inputs and outputs need 8.00 MiB, 977 KiB are free")


def test_a_machine_without_the_board_says_so(site: Site) -> None:
    done = site.run("-m", "opmark", "run", "relu", "--size", "small", "--backend", "npu-sim", OPMARK_NPU_MEMORY="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "backend `npu-sim` cannot run here: no board answers (OPMARK_NPU_MEMORY is 0)" in done.stderr


def test_an_override_that_is_wrong_or_breaks_becomes_a_record(another: Site) -> None:
    another.install()
    code = """
        import numpy as np
        from opmark.interfaces import Function
        from opmark.schema import Implementation

        def too_much(x):
            return x + 1

        def remembers(x, kept={}):
            return kept.setdefault(id(x), np.exp(x)) + 0

        IMPLEMENTATIONS = {
            "abs": Implementation("npu-sim", lambda p, x: Function(too_much, (x,))),
            "exp": Implementation("npu-sim", lambda p, x: Function(remembers, (x,))),
            "relu": Implementation("npu-sim", lambda p, x: lambda: np.maximum(x, 0)),
        }
    """
    another.add("broken", "[opmark.implementations]\nbroken = broken\n", code)
    found = {record["op"]: record for record in another.records("abs", "exp", "relu", "sin", "--size", "small")}
    assert [found[op]["status"] for op in ("abs", "exp", "relu", "sin")] == ["wrong", "wrong", "error", "ok"]
    assert "output 0" in found["abs"]["reason"]
    assert "wrong after" in found["exp"]["reason"], "it remembers what it has seen once"
    assert "copy it to the host first" in found["relu"]["reason"], "it takes device memory for an array"
    assert "(broken)" in another.opmark("describe", "abs")


def test_it_runs_in_another_interpreter_that_has_never_heard_of_it(site: Site) -> None:
    (record,) = site.records("npu_scale_add_relu", "--size", "small", "--python", sys.executable)
    assert record["status"] == "ok"
    assert record["backend"] == f"npu-sim@{sys.executable}"


KNOWN = """
from opmark import registry
from opmark.hardware.datasheets import datasheets
print(list(registry.backends()), list(registry.catalogue()), registry.implementation_tables().keys())
print([chip.chip for chip in datasheets()])
"""


def test_removing_it_leaves_no_trace_but_the_records(another: Site) -> None:
    before = another.run("-c", KNOWN).stdout
    another.install()
    another.records("softmax", "--size", "small")
    assert another.run("-c", KNOWN).stdout != before
    another.pip("uninstall", "--yes", "--quiet", "opmark-example-npu")
    assert another.run("-c", KNOWN).stdout == before
    assert list(another.packages.glob("opmark_example_npu*")) == []
    assert "npu-sim/npu_softmax" in another.opmark("show")


LOADED = """
import sys
import opmark_example_npu, opmark_example_npu.implementations, opmark_example_npu.operators
print(sorted({"numpy", "opmark_example_npu.device", "opmark_example_npu.library"} & sys.modules.keys()))
"""


def test_nothing_is_imported_before_a_worker_starts(site: Site) -> None:
    assert site.run("-c", LOADED).stdout == "[]\n"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_of_opmark_only_the_sockets_are_imported(path: Path) -> None:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    used = [name for name in names if name.startswith("opmark")]
    assert [name for name in used if not name.startswith(ALLOWED)] == []
