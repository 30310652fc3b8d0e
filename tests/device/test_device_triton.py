"""Kernels written in Triton, on a GPU: `python -m pytest tests/device`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.schema import Record
from opmark.schema.tensor import FLOATS, INTS

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

KERNELS = ("add", "softmax", "layer_norm", "rms_norm", "matmul")


def measure(tmp_path: Path, *ops: str, **options: Any) -> list[Record]:
    wanted = {"effort": "quick", "processes": 1, **options}
    return opmark.run(ops, backend="triton-cuda", db=tmp_path / "store.db", say=lambda _: None, **wanted).records


def _all_well(records: list[Record]) -> None:
    assert [(r.task.case.op, r.task.case.params, r.reason) for r in records if r.status != "ok"] == []
    assert {r.verification.after for r in records if r.verification} == {"same"}


@pytest.mark.parametrize("size", ["small", "typical", "large"])
def test_every_kernel_is_verified_at_every_size(size: str, tmp_path: Path) -> None:
    _all_well(measure(tmp_path, *KERNELS, size=size))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_kernel_takes_every_float(dtype: str, tmp_path: Path) -> None:
    _all_well(measure(tmp_path, *KERNELS, size="small", params={"dtype": dtype}))


@pytest.mark.parametrize("dtype", INTS)
def test_whole_numbers_are_added(dtype: str, tmp_path: Path) -> None:
    _all_well(measure(tmp_path, "add", size="small", params={"dtype": dtype}))


def test_rows_of_any_length_and_any_axis(tmp_path: Path) -> None:
    rows = [[3, 7], [5, 1000], [4, 33_000], [2, 100_000]]
    _all_well(measure(tmp_path, "softmax", "layer_norm", "rms_norm", params={"shape": rows}))
    _all_well(measure(tmp_path, "softmax", params={"shape": [[6, 130, 70]], "axis": [0, 1, -1]}))


def test_products_of_odd_shapes(tmp_path: Path) -> None:
    for m, n, k in ((1, 1, 1), (1, 300, 33), (130, 1, 64), (257, 129, 65)):
        _all_well(measure(tmp_path, "matmul", params={"M": m, "N": n, "K": k, "dtype": ["float16", "float32"]}))


@pytest.mark.parametrize("y", ["same", "row", "column", "scalar"])
def test_what_is_smaller_is_broadcast(y: str, tmp_path: Path) -> None:
    _all_well(measure(tmp_path, "add", params={"shape": [3, 130, 70], "y": y}))


def test_kernels_are_named_and_compiling_them_is_told_apart(tmp_path: Path) -> None:
    for record in measure(tmp_path, *KERNELS, size="small"):
        told = record.compilation
        assert told is not None
        assert told.kernels
        assert told.cached is not None
        assert told.cold > told.cached


def test_both_states_of_the_caches_can_be_had(tmp_path: Path) -> None:
    _all_well(measure(tmp_path, "softmax", "matmul", size="typical", cache=["warm", "cold"]))


def test_a_launch_without_a_kernel_is_not_measured() -> None:
    from opmark.errors import Unsupported
    from opmark.plugin.registry import backend

    live, x = backend("triton-cuda").load(1), torch.rand(8, device="cuda")
    with pytest.raises(Unsupported, match="no Triton kernel"):
        live.compile(lambda: x + 1, {"x": x})
