"""Which machine an environment is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opmark.schema.peaks import chip

Machine = tuple[str, ...]
# MHz: a kernel reads a little more or less of the same clock.
_STEP = 100


def machine_of(facts: Mapping[str, Any]) -> Machine:
    """The chip, the kind of device, how many cores and their highest clock: what does not change while software does.

    Neither the name of the host nor a version: machines of a fleet go by many names, and versions are what is followed.
    `analysis/alike.py` is stricter, because two sides are compared once: there a driver makes another machine.
    """
    clock = facts.get("max_mhz")
    rounded = str(round(clock / _STEP)) if isinstance(clock, int | float) else ""
    return chip(dict(facts)), str(facts.get("device") or "cpu"), str(facts.get("cores") or ""), rounded
