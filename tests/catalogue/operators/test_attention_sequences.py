"""Sequences of different lengths: pairs, pages and positions, counted one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from opmark.catalogue.operators._attention import Sequences, jobs

BATCHES = [
    Sequences((5, 1, 3), (2, 0, 9), 4),
    Sequences((1, 1), (7, 8), 8),
    Sequences((4,), (0,), 1),
    Sequences((2, 2, 2), (3, 3, 3), 3),
    Sequences((1, 9, 4), (20, 0, 30), 5),
]
every_batch = pytest.mark.parametrize("batch", BATCHES, ids=str)


@every_batch
def test_a_query_sees_the_cache_and_new_keys_up_to_its_own(batch: Sequences) -> None:
    seen = sum(
        1
        for q, cache in zip(batch.q, batch.cache, strict=True)
        for query, key in product(range(q), range(q + cache))
        if key <= cache + query
    )
    assert batch.pairs == seen


@every_batch
def test_pages_hold_every_key_and_only_the_last_has_room(batch: Sequences) -> None:
    for kv, pages in zip(batch.kv, batch.pages, strict=True):
        assert pages == len({key // batch.block_size for key in range(kv)})


@every_batch
def test_new_tokens_lie_in_so_many_pages(batch: Sequences) -> None:
    rows, places = batch.positions()
    assert batch.new_pages == len({(row, at // batch.block_size) for row, at in zip(rows, places, strict=True)})


@every_batch
def test_a_position_that_two_sequences_have_is_one_position(batch: Sequences) -> None:
    assert batch.places_used() == len(set(batch.positions()[1]))


@every_batch
def test_no_page_belongs_to_two_sequences(batch: Sequences) -> None:
    spec = batch.table_spec()
    assert spec.make
    table = spec.make(np.random.default_rng(1))
    used = [page for row, pages in zip(table, batch.pages, strict=True) for page in row[:pages]]
    assert sorted(used) == list(range(sum(batch.pages)))
    assert batch.cache_spec(2, 8, "float32").shape == (len(used), 2, batch.block_size, 8)


def test_a_linear_cache_is_as_long_as_the_longest_sequence() -> None:
    assert Sequences((5, 1), (2, 9)).cache_spec(3, 8, "float16").shape == (2, 3, 10, 8)


def test_lengths_are_alike_only_where_both_are() -> None:
    assert Sequences((2, 2), (3, 3)).alike
    assert not Sequences((2, 2), (3, 4)).alike
    assert not Sequences((2, 1), (3, 3)).alike


@pytest.mark.parametrize(
    ("q", "cache", "calls"),
    [
        ((1, 1, 1), (80, 90, 100), 1),
        ((2, 2, 2), (100, 100, 100), 1),
        ((1, 1, 1), (2, 0, 100), 3),
        ((1, 2, 1), (80, 90, 100), 3),
        ((64, 64, 64), (80, 90, 100), 3),
    ],
)
def test_sequences_of_similar_lengths_are_decoded_in_one_call(
    q: tuple[int, ...], cache: tuple[int, ...], calls: int
) -> None:
    found = list(jobs(Sequences(q, cache), None))
    assert len(found) == calls
    assert sum(job.batch for job in found) == 3
    assert max(job.kv_len for job in found) == max(one + other for one, other in zip(q, cache, strict=True))
