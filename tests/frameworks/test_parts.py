"""Parts and sums of tensors, as verification takes them from large ones: the same on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.plugin import Backend
from opmark.plugin.registry import backend
from opmark.schema import TensorSpec

BACKENDS = {"numpy-cpu": "numpy", "torch-cpu": "torch", "jax-cpu": "jax"}


@pytest.fixture(scope="module", params=BACKENDS)
def live(request: pytest.FixtureRequest) -> Backend:
    pytest.importorskip(BACKENDS[request.param])
    return backend(request.param).load(1)


def _tensor(live: Backend, dtype: str = "float32") -> Any:
    if dtype not in live.info.dtypes:
        pytest.skip(f"{live.info.name} has no {dtype}")
    low, high = (0, 100) if dtype.startswith("int") else (-1.0, 1.0)
    return live.tensor(TensorSpec((6, 5, 7), dtype, low, high), 3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "int64", "int8"])
def test_a_part_is_what_the_whole_has_there(live: Backend, dtype: str) -> None:
    tensor = _tensor(live, dtype)
    whole, rows, columns = live.to_numpy(tensor), np.array([0, 2, 5]), np.array([6, 1])
    assert live.shape(tensor) == whole.shape
    np.testing.assert_array_equal(live.take(tensor, {0: rows, 2: columns}), whole[rows][:, :, columns])
    np.testing.assert_array_equal(live.take(tensor, {}), whole)


def test_a_part_is_a_copy(live: Backend) -> None:
    tensor = _tensor(live)
    live.take(tensor, {})[...] = 7
    assert not (live.to_numpy(tensor) == 7).any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_along_an_axis_are_those_of_float64(live: Backend, dtype: str, axis: int) -> None:
    tensor = _tensor(live, dtype)
    whole, weights = live.to_numpy(tensor), np.linspace(-1, 2, (6, 5, 7)[axis])
    expected = np.expand_dims(np.tensordot(whole, weights, (axis, 0)), axis)
    found = live.contract(tensor, axis, weights)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_a_part_is_kept(live: Backend, dtype: str) -> None:
    tensor = _tensor(live, dtype)
    before, rows, columns = live.to_numpy(tensor), np.array([0, 5]), np.array([3])
    live.keep_only(tensor, {0: rows, 2: columns})
    after = live.to_numpy(tensor)
    kept = np.zeros(after.shape, bool)
    kept[np.ix_(rows, np.arange(5), columns)] = True
    np.testing.assert_array_equal(after, np.where(kept, before, 0))
