"""Descriptions of backends: what is known without importing a framework."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from opmark.frameworks.null.backend import NullBackend
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backends
from opmark.schema.tensor import DTYPES, STORED_AS

every_info = pytest.mark.parametrize("info", backends().values(), ids=lambda info: info.name)


def _info(**changes: Any) -> BackendInfo:
    fields = {"name": "x", "framework": "x", "device": "cpu", "summary": "", "dtypes": frozenset(), "loads": "m:C"}
    return BackendInfo(**{**fields, **changes})


def test_the_backends_that_were_promised_are_there() -> None:
    assert {"null", "null-device", "numpy-cpu", "torch-cpu", "torch-cuda", "torch-accelerator"} <= set(backends())


@every_info
def test_a_description_is_whole(info: BackendInfo) -> None:
    assert backends()[info.name] is info
    assert info.summary.strip()
    assert info.dtypes
    assert info.dtypes <= {*DTYPES, *STORED_AS}
    assert {"float32", "float64", "float16", "int64"} <= info.dtypes


def test_only_torch_has_bfloat16_and_gradients() -> None:
    by_framework = {info.framework: info for info in backends().values()}
    assert "bfloat16" in by_framework["torch"].dtypes
    assert "bfloat16" not in by_framework["numpy"].dtypes
    assert by_framework["torch"].differentiates
    assert not by_framework["numpy"].differentiates


def test_only_the_backends_without_hardware_compute_nothing() -> None:
    assert {name for name, info in backends().items() if not info.computes} == {"null", "null-device"}
    assert {name for name, info in backends().items() if info.device == "none"} == {"null", "null-device"}


def test_a_framework_that_is_not_installed_is_named_with_how_to_get_it() -> None:
    info = _info(requires="no_such_framework", install="pip install no-such-framework")
    assert info.why_missing() == "no_such_framework is not installed (pip install no-such-framework)"
    assert "no_such_framework" in (_info(requires="no_such_framework").why_missing() or "")


def test_a_part_of_a_framework_that_is_not_installed_is_named_too() -> None:
    assert "no_such_framework.runtime" in (_info(requires="no_such_framework.runtime").why_missing() or "")
    assert "json.no_such_part" in (_info(requires="json.no_such_part").why_missing() or "")


def test_a_framework_that_is_installed_is_not_missing() -> None:
    assert _info(requires="json").why_missing() is None
    assert _info(requires="xml.dom").why_missing() is None
    assert _info().why_missing() is None


def test_load_hands_over_the_description_and_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("invented_backend")
    module.Live = type("Live", (NullBackend,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "invented_backend", module)
    info = _info(loads="invented_backend:Live")
    live = info.load(3)
    assert (type(live).__name__, live.info, live.threads) == ("Live", info, 3)


def test_four_fields_are_enough() -> None:
    info = BackendInfo(name="x", framework="x", device="x", loads="m:C")
    assert info.dtypes == {"float32"}
    assert not info.differentiates


@pytest.mark.parametrize("name", ["numpy-cpu", "torch-cpu", "torch-cuda"])
def test_every_math_library_is_told_the_number_of_threads(name: str) -> None:
    filled = {variable: text.format(threads=3) for variable, text in backends()[name].variables.items()}
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} <= set(filled)
    assert set(filled.values()) == {"3"}


def test_no_framework_is_imported_to_describe_one() -> None:
    code = (
        "import json, sys\n"
        "from opmark.plugin.registry import backends\n"
        "missing = [info.why_missing() for info in backends().values()]\n"
        "print(json.dumps([len(missing), sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    count, modules = json.loads(done.stdout)
    assert count == len(backends())
    assert not {"torch", "numpy", "scipy", "jax", "tensorflow", "onnxruntime"} & set(modules)
