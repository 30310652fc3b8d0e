"""Operators x backends, from the registry."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.api import coverage as module
from opmark.api.coverage import matrix
from opmark.plugin.registry import DRILL, backends, catalogue, implementations
from opmark.schema import EFFORTS, Case, Phase, Record, Run, Settings, Task, Verification
from opmark.schema.coverage import Matrix
from opmark.store.memory import MemoryStore

SETTINGS = Settings(1, "quick", EFFORTS["quick"])


def record(op: str, backend: str, phase: Phase = "forward", **fields: Any) -> Record:
    fields = {"status": "ok", "verification": Verification("full"), **fields}
    return Record(Task(Case.of(op, {}, phase), backend, "x", SETTINGS), **fields)


def empty() -> Matrix:
    """A store without runs."""
    return matrix(MemoryStore())


def test_every_operator_of_the_catalogue_stands_once_but_for_those_that_fail_on_purpose() -> None:
    found = empty()
    assert [one.op for one in found.operators] == [op.name for op in catalogue().values() if op.category != DRILL]
    assert found.runs == 0
    for one in found.operators:
        for name, info in backends().items():
            labels = [way.label for way in implementations(catalogue()[one.op], info)]
            assert one.backends.get(name, []) == (labels if info.computes else [])


def test_a_backend_that_computes_nothing_is_no_column() -> None:
    found = empty()
    assert {"torch-cpu", "numpy-cpu"} <= set(found.backends)
    assert not {"null", "null-device"} & set(found.backends)
    assert found.backends["torch-compile-cpu"] == "torch-compile"


def test_the_reference_frameworks_have_everything() -> None:
    """Every operator has a torch implementation."""
    found = empty()
    assert len(found.forward("torch-cpu")) == len(found.operators)
    assert found.backward("numpy-cpu") == frozenset()
    assert found.backward("torch-cpu") == {one.op for one in found.operators if one.differentiable}


def test_what_an_engine_is_known_not_to_take_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = dataclasses.replace(backends()["torch-cpu"], lacks={"exp": "not here"})
    monkeypatch.setattr(module, "backends", lambda: {"torch-cpu": engine})
    found = empty()
    assert "exp" not in found.forward("torch-cpu")
    assert next(one for one in found.operators if one.op == "exp").lacks == {"torch-cpu": "not here"}


def test_verified_is_what_some_run_found_right() -> None:
    runs = [
        [record("exp", "torch-cpu"), record("exp", "torch-cpu", "backward"), record("sin", "openvino-cpu/throughput")],
        [
            record("cos", "torch-cpu", status="wrong"),
            record("tan", "torch-cpu", verification=Verification("none")),
            record("tanh", "torch-cpu", status="error", verification=None),
            record("exp", "torch-cpu@guest", verification=Verification("scaled")),
            record("torch.add", "torch-cpu"),
        ],
    ]
    store = MemoryStore()
    for name, records in enumerate(runs):
        store.begin(Run(str(name), "2030", "plan", len(records)))
        for i, one in enumerate(records):
            settings = replace(SETTINGS, process=i)  # one record per task
            store.append(str(name), replace(one, task=replace(one.task, settings=settings)))
    found = matrix(store)
    assert found.runs == 2
    told = {one.op: one.verified for one in found.operators if one.verified}
    assert told == {"exp": {"torch-cpu": ["forward", "backward"]}, "sin": {"openvino-cpu": ["forward"]}}
    assert found.verified("torch-cpu", "forward") == {"exp"}


def test_no_framework_is_imported_for_it() -> None:
    heavy = "{'torch', 'jax', 'onnx', 'onnxruntime', 'openvino', 'tvm', 'tensorflow', 'mxnet', 'triton'}"
    measure = "from opmark.api.coverage import coverage; coverage(by='backend', db=':memory:')"
    script = f"import sys; {measure}; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""
