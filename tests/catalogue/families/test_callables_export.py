"""Functions and modules of torch as ONNX models, for backends that take models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.api.run import run
from opmark.catalogue.families import callables as module
from opmark.catalogue.families.callables import ExportedCall, operator_of
from opmark.errors import Unsupported
from opmark.schema import Entry, Workload

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def params(*args: Any, build: Any = None, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs, "build": build}


def computed(call: ExportedCall, arrays: dict[str, Any]) -> list[Any]:
    model = call.model({name: (array.shape, str(array.dtype)) for name, array in arrays.items()})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, arrays))


def names(given: dict[str, Any]) -> list[str]:
    found = operator_of("torch.add")
    assert found is not None
    return list(found.inputs(given))


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("torch.baddbmm", params("2x4x8 float32", "2x4x3 float32", "2x3x8 float32", beta=0.5),
         lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5)),
        ("torch.nn.functional.relu", params("4x8 float32"), torch.relu),
        ("torch.cat", params(["2x3 float32", "4x3 float32"], 0), lambda a, b: torch.cat([a, b], 0)),
        ("torch.nn.ReLU", params("4x8 float32", build={}), torch.relu),
    ],
)  # fmt: skip
def test_a_function_is_exported_with_its_arguments(name: str, given: dict[str, Any], expected: Any) -> None:
    generator = np.random.default_rng(0)
    specs = operator_of(name).inputs(given)  # type: ignore[union-attr]
    arrays = {key: generator.uniform(-1, 1, spec.shape).astype(np.float32) for key, spec in specs.items()}
    (found,) = computed(ExportedCall(name, given), arrays)
    np.testing.assert_allclose(found, expected(*map(torch.from_numpy, arrays.values())), rtol=1e-5, atol=1e-6)


def test_the_weights_of_a_module_are_in_the_model_and_its_mode_is_told() -> None:
    call = ExportedCall("torch.nn.Linear", params("8x64 float32", build={"args": [64, 16]}))
    x = np.random.default_rng(0).uniform(-1, 1, (8, 64)).astype(np.float32)
    (found,) = computed(call, dict.fromkeys(names(call.params), x))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, call.function(torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-5)
    assert call.described == "eval()"
    assert ExportedCall("torch.nn.Dropout", params("8 float32", build={"train": True})).described == "train()"


def test_what_torch_cannot_export_is_unsupported() -> None:
    call = ExportedCall("torch.linalg.eigh", params("4x4 float32"))
    with pytest.raises(Unsupported, match=r"torch cannot export `torch\.linalg\.eigh` to ONNX: "):
        call.model({"args.0": ((4, 4), "float32")})


def test_without_torch_nothing_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="this interpreter has no torch"):
        ExportedCall("torch.add", params("4 float32", "4 float32"))


def test_a_module_is_measured_on_onnxruntime(tmp_path: Any) -> None:
    entry = Entry("torch.nn.Linear", args=["8x64 float32"], build={"args": [64, 16]})
    result = run(workload=Workload(1, "x", [entry]), backend=["onnxruntime-cpu"], effort="quick", threads=1,
                 db=tmp_path / "store.db")  # fmt: skip
    (record,) = result.records
    assert (record.status, record.called) == ("unchecked", "eval()")
    assert record.compilation is not None
    assert record.compilation.operators == ("Gemm",)
