"""Whatever becomes of a trace on its way: it is read with named problems, or refused with a message."""

from __future__ import annotations

import copy
import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.trace_files import FLIPPED, MATRIX, PRODUCT, ROOT, THREAD, call, event, node

from opmark.errors import UserError
from opmark.models.calls import KnownCall
from opmark.traces import workload
from opmark.traces.chakra import write_chakra
from opmark.traces.reading import read_trace

EXECUTION = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [PRODUCT, node(9, "a label", 2), THREAD, ROOT]}
CHROME = {
    "schemaVersion": 1,
    "distributedInfo": {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
    "traceEvents": [
        event("ProfilerStep#1", 90, 500, "user_annotation"),
        call("aten::mm", 120, 30, MATRIX, FLIPPED, External_id=2),
        call("aten::cat", 160, 3, ("TensorList", [[2, 4], [3]], [[4, 1], [1]], ""), ("Scalar", [], [], "1")),
        event("cudaLaunchKernel", 125, 1, "cuda_runtime", correlation=12),
        event("gemm", 300, 7, "kernel", 20, correlation=12, stream=20, External_id=2),
        event("record_param_comms", 400, 1, Collective_name="allreduce", Group_size=2, dtype="Float"),
    ],
}
ODD = st.sampled_from(
    [None, -1, 0, 1 << 70, 1e308, "", "<None>", "Tensor(float)", "GenericList[", "aten::mm(", [], {}, [[]], [-1, -2],
     [1 << 40, 1 << 40], True, "[1,2", [[1, 2, 3, 4, 5, "cpu"]]]
)  # fmt: skip
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def containers(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for one in inside for found in containers(one))] if isinstance(value, dict | list) else []


def read(path: Path) -> None:
    with suppress(UserError):
        workload.workload_of_trace(read_trace(path))


@pytest.fixture(autouse=True)
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognition of calls is a process of its own, which these tests are not about."""
    monkeypatch.setattr(workload, "recognise_calls", lambda asked: [KnownCall(problem="not asked")] * len(asked))
    monkeypatch.setattr(workload, "find_overloads", lambda asked: [""] * len(asked))


@FEW
@given(data=st.data())
@pytest.mark.parametrize("whole", [EXECUTION, CHROME], ids=["execution trace", "Chrome trace"])
def test_values_of_any_kind_at_any_place(whole: Any, tmp_path: Path, data: st.DataObject) -> None:
    broken = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.sampled_from(containers(broken)))
        if not place:
            continue
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()):
            place[key] = copy.deepcopy(data.draw(ODD))
        else:
            del place[key]
    path = tmp_path / "step.json"
    path.write_text(json.dumps(broken))
    read(path)


@FEW
@given(data=st.data())
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_files_that_end_before_their_list_does(packed: bool, tmp_path: Path, data: st.DataObject) -> None:
    text = json.dumps(data.draw(st.sampled_from([EXECUTION, CHROME]))).encode()
    content = gzip.compress(text) if packed else text[: text.rindex(b"]") + 1]
    path = tmp_path / "step.json"
    path.write_bytes(content[: data.draw(st.integers(1, len(content) - 1))])
    with pytest.raises(UserError):
        read_trace(path)


@FEW
@given(data=st.data())
def test_bytes_of_a_chakra_trace_that_are_others(tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "source.json"
    source.write_text(json.dumps(EXECUTION))
    content = bytearray(write_chakra(read_trace(source)))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "step.et"
    path.write_bytes(content)
    read(path)
