"""Which items of a run are shown, and in which order: the same for its table and for its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from opmark.schema.item import Item

Sort = Literal["", "name", "-name", "time", "-time", "share", "-share", "backend", "-backend", "memory", "-memory"]
"""Empty: as it was measured. A `-` turns the order around."""
Shown = Literal["", "ok", "failed", "wrong", "skipped", "error", "timeout", "oom"]
"""`failed` is whatever went wrong."""


class Filters(Struct, frozen=True, kw_only=True):
    op: str = ""
    backend: str = ""
    dtype: str = ""
    phase: str = ""
    status: Shown = ""
    q: Annotated[str, Meta(description="Words that are all in the name, the backend or the reason.")] = ""

    def fits(self, item: Item) -> bool:
        if self.status == "failed" and not item.failed:
            return False
        if self.status not in ("", "failed", item.status):
            return False
        exact = ((self.op, item.op), (self.backend, item.backend), (self.dtype, item.dtype), (self.phase, item.phase))
        if any(wanted not in ("", found) for wanted, found in exact):
            return False
        return not self.q or _has(item, self.q)


class Options(Struct, frozen=True):
    """What can be asked for, of a run."""

    ops: list[str]
    backends: list[str]
    dtypes: list[str]
    phases: list[str]
    statuses: list[str]


def options_of(items: Iterable[Item]) -> Options:
    found: tuple[dict[str, None], ...] = ({}, {}, {}, {}, {})
    for item in items:
        for known, value in zip(found, (item.op, item.backend, item.dtype, item.phase, item.status), strict=True):
            known[value] = None
    return Options(*[sorted(filter(None, known)) for known in found])


def ordered(items: Iterable[Item], sort: Sort) -> list[Item]:
    """What has no value comes last, whichever way."""
    rows = list(items)
    if not sort:
        return rows
    key, down = _KEYS[sort.removeprefix("-")], sort.startswith("-")
    with_value = [(value, item) for item in rows if (value := key(item)) is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=down)
    without = [item for item in rows if key(item) is None]
    return [item for _, item in with_value] + without


def _has(item: Item, words: str) -> bool:
    text = f"{item.name} {item.where} {item.implementation} {item.reason} {item.case}".casefold()
    return all(word in text for word in words.casefold().split())


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_KEYS: dict[str, Callable[[Item], Any]] = {
    "name": lambda item: item.name,
    "time": lambda item: _number(item.seconds),
    "share": lambda item: _number(item.of_peak.share) if item.of_peak else None,
    "backend": lambda item: item.where,
    "memory": lambda item: item.memory,
}
