"""What can be measured: every quantity has a meaning and a use, and every mode of PARAM is one of them."""

from __future__ import annotations

from typing import get_args

import pytest

from opmark.schema import CACHES, EFFORTS, MODES, PROCESSES, QUANTITIES, Cache, Mode


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=lambda quantity: quantity.name)
def test_a_quantity_says_what_it_is_and_when_to_use_it(quantity) -> None:
    assert quantity.meaning
    assert quantity.use
    assert quantity.meaning != quantity.use


def test_a_quantity_is_found_by_its_name() -> None:
    assert all(QUANTITIES[name].name == name for name in QUANTITIES)
    assert [name for name, quantity in QUANTITIES.items() if quantity.unit == "J"] == ["energy"]


def test_what_a_device_has_is_told_first() -> None:
    """The first quantity that was measured is the headline of a row."""
    assert list(QUANTITIES)[:4] == ["device_time", "device_span", "unqueued_time", "latency"]


def test_every_mode_is_a_quantity() -> None:
    assert set(MODES) == set(get_args(Mode)) - {""}
    assert set(MODES.values()) <= QUANTITIES.keys()
    assert len(set(MODES.values())) == len(MODES)


def test_the_caches_are_the_two_there_are() -> None:
    assert set(CACHES) == set(get_args(Cache))


def test_every_effort_has_its_number_of_processes() -> None:
    assert PROCESSES.keys() == EFFORTS.keys()
    assert PROCESSES["quick"] <= PROCESSES["standard"] < PROCESSES["thorough"]
