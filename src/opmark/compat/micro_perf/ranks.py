"""How many processes may communicate: as many as there are devices, or as `--device` lists.

ByteMicroPerf leaves out what needs more without a word. Here it is said. On a processor, which it has not, a core is
taken for a device, and a longer list is a way to ask for more processes than cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.compat.micro_perf.tasks import Item
from opmark.registry import operator as find_operator

_RANKS = "ranks"


class Fitting(NamedTuple):
    items: list[Item]
    left_out: list[str]
    """What cannot be had, a line a task."""


def fitting(items: Sequence[Item], device: str | None, kind: str, *, v1: bool) -> Fitting:
    """`device`: as it was given; `kind`: that of the backend."""
    most = _most(device, kind)
    kept: list[Item] = []
    lines: dict[str, None] = {}
    beyond: dict[str, set[int]] = {}
    for item in items:
        title, asked = item.title(v1=v1), _asked(item)
        many = {ranks for ranks in asked if most is not None and ranks > most}
        if kind == "cpu" and find_operator(item.entry.op).device_only:
            lines[f"{title}: left out, there is no device beside the host"] = None
        elif not many:
            kept.append(item)
        else:
            beyond.setdefault(title, set()).update(many)
            kept += [_at_most(item, most)] if most and len(many) < len(set(asked)) else []
    for title, numbers in beyond.items():
        lines[_too_many(title, sorted(numbers), most, kind)] = None
    return Fitting(kept, list(lines))


def _most(device: str | None, kind: str) -> int | None:
    """None where the device itself has to tell."""
    if device not in (None, "all"):
        return len(str(device).split(","))
    return _cores() if kind == "cpu" else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _too_many(title: str, numbers: Sequence[int], most: int | None, kind: str) -> str:
    listed = ", ".join(map(str, numbers))
    if kind == "cpu":
        return f"{title}: left out with {listed} ranks: there are {most}, a core each, or as many as --device lists"
    return f"{title}: left out with {listed} ranks: --device names {most}"


def widest(items: Sequence[Item]) -> int:
    """The most ranks that any of them has."""
    return max((ranks for item in items for ranks in _asked(item)), default=1)


def _asked(item: Item) -> list[int]:
    """The number of ranks of each value of the axis that has them; none where it works on one device."""
    found = _axis(item)
    return [_ranks(found[0], value) for value in found[1]] if found else []


def _axis(item: Item) -> tuple[str, list[Any]] | None:
    """`ranks`, or a dotted key with it."""
    if item.kind == "compute":
        return None
    written = item.entry.params
    key = next((key for key in written if _RANKS in key.split(".")), None)
    if key is None:
        return None
    return key, written[key] if isinstance(written[key], list) else [written[key]]


def _ranks(key: str, value: Any) -> int:
    return int(value[key.split(".").index(_RANKS)] if "." in key else value)


def _at_most(item: Item, most: int) -> Item:
    key, values = _axis(item) or ("", [])
    few = [value for value in values if _ranks(key, value) <= most]
    entry = replace(item.entry, params={**item.entry.params, key: few})
    return item._replace(entry=entry, cases=item.cases * len(few) // len(values))
