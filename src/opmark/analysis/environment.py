"""Compare environments: which facts differ, and whether they belong to different machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from opmark.errors import UserError
from opmark.schema.comparison import difference_lines
from opmark.schema.machine import chip

Facts = Mapping[str, Any]
Kind = Literal["machine", "place", "software", "own"]
"""
machine   hardware and its settings: if it differs, times say nothing about the code, and a comparison is refused
place     which of several equal machines, and where on it: reported
software  versions and settings, often the subject of the comparison: reported
own       differs between processes or rows: shown elsewhere, or of no interest
"""

KINDS: dict[str, Kind] = {
    "cpu": "machine",
    "cores": "machine",
    "threads": "machine",
    "memory": "machine",
    "governor": "machine",
    "max_mhz": "machine",
    "device": "machine",
    "device_kind": "machine",
    "chip": "machine",
    "gpu": "machine",
    "gpu_memory": "machine",
    "gpu_l2": "machine",
    "gpu_sms": "machine",
    "gpu_capability": "machine",
    "driver": "machine",
    "power_limit": "machine",
    "ranks": "machine",
    "machine": "place",
    "node": "place",
    "system": "place",
    "affinity": "place",
    "gpu_uuid": "place",
    "gpu_uuids": "place",
    "clocks": "place",
    "hosts": "place",
    "interpreter": "place",
    "revision": "place",
    "opmark": "place",
    "backend": "own",
    "numa": "own",
    "sensors": "own",
    "sms": "own",
    "pid": "own",
    "cwd": "own",
}
"""Kind of each fact; a fact that is not listed, such as the version of a framework, is software. opmark's own version
is a place, because it is not what is measured."""

NEAR = {"memory": 0.1, "gpu_memory": 0.02, "max_mhz": 0.02}
"""Relative tolerance of facts that vary on the same machine: kernels and drivers reserve a part of the memory, and
clocks are read inexactly."""


def kind(fact: str) -> Kind:
    return KINDS.get(fact, "software")


def differing(pairs: Iterable[tuple[Facts, Facts]]) -> dict[str, tuple[Any, Any]]:
    """Return the facts that differ between two sides, over pairs of environments. A side with several values has a list
    of them."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for a, b in pairs:
        for fact in dict.fromkeys((*a, *b)):
            if kind(fact) != "own" and not _is_alike(fact, a.get(fact), b.get(fact)):
                for values, value in zip(found.setdefault(fact, ([], [])), (a.get(fact), b.get(fact)), strict=True):
                    if value not in values:
                        values.append(value)
    return {fact: (_one(a), _one(b)) for fact, (a, b) in found.items()}


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _is_alike(fact: str, a: Any, b: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return " ".join(a.split()) == " ".join(b.split())
    if fact in NEAR and isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= NEAR[fact] * max(abs(a), abs(b))
    return bool(a == b)


def unlike(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return the facts that show two different machines. A fact that one side lacks is not known to differ."""
    return [fact for fact, both in found.items() if kind(fact) == "machine" and all(map(_is_known, both))]


def _is_known(value: Any) -> bool:
    return None not in value if isinstance(value, list) else value is not None


def software(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return the facts about installed software and settings."""
    return [fact for fact in found if kind(fact) == "software"]


def refuse(names: tuple[str, str], found: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise UserError if the sides ran on different machines."""
    reasons = unlike(found)
    if reasons:
        listed = "; ".join(f"{fact}: {text}" for fact, text in difference_lines(found, reasons))
        raise UserError(
            f"`{names[0]}` and `{names[1]}` were not measured on machines that are alike: {listed}",
            "--unlike (unlike=True) compares them all the same",
        )


Machine = tuple[str, ...]
# MHz. Readings of the same clock vary by less.
_STEP = 100


def machine_of(facts: Mapping[str, Any]) -> Machine:
    """Identify the machine of an environment for histories: chip, kind of device, number of cores and highest clock.

    Host names and versions do not count: machines of a fleet have many names, and histories follow versions. `unlike`
    is stricter, because it judges a single comparison: there another driver is another machine.
    """
    clock = facts.get("max_mhz")
    rounded = str(round(clock / _STEP)) if isinstance(clock, int | float) else ""
    return chip(dict(facts)), str(facts.get("device") or "cpu"), str(facts.get("cores") or ""), rounded
