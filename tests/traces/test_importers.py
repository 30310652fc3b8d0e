"""Traces as workloads: found by their content, read once, in folders of ranks as well."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.trace_files import FLIPPED, MATRIX, PRODUCT, call, written

from opmark.errors import UserError
from opmark.runner.workload_source import read_source
from opmark.traces.reading import trace_format


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognition has tests of its own; these do without the process that imports torch."""
    monkeypatch.setattr("opmark.traces.workload.find_spec", lambda name: None)
    monkeypatch.setattr("opmark.models.calls.find_spec", lambda name: None)


def test_execution_traces_are_workloads_compressed_ones_too(tmp_path: Path) -> None:
    path = written(tmp_path, PRODUCT, PRODUCT | {"id": 11})
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        found = read_source(file)
        assert found.foreign == "execution-trace"
        (entry,) = found.workload.cases
        assert (entry.op, entry.count) == ("torch.ops.aten.mm.default", 2)
        assert entry.source == f"{file.name}#10 aten::mm"
        assert len(found.cases) == 1


def test_a_folder_of_ranks_is_one_workload_and_times_are_no_calls_of_their_own(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, PRODUCT, name=f"step.rank-{rank}.json")
        events = [call("aten::mm", 5, 7 + rank, MATRIX, FLIPPED, Record_function_id=10)]
        (tmp_path / f"step.rank-{rank}.kineto.json").write_text(json.dumps({"traceEvents": events}))
    found = read_source(tmp_path)
    assert [entry.duration for entry in found.workload.cases] == pytest.approx([7e-6, 8e-6])
    assert found.problems == ()
    with pytest.raises(UserError, match="no case") as error:
        read_source(tmp_path / "step.rank-0.kineto.json")
    assert "step.rank-0.json" in (error.value.hint or "")


def test_broken_traces_are_refused_as_what_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, PRODUCT)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(UserError, match="complete items of `nodes`"):
        read_source(path)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"schema": "1.1.1", "nodes": [', "execution-trace"),
        ('{"finish_ts": 1, "nodes": [{"ctrl_deps": 1', "execution-trace"),
        ('{"nodes": [{"op": "mm"}]}', ""),
        ('{"schemaVersion": 1, "deviceProperties": [', "chrome-trace"),
        ('{"traceEvents": [', "chrome-trace"),
        ('[{"name": "a", "ph": "X"}]', "chrome-trace"),
        ('[{"op": "mm"}]', ""),
        ("schema: 1\nname: x\nnodes: []", ""),
        ("", ""),
    ],
)
def test_formats_are_known_by_their_first_bytes(tmp_path: Path, text: str, format: str) -> None:
    assert trace_format(tmp_path / "x.json", text.encode()) == format
    assert trace_format(tmp_path / "x.json.gz", gzip.compress(text.encode())[:-4]) == format


def test_the_trace_that_opmark_writes_is_a_workload(tmp_path: Path) -> None:
    """`--profile trace` records shapes, and a range around the calls of a case."""
    events: list[dict[str, Any]] = [call("aten::mm", 10, 5, MATRIX, FLIPPED)]
    outer = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "case",
        "pid": 1,
        "tid": 7,
        "ts": 1,
        "dur": 50,
        "args": {"range": "r"},
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [outer, *events], "traceName": "run.json"}))
    with pytest.raises(UserError, match="torch, which knows it, is not installed"):
        read_source(path)
