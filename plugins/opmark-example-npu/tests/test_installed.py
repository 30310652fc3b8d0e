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
ALLOWED = ("opmark.plugin", "opmark.schema", "opmark.errors", "opmark_example_npu")


@pytest.fixture(scope="module")
def measured(site: Site) -> dict[str, dict[str, Any]]:
    found = site.records("softmax", "matmul", "relu", "--size", "small")
    return {record["op"]: record for record in found}


def test_the_backend_is_listed(site: Site) -> None:
    rows = {row["backend"]: row for row in map(json.loads, site.opmark("list", "backends", "--json").splitlines())}
    assert rows["npu-sim"]["here"] is True


def test_every_result_is_verified_and_computed_anew_after_timing(measured: dict[str, dict[str, Any]]) -> None:
    assert len(measured) == 3
    assert {(r["status"], r["reason"], r["verification"]["after"]) for r in measured.values()} == {("ok", "", "same")}
    assert {r["verification"]["checked"] for r in measured.values()} == {"full"}


def test_the_chips_own_clock_tells_its_kernels_by_name(measured: dict[str, dict[str, Any]]) -> None:
    names = {op: record["quantities"]["device_time"]["warm"]["kernels"][0]["name"] for op, record in measured.items()}
    assert names == {"softmax": "npu_softmax", "matmul": "npu_matmul", "relu": "npu_relu"}
    quantities = measured["softmax"]["quantities"]
    assert {"device_time", "device_span", "latency", "host_time", "throughput"} <= quantities.keys()
    assert quantities["device_time"]["cold"]["timer"] == "npu-log"


def test_a_kernel_is_taken_by_the_name_of_the_board_or_of_its_runtime(measured: dict[str, dict[str, Any]]) -> None:
    taken = {op: record["implementation"] for op, record in measured.items()}
    assert taken == {"softmax": "npu_softmax", "matmul": "npu", "relu": "npu"}


def test_what_the_chip_has_no_kernel_for_is_skipped(site: Site) -> None:
    done = site.run("-m", "opmark", "run", "conv2d", "--size", "small", "--backend", "npu-sim")
    assert "`conv2d` has no implementation for npu" in done.stderr


def test_what_the_clock_lacks_is_left_out_with_a_reason(site: Site) -> None:
    (record,) = site.records("relu", "--size", "small", "--quantity", "event_time,device_time", "--cache", "warm")
    assert record["quantities"].keys() == {"device_time"}
    assert "event_time warm by events: npu-log has no events" in record["notes"]


def test_memory_is_what_the_allocator_of_the_chip_counts(measured: dict[str, dict[str, Any]]) -> None:
    record = measured["relu"]
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
    assert shares["relu"]["share"] > 0
    assert shares["relu"]["bound"] == "memory"
    assert "SRAM" in site.opmark("describe", "Example NPU-1")


def test_what_the_chip_cannot_do_is_skipped_with_a_reason(site: Site) -> None:
    (record,) = site.records("softmax", "--size", "small", "-p", "axis=0")
    assert (record["status"], record["reason"]) == ("skipped", "npu_softmax works along the last axis")
    done = site.run("-m", "opmark", "run", "softmax", "--size", "small", "-p", "dtype=float64", "--backend", "npu-sim")
    assert "npu-sim has no float64" in done.stderr


def test_what_does_not_fit_into_the_boards_memory_is_a_record(site: Site) -> None:
    (record,) = site.records("softmax", "-p", "shape=1024x1024", OPMARK_NPU_MEMORY="1000000")
    assert record["status"] == "oom"
    assert "4194304 bytes asked for, 999999 of 1000000 are free" in record["reason"]


def test_a_machine_without_the_board_says_so(site: Site) -> None:
    done = site.run("-m", "opmark", "run", "relu", "--size", "small", "--backend", "npu-sim", OPMARK_NPU_MEMORY="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "backend `npu-sim` cannot run here: no board answers (OPMARK_NPU_MEMORY is 0)" in done.stderr


def test_an_override_that_is_wrong_or_breaks_becomes_a_record(another: Site) -> None:
    another.install()
    code = """
        import numpy as np
        from opmark.plugin import Function, Implementation

        def too_much(x):
            return x + 1

        def remembers(x, kept={}):
            return kept.setdefault(id(x), np.exp(x)) + 0

        def fails(x):
            raise ValueError("raised in the queue")

        def fills(x):
            raise MemoryError

        IMPLEMENTATIONS = {
            "abs": Implementation("npu-sim", lambda p, x: Function(too_much, (x,))),
            "exp": Implementation("npu-sim", lambda p, x: Function(remembers, (x,))),
            "sin": Implementation("npu-sim", lambda p, x: Function(fails, (x,))),
            "cos": Implementation("npu-sim", lambda p, x: Function(fills, (x,))),
            "negative": Implementation("npu-sim", lambda p, x: Function(np.negative, (np.asarray(x),))),
        }
    """
    another.add("broken", "[opmark.implementations]\nbroken = broken\n", code)
    ops = ("abs", "exp", "sin", "cos", "negative", "relu")
    found = {record["op"]: record for record in another.records(*ops, "--size", "small")}
    assert [found[op]["status"] for op in ops] == ["wrong", "wrong", "error", "oom", "error", "ok"]
    assert "output 0" in found["abs"]["reason"]
    assert "wrong after" in found["exp"]["reason"], "it remembers what it has seen once"
    assert found["sin"]["reason"] == "ValueError: raised in the queue"
    assert "copy it to the host first" in found["negative"]["reason"], "it takes device memory for an array"
    assert "(broken)" in another.opmark("describe", "abs")


def test_it_runs_in_another_interpreter_that_has_never_heard_of_it(site: Site) -> None:
    (record,) = site.records("relu", "--size", "small", "--python", sys.executable)
    assert record["status"] == "ok"
    assert record["backend"] == f"npu-sim@{sys.executable}"


KNOWN = """
from opmark.plugin import registry
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
import opmark_example_npu, opmark_example_npu.implementations
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
