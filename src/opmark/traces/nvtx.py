"""Reads NVTX ranges from the SQLite file that `nsys export --type sqlite` writes.

torch.autograd.profiler.emit_nvtx(record_shapes=True) makes a range of every operator: `aten::mm, seq = 3, op_id = 12,
sizes = [[2, 4], [4, 2]]`. It has the sizes of tensors, but neither element types nor values of scalars.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from opmark.errors import InvalidFile
from opmark.models.index_bounds import value_bounds
from opmark.traces.chrome import DeviceLaunch, LaunchedWork, finish_trace
from opmark.traces.trace import OpaqueValue, ProgramTrace, TensorRef, TraceNode, Value

SQLITE = b"SQLite format 3\x00"
_RANGES = """
SELECT COALESCE(NVTX_EVENTS.text, StringIds.value), NVTX_EVENTS.start, NVTX_EVENTS."end", NVTX_EVENTS.globalTid
FROM NVTX_EVENTS LEFT JOIN StringIds ON StringIds.id = NVTX_EVENTS.textId
WHERE NVTX_EVENTS."end" IS NOT NULL
"""
_LAUNCHES = "SELECT correlationId, globalTid, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"
_WORK = 'SELECT correlationId, globalPid, "end" - start, streamId FROM {}'
_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_PROCESS = 0x1000000
"""A global thread id is that of the process times this number, and the thread's own."""
_NAMED = re.compile(
    r"(?P<name>.+?)(?:, seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?"
)
_FLOAT, _WHOLE = "float32", "int64"


def has_ranges(path: Path, head: bytes) -> bool:
    """Return whether a file is an export of nsys with NVTX ranges."""
    if not head.startswith(SQLITE):
        return False
    try:
        with _opened(path) as export:
            return "NVTX_EVENTS" in _tables(export)
    except sqlite3.Error:
        return False


def read_nvtx(path: Path) -> ProgramTrace:
    """Read the ranges of an export as a trace: those with the name of an operator are operators."""
    trace = ProgramTrace(str(path), "NVTX ranges of nsys", [])
    try:
        with _opened(path) as export:
            tables = _tables(export)
            if "NVTX_EVENTS" not in tables:
                raise InvalidFile(f"{path}: has no NVTX ranges", "record with `nsys profile --trace cuda,nvtx`")
            trace.nodes += _nodes(export)
            processes = {node.thread // _PROCESS for node in trace.nodes}
            launches, launched = _device_work(export, tables, processes)
    except sqlite3.Error as error:
        raise InvalidFile(
            f"{path}: cannot be read as an export of nsys: {error}", "write it with `nsys export`"
        ) from None
    finish_trace(trace, launched, launches)
    if not any(node.inputs for node in trace.nodes if node.kind == "operator"):
        raise InvalidFile(
            f"{path}: no range names an operator with its sizes",
            "run the program below torch.autograd.profiler.emit_nvtx(record_shapes=True)",
        )
    trace.notes.append(
        f"NVTX ranges have no element types: tensors are taken for {_FLOAT}, indices for {_WHOLE}; scalars have their "
        "defaults"
    )
    return trace


def _opened(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True))


def _tables(export: sqlite3.Connection) -> set[str]:
    return {name for (name,) in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _nodes(export: sqlite3.Connection) -> Iterator[TraceNode]:
    threads: dict[int, int] = {}
    for text, start, end, thread in export.execute(_RANGES):
        name, inputs = parse_range(text or "")
        seconds = (end - start) * 1e-9
        number = threads.setdefault(thread, thread)
        yield TraceNode(0, name, "label", "", None, inputs, thread=number, start=start * 1e-9, duration=seconds)


def parse_range(text: str) -> tuple[str, list[Value]]:
    """Return the name of a range, and the arguments of an operator as far as they are known."""
    found = _NAMED.fullmatch(text)
    if found is None or not found["sizes"]:
        return (found["name"] if found else text), []
    try:
        sizes = json.loads(found["sizes"])
    except json.JSONDecodeError:
        return found["name"], []
    inputs = [_argument(size) for size in sizes]
    bounds = value_bounds(found["name"], inputs, lambda one: one.shape if isinstance(one, TensorRef) else None)
    for place, bound in bounds.items():
        if len(place) == 1 and not bound.floats:
            inputs[place[0]] = TensorRef(inputs[place[0]].shape, _WHOLE)
    return found["name"], inputs


def _argument(size: Any) -> Value:
    if not isinstance(size, list) or not size:
        return OpaqueValue("Scalar")  # or a tensor without axes: nothing tells
    if all(type(one) is int and one >= 0 for one in size):
        return TensorRef(tuple(size), _FLOAT)
    return [_argument(one) for one in size]


def _device_work(
    export: sqlite3.Connection, tables: set[str], processes: set[int]
) -> tuple[dict[int, DeviceLaunch], list[LaunchedWork]]:
    """Return the calls that launched something by their numbers, and what was launched, of the processes that have
    ranges. Numbers are counted anew in every process."""
    if "CUPTI_ACTIVITY_KIND_RUNTIME" not in tables:
        return {}, []
    launches = {
        _number(correlation, thread): DeviceLaunch(thread, start * 1e-9)
        for correlation, thread, start in export.execute(_LAUNCHES)
    }
    launched = [
        LaunchedWork(None, _number(correlation, process), spent * 1e-9, stream)
        for table in _TABLES
        if table in tables
        for correlation, process, spent, stream in export.execute(_WORK.format(table))
        if process // _PROCESS in processes
    ]
    return launches, launched


def _number(correlation: int, thread: int) -> int:
    return (thread // _PROCESS << 40) + correlation
