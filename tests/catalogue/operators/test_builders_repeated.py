"""Large tensors made by repeating a block of values."""

from __future__ import annotations

import numpy as np

from opmark.catalogue.operators._builders import BLOCK, fill_by_block, repeat_block


def test_a_block_is_of_prime_length() -> None:
    assert all(BLOCK % factor for factor in range(2, int(BLOCK**0.5) + 1))


def test_a_small_tensor_is_drawn_whole() -> None:
    assert fill_by_block([2, 3], np.arange).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_large_tensor_repeats_its_block() -> None:
    found = fill_by_block((2, BLOCK), np.arange)
    assert found.shape == (2, BLOCK)
    assert (found == np.arange(BLOCK)).all()


def test_values_are_drawn_as_wide_as_needed() -> None:
    for dtype, wide in (("float64", np.float64), ("float32", np.float32), ("bfloat16", np.float32)):
        made = repeat_block((3,), dtype, lambda generator, n: generator.random(n))(np.random.default_rng(0))
        assert made.dtype == wide
