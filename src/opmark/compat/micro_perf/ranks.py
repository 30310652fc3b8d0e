"""Limits the ranks of communication to the number of devices, or to the list of `--device`.

ByteMicroPerf leaves out cases that need more ranks without a word; opmark says so. On a processor, where ByteMicroPerf
does not communicate, a core counts as a device, and a longer list of devices allows more processes than cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.compat.micro_perf.tasks import Item
from opmark.registry import operator as find_operator

_RANKS = "ranks"


class FittingItems(NamedTuple):
    items: list[Item]
    left_out: list[str]
    """One line for each task that is left out, in whole or in part."""


def fit_ranks(items: Sequence[Item], device: str | None, kind: str, *, v1: bool) -> FittingItems:
    """Leave out cases with more ranks than there are devices; `device` is the option, `kind` that of the backend."""
    most = _rank_limit(device, kind)
    kept: list[Item] = []
    lines: dict[str, None] = {}
    beyond: dict[str, set[int]] = {}
    for item in items:
        title, numbers = item.title(v1=v1), _rank_numbers(item)
        many = {ranks for ranks in numbers if most is not None and ranks > most}
        if kind == "cpu" and find_operator(item.entry.op).device_only:
            lines[f"{title}: left out, because there is no device beside the host"] = None
        elif not many:
            kept.append(item)
        else:
            beyond.setdefault(title, set()).update(many)
            kept += [_limit_ranks(item, most)] if most and len(many) < len(set(numbers)) else []
    for title, too_many in beyond.items():
        lines[_left_out_line(title, sorted(too_many), most, kind)] = None
    return FittingItems(kept, list(lines))


def _rank_limit(device: str | None, kind: str) -> int | None:
    """Return the most ranks; None where only the worker knows the number of devices."""
    if device not in (None, "all"):
        return len(str(device).split(","))
    return _cores() if kind == "cpu" else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _left_out_line(title: str, numbers: Sequence[int], most: int | None, kind: str) -> str:
    listed = ", ".join(map(str, numbers))
    if kind == "cpu":
        return f"{title}: left out with {listed} ranks: there are {most}, one per core, or as many as --device lists"
    return f"{title}: left out with {listed} ranks: --device names {most}"


def most_ranks(items: Sequence[Item]) -> int:
    return max((ranks for item in items for ranks in _rank_numbers(item)), default=1)


def _rank_numbers(item: Item) -> list[int]:
    """Return the number of ranks of each value of the axis of ranks; none for an operator of one device."""
    found = _axis(item)
    return [_ranks(found[0], value) for value in found[1]] if found else []


def _axis(item: Item) -> tuple[str, list[Any]] | None:
    """Return key and values of `ranks`, or of a dotted key that contains it."""
    if item.kind == "compute":
        return None
    written = item.entry.params
    key = next((key for key in written if _RANKS in key.split(".")), None)
    if key is None:
        return None
    return key, written[key] if isinstance(written[key], list) else [written[key]]


def _ranks(key: str, value: Any) -> int:
    return int(value[key.split(".").index(_RANKS)] if "." in key else value)


def _limit_ranks(item: Item, most: int) -> Item:
    key, values = _axis(item) or ("", [])
    few = [value for value in values if _ranks(key, value) <= most]
    entry = replace(item.entry, params={**item.entry.params, key: few})
    return item._replace(entry=entry, cases=item.cases * len(few) // len(values))
