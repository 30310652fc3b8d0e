"""Descriptions of quantities."""

from __future__ import annotations

import pytest

from opmark.report.console.operators import quantity_text
from opmark.schema import QUANTITIES, Quantity


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=lambda quantity: quantity.name)
def test_a_quantity_is_described_by_its_name_its_meaning_and_its_use(quantity: Quantity) -> None:
    first, second, third = quantity_text(quantity).plain.splitlines()
    assert first.startswith(f"{quantity.name} (")
    assert first.endswith(quantity.meaning)
    assert second == f"look at it for: {quantity.use}"
    assert third.startswith("measured: ")


def test_energy_is_in_joules_and_time_in_seconds() -> None:
    assert quantity_text(QUANTITIES["energy"]).plain.startswith("energy (joules a call)")
    assert quantity_text(QUANTITIES["latency"]).plain.startswith("latency (seconds a call)")


def test_where_there_is_such_a_thing_is_said() -> None:
    measured = {name: quantity_text(QUANTITIES[name]).plain.splitlines()[2] for name in QUANTITIES}
    assert measured["device_time"] == "measured: on a device with a clock of its own, cold and warm"
    assert "before its work is done" in measured["host_time"]
    assert measured["latency"].startswith("measured: on every backend, warm")
