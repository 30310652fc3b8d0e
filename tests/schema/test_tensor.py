"""Sizes of tensors and of what is moved."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import DTYPES, FLOATS, INTS, STORED_AS, is_float, sizeof, storage

NUMPY_KIND = {"f": "float", "i": "int", "u": "int", "b": "bool", "c": "complex"}


@given(st.lists(st.integers(0, 50), max_size=5), st.sampled_from(sorted(DTYPES)))
@settings(deadline=None)
def test_bytes_are_elements_times_the_size_of_one(shape, dtype):
    spec = TensorSpec(tuple(shape), dtype)
    assert spec.elements == prod(shape)
    assert spec.nbytes == spec.elements * sizeof(dtype)


def test_a_tensor_without_axes_has_one_element():
    assert TensorSpec((), "float64").nbytes == 8


@pytest.mark.parametrize("name", [name for name in DTYPES if hasattr(np, name) and name != "bool"])
def test_a_type_that_numpy_has_is_as_large_and_of_the_kind_it_says(name):
    assert sizeof(name) == np.dtype(name).itemsize
    assert DTYPES[name].kind == NUMPY_KIND[np.dtype(name).kind]


def test_types_that_numpy_lacks_are_as_large_as_their_names_say():
    assert [sizeof(name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "bool")] == [2, 1, 1, 1]


@pytest.mark.parametrize(("computed", "stored"), STORED_AS.items())
def test_what_is_computed_in_another_type_is_as_large_as_what_is_stored(computed, stored):
    assert computed not in DTYPES
    assert (storage(computed), sizeof(computed), is_float(computed)) == (stored, sizeof(stored), is_float(stored))
    assert [storage(name) for name in DTYPES] == list(DTYPES)


def test_floats_are_floats_and_integers_are_not():
    assert all(is_float(name) for name in FLOATS)
    assert not any(is_float(name) for name in (*INTS, "bool", "complex64"))


def test_bytes_moved_are_read_plus_written():
    assert Cost(flops=1, bytes_read=10, bytes_written=5).bytes_moved == 15


def test_bytes_of_several_tensors_add_up():
    assert nbytes([TensorSpec((2, 3), "float32"), TensorSpec((4,), "int64")]) == 24 + 32
    assert nbytes([]) == 0
