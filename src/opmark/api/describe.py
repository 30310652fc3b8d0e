"""One operator or one chip: `opmark describe`."""

from __future__ import annotations

from typing import Any

from opmark.api.requests import typed
from opmark.hardware.datasheets import brief, datasheet
from opmark.plugin import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Peaks


@typed
def describe(op: str) -> Operator:
    """Return the operator of this name; UnknownName if there is none."""
    return find_operator(op)


def find_chip(name: str) -> Peaks | None:
    """Return the datasheet of the chip that is known by this name."""
    return datasheet(name)


def chip_view(chip: Peaks) -> dict[str, Any]:
    """Return a datasheet as plain data, without the fields that it leaves empty."""
    return brief(chip)
