"""The values that tensors are made from: in their domain, the same for a seed, cheap where they are many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.plugin import BLOCK, draw_values
from opmark.schema import TensorSpec
from opmark.schema.tensor import DTYPES

SHAPES = ((), (0, 3), (7,), (3, 4))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_of_every_type_has_its_shape_and_a_type_that_numpy_has(dtype: str, shape: tuple[int, ...]) -> None:
    found = draw_values(TensorSpec(shape, dtype, 0, 2), 0)
    assert isinstance(found, np.ndarray)
    assert found.shape == shape
    assert found.flags.c_contiguous
    assert found.flags.writeable
    own = {"float16": "float32", "bfloat16": "float32", "complex32": "complex64"}
    assert str(found.dtype) == ("float32" if dtype.startswith("float8") else own.get(dtype, dtype))


@given(st.sampled_from(["float64", "float32", "bfloat16"]), st.integers(-9, 8), st.integers(1, 9), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_floats_are_in_their_domain(dtype: str, low: int, width: int, seed: int) -> None:
    found = draw_values(TensorSpec((64,), dtype, low, low + width), seed)
    assert low <= found.min() < found.max() <= low + width


def test_whole_numbers_stay_below_the_end_and_reach_both_ends() -> None:
    found = draw_values(TensorSpec((4000,), "int16", -3, 40), 1)
    assert (found.min(), found.max()) == (-3, 39)


def test_a_seed_gives_the_same_again_and_another_seed_does_not() -> None:
    first, again, other = (draw_values(TensorSpec((32,), "float32"), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_a_large_one_repeats_a_block(dtype: str) -> None:
    found = draw_values(TensorSpec((2, BLOCK), dtype, 0, 2), 0)
    assert found.shape == (2, BLOCK)
    np.testing.assert_array_equal(found[0], found[1])
    assert len(np.unique(found[0, :100])) > 1


def test_what_makes_its_own_values_has_them() -> None:
    found = draw_values(TensorSpec((4,), "float16", make=lambda generator: generator.permutation(4)), 0)
    assert sorted(found.tolist()) == [0, 1, 2, 3]
