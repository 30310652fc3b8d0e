"""Rows under load: their figures, and that two loads are never taken for the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from opmark.analysis.pairs import measured, pair_sides
from opmark.analysis.rows import rows_of_records
from opmark.schema import Record
from opmark.schema.load import Load, parse_load_text
from opmark.store.record_codec import figures_of

Make = Callable[..., Record]


def test_loads_are_rows_of_their_own_and_say_so(make_loaded: Make) -> None:
    loads = [Load(1), Load(2), Load(2, 100, "poisson", 50.0), Load(2, 100, "poisson", 80.0)]
    found = rows_of_records([make_loaded(load) for load in loads])
    names = ["1 client", "2 clients", "2 clients, poisson 50/s", "2 clients, poisson 80/s"]
    assert [row.where for row in found] == [f"null ×2, {name}" for name in names]
    assert [row.load for row in found] == loads
    assert all(row.gain is None for row in found)


def test_the_figures_of_a_load(make_loaded: Make) -> None:
    (row,) = rows_of_records([make_loaded(Load(2, 250))])
    figures = row.load_figures
    assert figures is not None
    assert figures.answered == 500
    assert figures.requests_per_second.value == pytest.approx(2000, rel=0.02)
    assert figures.mean.value == pytest.approx(sum(row.samples()) / 500)
    assert figures.percentiles["p50"].value == pytest.approx(1.004e-3, rel=1e-3)
    assert figures.percentiles["p99"].value == 3e-3
    assert figures.percentiles["p99.9"].reason == "p99.9 needs at least 3688 samples, there are 500"
    # Little's law, from a counter of its own.
    assert figures.in_flight == pytest.approx(figures.requests_per_second.value * figures.mean.value, rel=0.02)


def test_a_request_of_a_batch_has_as_many_samples(make_loaded: Make) -> None:
    record = make_loaded(Load(1, 50), op="model:resnet50", params={"batch": 8, "dtype": "float32"})
    (row,) = rows_of_records([record])
    figures = row.load_figures
    assert figures is not None
    assert figures.batch == 8
    assert figures.samples_per_second.value == pytest.approx(8 * (figures.requests_per_second.value or 0))
    assert row.items_per_second == pytest.approx(figures.samples_per_second.value)


def test_processes_of_one_load_are_one_row(make_loaded: Make) -> None:
    found = rows_of_records([make_loaded(Load(2), process=process) for process in range(3)])
    assert len(found) == 1
    assert found[0].load_figures is not None
    assert found[0].load_figures.answered == 600


def test_no_rate_of_bytes_follows_from_the_latency_of_a_request(make_loaded: Make) -> None:
    (row,) = rows_of_records([make_loaded(Load(2))])
    assert row.bytes_per_second is None
    assert row.flops_per_second is None


def test_a_comparison_pairs_equal_loads_only(make_loaded: Make, make_record: Make) -> None:
    a = [make_loaded(Load(1)), make_loaded(Load(2)), make_loaded(Load(2, 100, "poisson", 50.0)), make_record()]
    b = [make_record(), make_loaded(Load(2, 300)), make_loaded(Load(4)), make_loaded(Load(2, 100, "poisson", 80.0))]
    sides = [measured(figure for record in side for figure in figures_of("run", record)) for side in (a, b)]
    matched = pair_sides(*sides)
    assert matched is not None
    # How many requests there are decides how precise the figures are, and not what they mean.
    assert sorted((one.way.load, other.way.load) for one, other in matched.pairs) == [("", ""), ("2 clients",) * 2]
    assert [one.way.load for one in matched.only[0]] == ["1 client", "2 clients, poisson 50/s"]
    assert [one.way.load for one in matched.only[1]] == ["4 clients", "2 clients, poisson 80/s"]


def test_a_load_that_failed_is_compared_with_the_same_load(make_loaded: Make) -> None:
    failed = replace(make_loaded(Load(2), status="timeout"), reason="client 2 has no answer")
    (figure,) = figures_of("run", failed)
    assert (figure.status, figure.load) == ("timeout", "2 clients")


@pytest.mark.parametrize("load", [Load(1), Load(3), Load(2, 5, "constant", 0.5), Load(2, 5, "poisson", 1500.0)])
def test_the_text_of_a_load_can_be_read_again(load: Load) -> None:
    assert parse_load_text(load.text) == (load.clients, load.arrival, load.rate)
