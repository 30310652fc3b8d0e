"""Bandwidths in the words of nccl-tests, skew between ranks, shares of links: numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.analysis.bandwidth import Bandwidths, LinkShare, Skew, bandwidths, link_for, link_share_of, skew
from opmark.schema import Cost
from opmark.schema.cost import Link, Traffic
from opmark.schema.machine import Interconnect, Peaks

NVLINK, PCIE, C2C = Interconnect("NVLink 4", 4.5e11), Interconnect("PCIe Gen5 x16", 6.3e10), Interconnect("C2C", 4.5e11)


def moving(size: int, bus: float, link: Link = "peers") -> Cost:
    return Cost(None, size, size, Traffic(size, bus, 4, link))


def chip(*links: Interconnect) -> Peaks:
    return Peaks("Fast 9000", "made up", {}, [], interconnect=list(links))


def test_bandwidths_are_the_buffer_and_what_crosses_a_link_over_the_time() -> None:
    """all_reduce of 1 GB among 4 ranks: 2 x 3/4 of it crosses the busiest link; in 0.1 s."""
    assert bandwidths(moving(10**9, 1.5e9), 0.1) == Bandwidths(1e10, 1.5e10)


@pytest.mark.parametrize(
    ("factor", "ranks", "bus"),
    [(lambda n: 2 * (n - 1) / n, 8, 1.75e9), (lambda n: (n - 1) / n, 8, 0.875e9), (lambda n: 1, 8, 1e9)],
    ids=["all_reduce", "all_gather", "broadcast"],
)
def test_the_factors_of_nccl_tests(factor: object, ranks: int, bus: float) -> None:
    cost = moving(10**9, 10**9 * factor(ranks))  # type: ignore[operator]
    assert bandwidths(cost, 1.0).bus == pytest.approx(bus, rel=1e-12)


@pytest.mark.parametrize("cost", [None, Cost(1, 2, 3)], ids=["unknown", "computes"])
def test_what_does_not_communicate_has_no_bandwidth_of_a_link(cost: Cost | None) -> None:
    assert bandwidths(cost, 1.0) == Bandwidths()


def test_nothing_that_crosses_and_no_time_are_no_rate_of_zero() -> None:
    assert bandwidths(moving(100, 0.0), 1.0) == Bandwidths(100.0, None)
    assert bandwidths(moving(0, 0.0), 1.0) == Bandwidths()
    assert bandwidths(moving(100, 100.0), 0.0) == Bandwidths()


def test_who_sends_to_itself_uses_no_link_but_the_one_to_its_host() -> None:
    alone = Cost(None, 8, 8, Traffic(100, 100.0, 1))
    assert bandwidths(alone, 1.0) == Bandwidths(100.0, None)
    assert link_share_of(alone, 1.0, chip(NVLINK)) is None
    assert bandwidths(Cost(None, 8, 8, Traffic(100, 100.0, 1, "host")), 1.0) == Bandwidths(100.0, 100.0)


def test_skew_is_the_median_of_slowest_minus_fastest_over_slowest() -> None:
    """Sample by sample 0.5, 0.2, 0.75 apart; rank 1 is the slowest twice."""
    found = skew([[1.0, 5.0, 1.0], [2.0, 4.0, 4.0]])
    assert found == Skew(0.5, 1, pytest.approx(2 / 3), 3)


def test_skew_of_the_medians_would_be_another_number() -> None:
    """Both ranks have the same median; yet one always waits for the other."""
    found = skew([[1.0, 2.0, 4.0], [4.0, 2.0, 1.0]])
    assert found is not None
    assert (found.share, found.slowest, found.often) == (0.75, 1, pytest.approx(1 / 3))


def test_ranks_that_are_alike_have_no_slowest() -> None:
    assert skew([[1.0, 2.0], [1.0, 2.0]]) == Skew(0.0, None, 0.0, 2)


def test_who_does_not_take_part_does_not_count() -> None:
    """A pair of four: the other two are done at once."""
    assert skew([[0.0] * 2, [3.0, 3.0], [0.0] * 2, [4.0, 4.0]], [1, 3]) == Skew(0.25, 3, 1.0, 2)


def test_a_rank_is_not_apart_from_itself() -> None:
    assert skew([[1.0, 2.0], [3.0, 4.0]], [1, 1]) is None


@pytest.mark.parametrize("by_rank", [[], [[1.0, 2.0]], [[], []]])
def test_one_rank_or_no_sample_has_no_skew(by_rank: list[list[float]]) -> None:
    assert skew(by_rank) is None


@given(st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(st.floats(0, 1e3), min_size=n, max_size=n), min_size=1, max_size=20)
))  # fmt: skip
def test_skew_is_a_share_and_its_rank_is_one_of_them(rounds: list[list[float]]) -> None:
    by_rank = [list(samples) for samples in zip(*rounds, strict=True)]
    found = skew(by_rank)
    assert found is not None
    assert 0 <= found.share <= 1
    assert 0 <= found.often <= 1
    assert found.slowest is None or 0 <= found.slowest < len(by_rank)
    assert found.samples == len(rounds)


@pytest.mark.parametrize(
    ("links", "peers", "host"),
    [
        ((NVLINK, PCIE), NVLINK, PCIE),
        ((PCIE, NVLINK), NVLINK, PCIE),
        ((PCIE,), PCIE, PCIE),
        ((NVLINK,), NVLINK, None),
        ((NVLINK, PCIE, C2C), NVLINK, C2C),
        ((C2C,), None, C2C),
        ((), None, None),
    ],
)
def test_the_link_is_the_one_that_data_takes(
    links: tuple[Interconnect, ...], peers: Interconnect | None, host: Interconnect | None
) -> None:
    assert (link_for(chip(*links), "peers"), link_for(chip(*links), "host")) == (peers, host)


def test_the_bus_bandwidth_is_held_against_one_direction_of_the_link() -> None:
    peaks = chip(NVLINK, PCIE)
    assert link_share_of(moving(10**9, 1.5e9), 1 / 150, peaks) == LinkShare(pytest.approx(0.5), "NVLink 4")
    assert link_share_of(moving(63 * 10**8, 6.3e9, "host"), 0.2, peaks) == LinkShare(
        pytest.approx(0.5), "PCIe Gen5 x16"
    )


def test_a_link_that_nobody_has_measured_has_no_share() -> None:
    assert link_share_of(moving(1, 1.0), 1.0, chip(Interconnect("NeuronLink"))) is None
    assert link_share_of(moving(1, 1.0), 1.0, chip()) is None
    assert link_share_of(Cost(1, 1, 1), 1.0, chip(NVLINK)) is None
    assert link_share_of(moving(1, 0.0), 1.0, chip(NVLINK)) is None
