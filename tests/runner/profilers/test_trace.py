"""Chrome traces: what ran in which range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.runner.profilers.trace import TRACE, Spans


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


def opened(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event("user_annotation", f"[param|torch.add|{number}]", ts, dur, range=f"opmark_{number}")


def read(tmp_path: Path, *events: dict[str, Any]) -> dict[str, list[tuple[str, Any]]]:
    (tmp_path / "x.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "M"}, *events]}))
    found = TRACE.read(tmp_path / "x", ["opmark_0", "opmark_1"])
    return {name: [(k.name, k.metrics["duration [us]"]) for k in kernels] for name, kernels in found.items()}


def test_on_a_cpu_the_outermost_calls_of_each_range(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        event("cpu_op", "aten::fill_", 1, 2),
        opened(0, 10, 10),
        event("cpu_op", "aten::linear", 11, 8),
        event("cpu_op", "aten::addmm", 12, 6),
        opened(1, 30, 10),
        event("cpu_op", "aten::add", 31, 2),
        event("cpu_op", "aten::mul", 34, 2),
    )
    assert found == {"opmark_0": [("aten::linear", 8)], "opmark_1": [("aten::add", 2), ("aten::mul", 2)]}


def test_on_a_device_what_was_launched_in_the_range_whenever_it_ran(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        opened(0, 10, 10),
        event("cpu_op", "aten::add", 11, 3),
        event("cuda_runtime", "cudaLaunchKernel", 12, 1, correlation=7),
        event("kernel", "work", 25, 4, correlation=7),
        event("cuda_driver", "cuLaunchKernel", 15, 1, correlation=8),
        event("gpu_memset", "Memset", 26, 1, correlation=8),
        event("cuda_runtime", "cudaLaunchKernel", 22, 1, correlation=9),
        event("kernel", "later", 31, 4, correlation=9),
    )
    assert found == {"opmark_0": [("work", 4), ("Memset", 1)]}


def test_a_range_on_the_device_is_no_second_range(tmp_path: Path) -> None:
    on_device = event("gpu_user_annotation", "[param|torch.add|0]", 24, 9, range="opmark_0")
    assert read(tmp_path, opened(0, 10, 10), on_device, event("cpu_op", "aten::add", 25, 1)) == {}


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"events": []}', "3"])
def test_what_is_no_trace_is_said(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"expected a Chrome trace in .*x\.json"):
        TRACE.read(tmp_path / "x", ["opmark_0"])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=8),
    st.integers(-3, 150),
)
def test_the_range_at_a_moment_is_the_one_that_a_search_finds(gaps: list[tuple[int, int]], moment: int) -> None:
    events, at = [], 0
    for number, (gap, length) in enumerate(gaps):
        events.append(opened(number, at + gap + 1, length))
        at += gap + 1 + length
    names = frozenset(f"opmark_{number}" for number in range(len(gaps)))
    inside = [e["args"]["range"] for e in events if e["ts"] <= moment <= e["ts"] + e["dur"]]
    assert Spans(events, names).at(moment) == (inside[-1] if inside else "")
