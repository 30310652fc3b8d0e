"""Implementations of an operator on every backend, and those that were passed over."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.console import Console

from opmark.plugin import BackendInfo, Implementation, registry
from opmark.plugin.registry import backend, operator
from opmark.report.console.operators import implementations_table, operator_view, steps

NPU = dataclasses.replace(backend("numpy-cpu"), name="toy-npu", framework="toy", device="npu", also=("numpy",))
MINE = Implementation("toy-npu", lambda _: None, name="fast", source="toy-package")
THEIRS = Implementation("toy", lambda _: None, source="toy-package")


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> BackendInfo:
    """A backend that overrides one operator, has another by its framework, and takes NumPy's for the rest."""
    known, tables = {**registry.backends(), NPU.name: NPU}, dict(registry.implementation_tables())
    tables["softmax"] = (*tables.get("softmax", ()), MINE, THEIRS)
    tables["exp"] = (*tables.get("exp", ()), THEIRS)
    monkeypatch.setattr("opmark.report.console.operators.backends", lambda: known)
    monkeypatch.setattr("opmark.report.console.operators.backends", lambda: known)
    monkeypatch.setattr(registry, "implementation_tables", lambda frameworks=None: tables)
    return NPU


def line(op: str, name: str = "toy-npu") -> list[str]:
    out = io.StringIO()
    Console(file=out, width=300, color_system=None).print(implementations_table(operator(op)))
    (found,) = (line for line in out.getvalue().splitlines() if line.split()[:1] == [name])
    return re.split(r"\s{2,}", found.strip())


def test_what_was_made_for_the_backend_alone_comes_first_and_the_rest_is_passed_over(stranger: BackendInfo) -> None:
    order = "toy-npu, then toy, then numpy"
    assert line("softmax") == ["toy-npu", "fast (toy-package)", order, "toy (toy-package), numpy"]
    assert line("exp") == ["toy-npu", "toy (toy-package)", order, "numpy"]
    assert line("sin") == ["toy-npu", "numpy", order]


def test_the_order_is_also_data(stranger: BackendInfo) -> None:
    found = operator_view(operator("softmax"))
    order = found["override_order"]["toy-npu"]
    assert [(step["framework"], step["taken"]) for step in order] == [
        ("toy-npu", True), ("toy", False), ("numpy", False),
    ]  # fmt: skip
    assert order[0]["implementations"] == [{"label": "fast", "source": "toy-package", "path": ""}]
    assert found["implementations"]["toy-npu"] == ["fast"]


def test_exactly_one_framework_is_taken_where_there_is_any() -> None:
    for info in registry.backends().values():
        for name in ("softmax", "matmul", "adam_step"):
            if name not in registry.catalogue():
                continue
            found = steps(operator(name), info)
            assert sum(step.taken for step in found) == any(step.found for step in found)


def test_a_backend_without_an_implementation_says_none_and_one_that_computes_nothing_any() -> None:
    assert line("softmax", "null")[1] == "any"
    assert line("fault", "jax-cpu")[1] == "none"


def test_what_an_engine_does_not_take_is_none_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = dataclasses.replace(backend("torch-cpu"), lacks={"softmax": "not in this engine"})
    monkeypatch.setattr("opmark.report.console.operators.backends", lambda: {"torch-cpu": engine})
    assert line("softmax", "torch-cpu")[1] == "none: not in this engine"
    assert line("exp", "torch-cpu")[1] == "torch"
