"""opmark list"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.registry import catalogue
from opmark.schema import Availability

Command = Callable[..., Any]

ISSUED = {
    "add", "exp", "gelu", "cast", "matmul", "batched_matmul", "softmax", "layer_norm", "rms_norm", "reduce_sum", "topk",
    "embedding", "conv2d", "scaled_dot_product_attention",
}  # fmt: skip


def test_every_operator_is_listed_with_its_phases(main: Command) -> None:
    rows = {row["operator"]: row for row in main("list", "ops", "--json").objects}
    assert rows.keys() == catalogue().keys()
    assert rows.keys() >= ISSUED
    assert rows["matmul"]["phases"] == ["forward", "backward"]
    assert rows["fault"]["phases"] == ["forward"]
    assert rows["matmul"]["summary"] == catalogue()["matmul"].summary


def test_the_table_of_operators_has_a_row_each(main: Command) -> None:
    lines = main("list", "ops").out.splitlines()
    assert lines[0].split() == ["operator", "category", "phases", "summary"]
    assert {line.split()[0] for line in lines[1:]} == set(catalogue())


def test_suites_are_listed_with_the_number_of_their_cases(main: Command) -> None:
    rows = {row["suite"]: row for row in main("list", "suites", "--json").objects}
    assert rows["faults"]["cases"] == 8
    assert rows["quick"]["cases"] > 20
    assert all(row["description"] for row in rows.values())


def test_a_backend_is_listed_with_whether_it_can_run_here_and_if_not_why(main: Command, monkeypatch: Any) -> None:
    answers = [Availability("a", "one", None), Availability("b", "two", "no GPU [at all]")]
    monkeypatch.setattr("opmark.runner.probe.probe", lambda: answers)
    assert main("list", "backends", "--json").objects == [
        {"backend": "a", "here": True, "reason": "", "summary": "one"},
        {"backend": "b", "here": False, "reason": "no GPU [at all]", "summary": "two"},
    ]
    lines = [" ".join(line.split()) for line in main("list", "backends").out.splitlines()]
    assert lines == ["backend here reason summary", "a yes one", "b no no GPU [at all] two"]
