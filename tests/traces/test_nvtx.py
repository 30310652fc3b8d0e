"""NVTX ranges of nsys, from a small SQLite file with its tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.runner.workload_source import read_source
from opmark.traces.reading import read_trace, trace_format
from opmark.traces.trace import OpaqueValue, TensorRef

THREAD = 5 * 0x1000000 + 9
OTHER = 6 * 0x1000000 + 9


def export(path: Path, *ranges: tuple[str, int, int], launches: bool = True) -> Path:
    with sqlite3.connect(path) as file:
        file.executescript(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);"
            'CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);'
        )
        for number, (text, start, end) in enumerate(ranges):
            by_id = number % 2  # a text is in the row, or in the table of texts
            file.execute("INSERT INTO StringIds VALUES (?, ?)", (number, text))
            row = (start, end, None if by_id else text, number if by_id else None, THREAD)
            file.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", row)
        if launches:
            file.executescript(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (correlationId INTEGER, globalTid INTEGER, start INTEGER);"
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL"
                ' (correlationId INTEGER, globalPid INTEGER, start INTEGER, "end" INTEGER, streamId INTEGER);'
            )
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, ?, 1500)", (THREAD,))
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, ?, 9000)", (OTHER,))
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, ?, 5000, 5700, 7)", (5 * 0x1000000,))
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, ?, 9000, 9900, 7)", (6 * 0x1000000,))
    return path


RANGES = (
    ("aten::linear, seq = 3, op_id = 11, sizes = [[2, 4], [8, 4], [8]]", 1000, 3000),
    ("aten::addmm, op_id = 12, sizes = [[8], [2, 4], [4, 8], [], []]", 1400, 2000),
    ("my own range", 500, 4000),
    ("aten::embedding, op_id = 13, sizes = [[10, 4], [6], [], [], []], input_op_ids = [(-1,0), (-1,0)]", 5000, 6000),
    ("aten::cat, op_id = 14, sizes = [[[2, 4], [3, 4]], []]", 7000, 7100),
)


def test_ranges_of_operators_are_calls_with_times(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path / "report.sqlite", *RANGES))
    linear, embedding, cat = trace.calls
    assert linear.inputs == [TensorRef((2, 4), "float32"), TensorRef((8, 4), "float32"), TensorRef((8,), "float32")]
    assert linear.duration == pytest.approx(2e-6)
    assert (linear.device_time, linear.stream) == (
        pytest.approx(0.7e-6),
        7,
    )  # the kernel of another process is not its own
    assert linear.parent == trace.nodes[0].id
    assert [one.dtype for one in embedding.inputs[:2]] == ["float32", "int64"]
    assert embedding.inputs[2] == OpaqueValue("Scalar")
    assert [one.shape for one in cat.inputs[0]] == [(2, 4), (3, 4)]
    assert "element types" in trace.notes[0]


def test_an_export_is_a_workload(tmp_path: Path) -> None:
    path = export(tmp_path / "report.sqlite", *RANGES)
    found = read_source(path)
    assert found.foreign == "nvtx"
    assert {entry.op for entry in found.workload.cases} == {"linear", "embedding", "torch.ops.aten.cat.default"}
    assert found.problems == ()


def test_other_databases_and_ranges_without_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no range names an operator") as error:
        read_trace(export(tmp_path / "plain.sqlite", ("aten::mm", 1, 2), launches=False))
    assert "emit_nvtx" in (error.value.hint or "")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE runs (id INTEGER)")
    assert trace_format(other, other.read_bytes()) == ""
    with pytest.raises(UserError, match="no NVTX ranges"):
        read_trace(other)
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\x00 and no more")
    with pytest.raises(UserError, match="cannot be read"):
        read_trace(broken)
