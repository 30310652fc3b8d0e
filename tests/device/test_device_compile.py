"""torch.compile on a GPU: `python -m pytest tests/device`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.schema import Record

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="torch.compile needs Triton on a GPU")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

OPERATORS = ("add", "softmax", "layer_norm", "matmul", "conv2d", "relu_", "transpose", "dropout", "cumsum", "embedding")


def measure(tmp_path: Path, *ops: str, backend: str = "torch-compile-cuda", **options: Any) -> list[Record]:
    wanted = {"size": "small", "effort": "quick", "processes": 1, **options}
    return opmark.run(ops, backend=backend, db=tmp_path / "store.db", say=lambda _: None, **wanted).records


def _all_well(records: list[Record]) -> None:
    assert [(r.task.case.op, r.reason) for r in records if r.status != "ok"] == []
    assert {r.verification.after for r in records if r.verification} == {"same"}


def test_operators_are_verified_and_their_compilation_is_told(tmp_path: Path) -> None:
    records = measure(tmp_path, *OPERATORS)
    _all_well(records)
    for record in records:
        told = record.compilation
        assert told is not None
        assert told.graphs == 1
        assert told.operators
        assert told.cached is not None
        assert told.cold > told.cached


def test_kernels_are_named(tmp_path: Path) -> None:
    (record,) = measure(tmp_path, "softmax")
    assert record.compilation is not None
    assert any(kernel.startswith("triton_") for kernel in record.compilation.kernels)


@pytest.mark.parametrize("phase", ["forward", "backward", "both"])
def test_max_autotune_is_verified_in_every_phase(phase: str, tmp_path: Path) -> None:
    """Its graphs of the device are recorded before anything is timed, and new data is computed anew."""
    _all_well(measure(tmp_path, "softmax", "matmul", backend="torch-compile-cuda/max-autotune", phase=phase))


def test_max_autotune_copies_no_inputs(tmp_path: Path) -> None:
    """A graph of the device has places of its own for inputs, unless it is told that these stay where they are."""
    big = {"shape": [4096, 4096]}
    plain, tuned = (
        measure(tmp_path, "add", size=(), params=big, backend=name, quantity=["device_time"], cache=["warm"])[0]
        for name in ("torch-compile-cuda", "torch-compile-cuda/max-autotune")
    )
    _all_well([plain, tuned])
    fastest = [min(r.measurement("device_time").samples) for r in (plain, tuned)]  # type: ignore[union-attr]
    assert fastest[1] < 1.5 * fastest[0]


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_both_states_of_the_caches_can_be_had(cache: str, tmp_path: Path) -> None:
    _all_well(measure(tmp_path, "softmax", cache=[cache], backend="torch-compile-cuda/max-autotune"))


def test_backward_passes_are_compiled(tmp_path: Path) -> None:
    records = measure(tmp_path, "softmax", "layer_norm", "gelu", phase="backward")
    _all_well(records)
    assert all(any("backward" in name for name in r.compilation.operators) for r in records if r.compilation)


def test_what_changes_its_input_is_verified(tmp_path: Path) -> None:
    _all_well(measure(tmp_path, "neg_", "relu_", backend="torch-compile-cuda/max-autotune"))
