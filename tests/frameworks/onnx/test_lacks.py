"""What engines that share a table are known not to take."""

from __future__ import annotations

import dataclasses

import pytest

from opmark.api.run import plan
from opmark.errors import UserError
from opmark.frameworks.onnx.implementations._graph import node
from opmark.plugin import registry
from opmark.plugin.registry import backend, candidates, operator

ENGINES = [name for name, info in registry.backends().items() if info.lacks]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_rows_of_the_table_can_be_lacking_and_each_has_a_reason(engine: str) -> None:
    info = backend(engine)
    for name, reason in info.lacks.items():
        assert [one for one in candidates(operator(name)) if one.framework == info.framework], name
        assert reason, name


@pytest.mark.parametrize("engine", ["openvino-cpu", "openvino-cpu/throughput", "tvm-cpu"])
def test_a_plan_says_it_without_starting_anything(engine: str) -> None:
    pytest.importorskip(str(backend(engine).requires))
    reason = backend(engine).lacks["det"]
    with pytest.raises(UserError, match=reason):
        plan(["det"], backend=engine, size="small")


def test_a_row_made_for_the_engine_alone_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    own = dataclasses.replace(node("Exp", "x"), framework="openvino-cpu")
    monkeypatch.setitem(registry.implementation_tables(backend("openvino-cpu").frameworks), "det", (own,))
    whole = plan(["det"], backend="openvino-cpu", size="small", processes=1)
    assert [task.case.op for task in whole.tasks] == ["det"]
