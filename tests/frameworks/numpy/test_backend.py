"""NumPy on the CPU."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import Unsupported
from opmark.plugin import BLOCK, CallCost, draw_values
from opmark.plugin.backend import cast
from opmark.plugin.registry import backend
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import DTYPES, INTS, is_float

INFO = backend("numpy-cpu")
LIVE = INFO.load(threads=1)


def _spec(dtype: str, shape: tuple[int, ...] = (200, 3)) -> TensorSpec:
    return TensorSpec(shape, dtype, *((-1.0, 1.0) if is_float(dtype) else (0, 2)))


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_a_tensor_of_every_claimed_element_type_can_be_made(dtype: str, numpy_cpu: Any) -> None:
    array = numpy_cpu.tensor(_spec(dtype), 0)
    assert array.dtype == np.dtype(dtype)
    assert array.dtype.itemsize == DTYPES[dtype].size
    assert array.shape == (200, 3)
    assert len(np.unique(array)) > 1


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8"])
def test_a_seed_gives_the_same_data_again_and_another_seed_other_data(dtype: str, numpy_cpu: Any) -> None:
    first, again, other = (numpy_cpu.tensor(_spec(dtype), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_global_generator_is_left_alone(numpy_cpu: Any) -> None:
    np.random.seed(0)
    expected = np.random.random()
    np.random.seed(0)
    numpy_cpu.tensor(_spec("float32"), 5)
    assert np.random.random() == expected


def test_a_large_array_repeats_one_random_block(numpy_cpu: Any) -> None:
    """Drawing a billion random numbers takes longer than what is measured with them."""
    flat = numpy_cpu.tensor(TensorSpec((3, BLOCK - 1), "uint8", 3, 200), 7).reshape(-1)
    block = numpy_cpu.tensor(TensorSpec((BLOCK,), "uint8", 3, 200), 7)
    parts = np.split(flat, [BLOCK, 2 * BLOCK])
    assert [len(part) for part in parts] == [BLOCK, BLOCK, BLOCK - 3]
    assert all(np.array_equal(part, block[: len(part)]) for part in parts)
    assert (block.min(), block.max()) == (3, 199)


def test_up_to_a_block_every_element_is_drawn(numpy_cpu: Any) -> None:
    values = numpy_cpu.tensor(TensorSpec((BLOCK,), "int64", 0, 1 << 60), 0)
    assert np.diff(np.sort(values)).all()


def test_a_large_array_keeps_no_more_memory_than_it_has_elements(numpy_cpu: Any) -> None:
    tracemalloc.start()
    try:
        array = numpy_cpu.tensor(TensorSpec((2 * BLOCK,), "uint8", 0, 2), 0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert array.nbytes <= kept < 1.01 * array.nbytes


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_an_array_of_blocks_is_like_any_other(dtype: str) -> None:
    first, again, other = (cast(draw_values(_spec(dtype), seed, block=97), dtype) for seed in (1, 1, 2))
    assert first.dtype == np.dtype(dtype)
    assert first.shape == (200, 3)
    assert first.flags.c_contiguous
    assert first.flags.writeable
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first)) > 1


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    block=st.integers(1, 60),
    dtype=st.sampled_from(["float64", "float32", "float16", "int32"]),
    low=st.integers(-100, 100),
    width=st.integers(1, 100),
)
def test_blocks_repeat_in_order_and_stay_in_their_domain(
    shape: list[int], block: int, dtype: str, low: int, width: int
) -> None:
    array = cast(draw_values(TensorSpec(tuple(shape), dtype, low, low + width), 3, block), dtype)
    assert array.shape == tuple(shape)
    values = array.reshape(-1)
    np.testing.assert_array_equal(values[block:], values[: max(0, len(values) - block)])
    rounding = np.finfo(dtype).eps * 200 if is_float(dtype) else 0
    assert (values >= low - rounding).all()
    assert (values <= low + width + rounding).all()


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dtype=st.sampled_from(["float64", "float32", "float16"]),
    low=st.floats(-100, 100),
    width=st.floats(0.5, 100),
    seed=st.integers(0, 2**32),
)
def test_floats_lie_in_their_domain(shape: list[int], dtype: str, low: float, width: float, seed: int) -> None:
    array = LIVE.tensor(TensorSpec(tuple(shape), dtype, low, low + width), seed)
    assert array.shape == tuple(shape)
    assert array.dtype == dtype
    rounding = np.finfo(dtype).eps * 200
    assert (array >= low - rounding).all()
    assert (array <= low + width + rounding).all()


def test_floats_fill_their_domain_evenly(numpy_cpu: Any) -> None:
    array = numpy_cpu.tensor(TensorSpec((10000,), "float32", -3.0, 5.0), 0)
    counts, _ = np.histogram(array, bins=4, range=(-3, 5))
    assert counts.sum() == 10000
    assert counts.min() > 2200


@pytest.mark.parametrize("dtype", INTS)
def test_integers_take_every_value_of_their_range_and_no_other(dtype: str, numpy_cpu: Any) -> None:
    assert set(numpy_cpu.tensor(TensorSpec((2000,), dtype, 3, 9), 0).tolist()) == {3, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_reach_both_ends_of_their_type(dtype: str, numpy_cpu: Any) -> None:
    limits = np.iinfo(dtype)
    array = numpy_cpu.tensor(TensorSpec((20000,), dtype, limits.min, limits.max + 1), 0)
    assert (array.min(), array.max()) == (limits.min, limits.max)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_floats_are_looked_at_in_float64(dtype: str, numpy_cpu: Any) -> None:
    array = np.array([0.1, -2.5], dtype)
    seen = numpy_cpu.to_numpy(array)
    assert seen.dtype == np.float64
    assert seen.tolist() == [float(value) for value in array]


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_an_element_type_is_named_as_opmark_spells_it(dtype: str, numpy_cpu: Any) -> None:
    assert numpy_cpu.dtype(np.ones(3, dtype)) == dtype


@pytest.mark.parametrize("dtype", [*INTS, "bool", "complex64"])
def test_other_types_are_looked_at_as_they_are(dtype: str, numpy_cpu: Any) -> None:
    assert numpy_cpu.to_numpy(np.ones(3, dtype)).dtype == np.dtype(dtype)


def test_a_scalar_is_looked_at_as_an_array(numpy_cpu: Any) -> None:
    """A sum over a vector comes back as a scalar."""
    seen = numpy_cpu.to_numpy(np.float32(1.5))
    assert isinstance(seen, np.ndarray)
    assert (seen.shape, seen.dtype, seen.item()) == ((), np.float64, 1.5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_poisoned_float_is_not_a_number(dtype: str, numpy_cpu: Any) -> None:
    array = np.ones((3, 5), dtype)
    numpy_cpu.poison(array)
    assert np.isnan(array).all()


@pytest.mark.parametrize("dtype", INTS)
def test_a_poisoned_integer_is_as_large_as_it_gets(dtype: str, numpy_cpu: Any) -> None:
    array = np.ones((3, 5), dtype)
    numpy_cpu.poison(array)
    assert (array == np.iinfo(dtype).max).all()


def test_a_poisoned_truth_is_the_opposite_somewhere(numpy_cpu: Any) -> None:
    array = np.array([True, False, True])
    numpy_cpu.poison(array)
    assert array.tolist() != [True, False, True]


def test_a_view_is_poisoned_and_nothing_beside_it(numpy_cpu: Any) -> None:
    owner = np.ones((4, 6))
    numpy_cpu.poison(owner[::2, 1:4].T)
    assert np.isnan(owner[::2, 1:4]).all()
    assert np.isnan(owner).sum() == 6


def test_what_belongs_to_somebody_else_is_left_alone(numpy_cpu: Any) -> None:
    owner = np.ones(3)
    numpy_cpu.poison(np.broadcast_to(owner, (4, 3)))
    numpy_cpu.poison(np.float32(1.5))
    assert owner.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_other_values_go_to_the_same_address(dtype: str, numpy_cpu: Any) -> None:
    target, source = (numpy_cpu.tensor(_spec(dtype), seed) for seed in (1, 2))
    address = target.ctypes.data
    numpy_cpu.copy_into(target, source)
    assert target.ctypes.data == address != source.ctypes.data
    np.testing.assert_array_equal(target, source)


@settings(deadline=None, max_examples=100)
@given(shape=st.lists(st.integers(0, 9), max_size=3), most=st.integers(1, 200))
def test_a_thinned_array_has_as_many_elements_as_allowed_spread_evenly(shape: list[int], most: int) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    thinned = LIVE.sample(array, most).tolist()
    assert len(thinned) <= most
    assert 3 * len(thinned) > min(most, array.size) or not array.size
    stride = thinned[1] if len(thinned) > 1 else max(1, array.size)
    assert thinned == list(range(0, array.size, stride))
    assert stride % 2 or len(thinned) < 2


def test_a_scalar_is_thinned_to_itself(numpy_cpu: Any) -> None:
    assert numpy_cpu.sample(np.float32(1.5), 10).tolist() == [1.5]


def test_what_it_returns_has_been_computed(numpy_cpu: Any) -> None:
    assert numpy_cpu.deferred(np.ones(3)) is None


def test_there_is_no_backward_phase(numpy_cpu: Any) -> None:
    with pytest.raises(Unsupported, match="no automatic differentiation"):
        numpy_cpu.backward(lambda: None, (), 0)
    with pytest.raises(Unsupported, match="no automatic differentiation"):
        numpy_cpu.backward(lambda: None, (), 0, forward=True)


def test_a_real_lack_of_memory_is_recognised(numpy_cpu: Any) -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 60, np.uint8)
    assert numpy_cpu.classify(caught.value) == "oom"


def test_an_ordinary_error_is_not_taken_for_anything_else(numpy_cpu: Any) -> None:
    with pytest.raises(ValueError, match="matmul") as caught:
        np.ones((2, 3)) @ np.ones((2, 3))
    assert numpy_cpu.classify(caught.value) is None


def test_the_host_clock_and_the_resident_pages_serve_it(numpy_cpu: Any) -> None:
    assert numpy_cpu.timers() is None
    assert numpy_cpu.device_clock() is None
    assert numpy_cpu.sensors() is None
    assert numpy_cpu.cache_bytes() is None
    assert numpy_cpu.synchronize() is None
    assert numpy_cpu.usable()
    assert numpy_cpu.memory() is None
    assert numpy_cpu.why_unavailable() is None
    assert not numpy_cpu.asynchronous
    assert numpy_cpu.available_bytes() > 0


def test_its_environment_says_what_may_explain_a_number() -> None:
    facts = INFO.load(threads=7).environment()
    assert facts["numpy"] == np.__version__
    assert facts["threads"] == 7
    assert facts["device"] == "cpu"
    assert {"scipy", "blas"} <= set(facts)
    assert json.loads(json.dumps(facts)) == facts


# What a call costs that no operator describes.


def test_bytes_are_counted_and_operations_are_not(numpy_cpu: Any) -> None:
    x, y = np.ones((4, 8), np.float32), np.ones((8, 2), np.float32)
    assert numpy_cpu.count(lambda: x @ y, [x, y]).cost == Cost(None, 4 * (32 + 16), 4 * 8)
    assert numpy_cpu.count(lambda: x + x, [x, x]).cost == Cost(None, 128, 128)
    assert numpy_cpu.count(lambda: (x + 1, [x.sum(), None]), [x]).cost == Cost(None, 128, 132)


def test_a_view_has_no_cost(numpy_cpu: Any) -> None:
    x = np.ones((4, 8), np.float32)
    for view in (lambda: x, lambda: x.T, lambda: x[:2], lambda: np.split(x, 2)):
        assert numpy_cpu.count(view, [x]) == CallCost(None, view=True)


def test_an_array_that_is_written_to_is_no_view(numpy_cpu: Any) -> None:
    x, out = np.ones((4, 8), np.float32), np.ones((4, 8), np.float32)
    assert numpy_cpu.count(lambda: np.negative(x, out=out), [x, out]).cost == Cost(None, 256, 128)
    assert numpy_cpu.count(lambda: np.negative(x, out=x), [x]).cost == Cost(None, 128, 128)
    assert x.flags.writeable
    assert out.flags.writeable


def test_an_array_may_make_its_own_values(numpy_cpu: Any) -> None:
    spec = TensorSpec((5,), "int32", 0, 10, make=lambda generator: np.sort(generator.integers(0, 10, 5)))
    found = numpy_cpu.tensor(spec, 3)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.sort(np.random.default_rng(3).integers(0, 10, 5)))
    with pytest.raises(ValueError, match="its operator says"):
        numpy_cpu.tensor(TensorSpec((5,), "int32", make=lambda generator: np.zeros((5, 1))), 0)
