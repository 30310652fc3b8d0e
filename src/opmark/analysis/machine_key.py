"""Which machine an environment is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opmark.schema.peaks import chip


def machine_of(facts: Mapping[str, Any]) -> tuple[str, str]:
    """The chip and the kind of device: what does not change while software does.

    Neither the name of the host nor a version: machines of a fleet go by many names, and versions are what is followed.
    `analysis/alike.py` is stricter, because two sides are compared once: there a driver makes another machine.
    """
    return chip(dict(facts)), str(facts.get("device") or "cpu")
