"""The sizes of a command line of comms.py, and the bytes that are moved."""

from __future__ import annotations

import pytest
from param_comms_runs import request_of, rows

from opmark.errors import UserError
from opmark.interop.param.comms.collectives import elements_of, series, size_of, split_size, whole_sizes


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("4K", 4096), ("256M", 256 << 20), ("1G", 1 << 30), ("4k", 4096), ("2MB", 2 << 20)]
)
def test_a_size_is_in_powers_of_1024(text: str, size: int) -> None:
    assert size_of(text, "--b") == size


def test_an_invalid_size_is_named_with_its_option() -> None:
    with pytest.raises(UserError, match="--e: expected bytes, got `64X`"):
        request_of("--e", "64X")


def test_default_sizes_are_those_of_param() -> None:
    assert request_of().sizes == (8, 16, 32, 64)


def test_a_factor_multiplies() -> None:
    assert request_of("--b", "8", "--e", "1K", "--f", "4").sizes == (8, 32, 128, 512)


def test_step_bytes_are_added_whatever_the_factor_is() -> None:
    assert request_of("--b", "8", "--e", "24", "--sb", "8", "--f", "1").sizes == (8, 16, 24)


def test_long_names_mean_the_same() -> None:
    assert request_of("--begin-size", "16", "--end-size", "64", "--step-factor", "4").sizes == (16, 64)
    assert request_of("--begin-size", "16", "--end-size", "48", "--step-bytes", "16").sizes == (16, 32, 48)


def test_a_list_of_sizes_stands_as_it_is() -> None:
    assert request_of("--ss", "1024,64,4K", "--b", "8").sizes == (1024, 64, 4096)
    assert request_of("--sizes", "100").sizes == (100,)


def test_a_beginning_of_0_is_1_byte_as_in_param() -> None:
    assert request_of("--b", "0", "--e", "2").sizes == (1, 2)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--b", "64", "--e", "8"], "there are no sizes"),
        (["--f", "1"], "--f: expected a factor of at least 2, got 1"),
        (["--sb", "-4"], "--sb: expected bytes of at least 0"),
        (["--e", "1G", "--sb", "4"], "more than 1000 sizes"),
        (["--ss", "0,8"], "--ss: expected sizes of at least 1 byte"),
        (["--ss", ","], "--ss: expected sizes"),
    ],
)
def test_sizes_that_lead_nowhere_are_refused(given: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        request_of(*given)
    assert error.value.hint


def test_a_series_ends_at_its_end() -> None:
    assert series(8, 63, 2, 0) == [8, 16, 32]
    assert series(8, 8, 2, 0) == [8]


def test_elements_are_rounded_down_and_never_none() -> None:
    assert elements_of(4096, 4, 3) == 341
    assert elements_of(7, 4, 1) == 1
    assert elements_of(1, 8, 4) == 1


def test_sizes_that_come_to_the_same_are_measured_once() -> None:
    assert whole_sizes([4, 8, 16, 20, 32], 4, 4) == [16, 32]


def test_every_rank_has_an_equal_part() -> None:
    """4096 bytes for 3 ranks with 4 bytes per element are 341 elements for each."""
    (row,) = rows("--collective", "all_gather", "--ss", "4096", ranks=3)
    assert (row.size, row.elements) == (4092, 341)
    (row,) = rows("--collective", "all_reduce", "--ss", "4097", ranks=3)
    assert (row.size, row.elements) == (4096, 1024)


def test_small_sizes_begin_with_an_element_for_each() -> None:
    assert [row.size for row in rows("--collective", "all_to_all", "--b", "4", "--e", "32", ranks=4)] == [16, 32]


def test_equal_splits_are_a_size() -> None:
    assert split_size([16, 16], "--i", 2, 4) == 128
    (row,) = rows("--collective", "all_to_allv", "--i", "16,16", "--b", "8")
    assert (row.size, row.elements) == (128, 16)


def test_splits_are_of_the_ranks_of_a_group() -> None:
    (row,) = rows("--collective", "all_gather_v", "--o", "8,8", "--multi-comms", "2", ranks=4)
    assert row.size == 64


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--collective", "all_to_allv", "--i", "16,8"], "expected equal parts of at least 1 element"),
        (["--collective", "all_to_allv", "--i", "16"], "expected 2 numbers, one for each rank of a group, got 1"),
        (["--collective", "all_to_allv", "--o", "0,0"], "expected equal parts"),
        (["--collective", "all_gather_v", "--i", "8,8"], "--i: all_gather_v is not split"),
        (["--collective", "reduce_scatter_v", "--o", "8,8"], "--o: reduce_scatter_v is not split"),
        (["--collective", "all_reduce", "--i", "8,8"], "--i: all_reduce is not split"),
        (["--pt2pt", "one2one", "--i", "8,8"], "--i: pt2pt is not split"),
    ],
)
def test_other_splits_are_refused(given: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        rows(*given)
    assert error.value.hint
