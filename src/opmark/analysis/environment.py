"""Are two environments alike? Which of their facts differ, and which of those make a comparison one of machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from opmark.errors import UserError
from opmark.schema.comparison import difference_lines
from opmark.schema.machine import chip

Facts = Mapping[str, Any]
Kind = Literal["machine", "place", "software", "own"]
"""
machine   what computes: times of unlike ones say nothing of the code, so they are refused unless told
place     which of two equal machines, and where on it: said
software  versions and settings, often the very thing that is compared: said
own       of every process or of every row: said elsewhere, or of no interest
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
    "driver": "machine",
    "power_limit": "machine",
    "ranks": "machine",
    "machine": "place",
    "system": "place",
    "affinity": "place",
    "gpu_uuid": "place",
    "hosts": "place",
    "interpreter": "place",
    "revision": "place",
    "opmark": "place",
    "backend": "own",
    "sensors": "own",
    "pid": "own",
    "cwd": "own",
}
"""By fact; one that is not listed, such as the version of a framework, is software. opmark's own version is not what
is measured: it is where that is done from."""

NEAR = {"memory": 0.1, "gpu_memory": 0.02, "max_mhz": 0.02}
"""Of these a kernel or a driver keeps a part for itself, or reads a little more or less: they are alike within this
share."""


def kind(fact: str) -> Kind:
    return KINDS.get(fact, "software")


def differing(pairs: Iterable[tuple[Facts, Facts]]) -> dict[str, tuple[Any, Any]]:
    """Facts that differ between two sides, over the environments that stand opposite each other; where a side has
    several values, a list of them."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for a, b in pairs:
        for fact in dict.fromkeys((*a, *b)):
            if kind(fact) != "own" and not _alike(fact, a.get(fact), b.get(fact)):
                for values, value in zip(found.setdefault(fact, ([], [])), (a.get(fact), b.get(fact)), strict=True):
                    if value not in values:
                        values.append(value)
    return {fact: (_one(a), _one(b)) for fact, (a, b) in found.items()}


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _alike(fact: str, a: Any, b: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return " ".join(a.split()) == " ".join(b.split())
    if fact in NEAR and isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= NEAR[fact] * max(abs(a), abs(b))
    return bool(a == b)


def unlike(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The differences that make it two machines. What one side does not tell is not known to differ."""
    return [fact for fact, both in found.items() if kind(fact) == "machine" and all(map(_told, both))]


def _told(value: Any) -> bool:
    return None not in value if isinstance(value, list) else value is not None


def software(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The differences in what was installed or set."""
    return [fact for fact in found if kind(fact) == "software"]


def refuse(names: tuple[str, str], found: Mapping[str, tuple[Any, Any]]) -> None:
    """UserError where these are two machines."""
    reasons = unlike(found)
    if reasons:
        listed = "; ".join(f"{fact}: {text}" for fact, text in difference_lines(found, reasons))
        raise UserError(
            f"`{names[0]}` and `{names[1]}` were not measured on machines that are alike: {listed}",
            "--unlike (unlike=True) compares them all the same",
        )


# Which machine an environment is of.

Machine = tuple[str, ...]
# MHz: a kernel reads a little more or less of the same clock.
_STEP = 100


def machine_of(facts: Mapping[str, Any]) -> Machine:
    """The chip, the kind of device, how many cores and their highest clock: what does not change while software does.

    Neither the name of the host nor a version: machines of a fleet go by many names, and versions are what is followed.
    `analysis/environment.py` is stricter, because two sides are compared once: there a driver makes another machine.
    """
    clock = facts.get("max_mhz")
    rounded = str(round(clock / _STEP)) if isinstance(clock, int | float) else ""
    return chip(dict(facts)), str(facts.get("device") or "cpu"), str(facts.get("cores") or ""), rounded
