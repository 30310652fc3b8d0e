"""unique, nonzero, searchsorted, bincount, histogram, isin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.search import BINCOUNT, HISTOGRAM, ISIN, NONZERO, SEARCHSORTED, UNIQUE
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

COSTS = [
    # 12 elements, each 4 times: 3 out; with the place of each of 12 and the number of each of 3, 8 bytes each.
    (UNIQUE, {"shape": [3, 4], "repeats": 4}, Cost(0, 48, 12)),
    (UNIQUE, {"shape": [3, 4], "repeats": 4, "inverse": True, "counts": True}, Cost(0, 48, 12 + 96 + 24)),
    # Half of 12, two coordinates of 8 bytes each.
    (NONZERO, {"shape": [3, 4]}, Cost(0, 48, 96)),
    (NONZERO, {"shape": [12], "density": 0.25, "dtype": "bool"}, Cost(0, 12, 24)),
    # 2 values are compared with 7 entries each of 100; 100 values see all of 8.
    (SEARCHSORTED, {"entries": 100, "values": 2}, Cost(0, (14 + 2) * 4, 16)),
    (SEARCHSORTED, {"entries": 8, "values": 100}, Cost(0, (8 + 100) * 4, 800)),
    (BINCOUNT, {"values": 10, "bins": 3, "dtype": "int32"}, Cost(0, 40, 24)),
    (HISTOGRAM, {"shape": [3, 4], "bins": 5}, Cost(24, 48, 20)),
    (ISIN, {"shape": [3, 4], "candidates": 5}, Cost(0, 68, 12)),
]


@pytest.mark.parametrize(("op", "given", "forward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost) -> None:
    assert op.phase_cost(op.complete(given), "forward") == forward


def _arrays(op: Operator, params: dict[str, Any], live: Any, seed: int = 0) -> dict[str, Any]:
    specs = op.inputs(params).items()
    return {name: live.to_numpy(live.tensor(spec, seed + i)) for i, (name, spec) in enumerate(specs)}


LENGTHS = [
    (UNIQUE, {"shape": [33, 7], "repeats": 5}),
    (UNIQUE, {"shape": [100], "repeats": 1, "counts": True, "inverse": True}),
    (NONZERO, {"shape": [33, 7], "density": 0.3}),
    (NONZERO, {"shape": [3, 5, 7], "density": 0.0}),
    (NONZERO, {"shape": [33], "density": 1.0}),
]


@pytest.mark.parametrize(("op", "given"), LENGTHS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_length_of_a_result_is_known_before(op: Operator, given: dict[str, Any], seed: int, torch_cpu: Any) -> None:
    params = op.complete({**given, "dtype": "float64"})
    found = op.reference(params, **_arrays(op, params, torch_cpu, seed))
    outputs = found if isinstance(found, tuple) else (found,)
    assert sum(output.nbytes for output in outputs) == op.cost(params).bytes_written


def test_what_is_unique_depends_on_the_data(torch_cpu: Any) -> None:
    params = UNIQUE.complete({"shape": [100]})
    one, other = (UNIQUE.reference(params, **_arrays(UNIQUE, params, torch_cpu, seed)) for seed in (0, 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("shape", [[100], [256, 1024]])
def test_float16_has_as_many_different_elements_as_its_cost_says(shape: list[int], torch_cpu: Any) -> None:
    """Integers above 2048 would be rounded together; a large tensor has as many as float16 can tell apart."""
    params = UNIQUE.complete({"shape": shape, "repeats": 2, "dtype": "float16"})
    (x,) = _arrays(UNIQUE, params, torch_cpu).values()
    assert np.isfinite(x).all()
    assert 2 * len(np.unique(x)) == UNIQUE.cost(params).bytes_written == 2 * min(x.size // 2, 10_000)


def test_the_table_is_sorted_and_values_fall_everywhere(torch_cpu: Any) -> None:
    params = SEARCHSORTED.complete({"entries": 10, "values": 1000})
    arrays = _arrays(SEARCHSORTED, params, torch_cpu)
    assert (np.diff(arrays["table"]) > 0).all()
    assert len(np.unique(SEARCHSORTED.reference(params, **arrays))) == 11


@pytest.mark.parametrize(("right", "place"), [(False, 1), (True, 3)])
def test_an_equal_value_belongs_before_or_behind(right: bool, place: int) -> None:
    params = SEARCHSORTED.complete({"entries": 4, "values": 1, "right": right})
    assert SEARCHSORTED.reference(params, table=np.array([1.0, 2, 2, 3]), values=np.array([2.0])) == place


@pytest.mark.parametrize("bins", [3, 1000, 65536])
def test_no_element_lies_on_the_border_of_a_bin(bins: int, torch_cpu: Any) -> None:
    params = HISTOGRAM.complete({"shape": [100_000], "bins": bins})
    place = (_arrays(HISTOGRAM, params, torch_cpu)["x"] + 1) * bins / 2
    assert np.abs(place - np.round(place)).min() > 0.05


def test_some_elements_are_candidates_and_some_are_not(torch_cpu: Any) -> None:
    params = ISIN.complete({"shape": [1000], "candidates": 50})
    assert 0.2 < ISIN.reference(params, **_arrays(ISIN, params, torch_cpu)).mean() < 0.8


REFUSED = [
    (UNIQUE, {"shape": [3, 4], "repeats": 13}, r"`repeats` must be at most .*\[3, 4\] \(got 13\)"),
    (UNIQUE, {"shape": [30_000_000], "repeats": 2}, "`repeats` must leave at most 5 million"),
    (NONZERO, {"shape": [3, 4], "density": 1.5}, r"`density` must be at most 1 \(got 1.5\)"),
    (HISTOGRAM, {"shape": [3, 4], "bins": 65537}, "`bins` must be at most 65536"),
    (ISIN, {"shape": [3, 4], "candidates": 10_000_000}, "`candidates` must be at most 8 million"),
]


@pytest.mark.parametrize(("op", "given", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(op: Operator, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(("alias", "op"), [("histc", HISTOGRAM), ("argwhere", NONZERO), ("bucketize", SEARCHSORTED)])
def test_names_that_people_look_for(alias: str, op: Operator) -> None:
    assert operator(alias) is op
