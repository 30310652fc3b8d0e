"""The process that times schedules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from opmark.schema.schedule import DescribedProgram, ScheduleQuestion
from opmark.traces import schedule_child


def test_operators_are_timed_outside_of_the_context_that_places_new_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    depths: list[int] = []

    class Watched(schedule_child.ScheduleRunner):
        def timed(self, *inputs: Any) -> list[float]:
            depths.append(torch._C._len_torch_function_stack())  # type: ignore[attr-defined]
            return super().timed(*inputs)

    monkeypatch.setattr(schedule_child, "ScheduleRunner", Watched)
    question = ScheduleQuestion(
        "profile", name="model:two-towers", params={"size": "small", "batch": 1, "dtype": "float32"},
        backend="torch-cpu", threads=1,
    )  # fmt: skip
    before = torch.get_num_threads()
    try:
        schedule_child.answer_question(msgspec.json.encode(question))
    finally:
        torch.set_num_threads(before)
    assert depths
    assert not any(depths)


def test_the_work_of_operators_is_found_by_one_run() -> None:
    question = ScheduleQuestion(
        "describe", name="model:two-towers", params={"size": "small", "batch": 4, "dtype": "float32"},
        backend="torch-cpu", threads=1,
    )  # fmt: skip
    before = torch.get_num_threads()
    try:
        found = schedule_child.answer_question(msgspec.json.encode(question))
    finally:
        torch.set_num_threads(before)
    assert isinstance(found, DescribedProgram)
    assert len(found.calls) == len(found.graph.operators)
    for name, calls in zip(found.graph.operators, found.calls, strict=True):
        if name == "aten::expand_as":
            assert not calls
            continue
        (call,) = calls
        if name == "aten::linear":
            sizes = call.sizes
            assert call.entry is not None
            assert call.entry.op == sizes.operator == "linear"
            assert sizes.flops == 2 * sizes.m * sizes.n * sizes.k
            assert sizes.written == 4 * sizes.m * sizes.n
            assert sizes.nbytes == 4 * (sizes.m * sizes.n + sizes.m * sizes.k + sizes.n * sizes.k + sizes.n)


def test_handing_over_between_cores_is_a_wake_up_and_no_copy() -> None:
    before = torch.get_num_threads()
    found = schedule_child.time_transfers(["cpu:1 (1)", "cpu:1 (2)"])
    assert [(one.source, one.target) for one in found] == [("cpu:1 (1)", "cpu:1 (2)"), ("cpu:1 (2)", "cpu:1 (1)")]
    assert all(one.seconds > 0 and one.bandwidth is None for one in found)
    assert torch.get_num_threads() == before
