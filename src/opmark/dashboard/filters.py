"""Which items of a run are shown, and in which order: the same for its table and for its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from opmark.analysis.rows import Row
from opmark.store.records import RecordOutline

Sort = Literal["", "name", "-name", "time", "-time", "share", "-share", "backend", "-backend", "memory", "-memory"]
"""Empty: as it was measured. A `-` turns the order around."""
_Row = TypeVar("_Row")
Shown = Literal["", "ok", "failed", "wrong", "skipped", "error", "timeout", "oom"]
"""`failed` is whatever went wrong."""


class Filters(Struct, frozen=True, kw_only=True):
    op: str = ""
    backend: str = ""
    dtype: str = ""
    phase: str = ""
    status: Shown = ""
    q: Annotated[str, Meta(description="Words that are all in the name, the backend or the reason.")] = ""

    def filters(self) -> dict[str, str]:
        """The filters that are set: for the address of another page of the run."""
        return {name: value for name in Filters.__struct_fields__ if (value := getattr(self, name))}

    def fits(self, item: Row | RecordOutline) -> bool:
        if self.status == "failed" and not item.failed:
            return False
        if self.status not in ("", "failed", item.status):
            return False
        exact = ((self.op, item.op), (self.backend, item.backend), (self.dtype, item.dtype), (self.phase, item.phase))
        if any(wanted not in ("", found) for wanted, found in exact):
            return False
        return not self.q or (isinstance(item, Row) and _has(item, self.q))


class Options(Struct, frozen=True):
    """What can be asked for, of a run."""

    ops: list[str]
    backends: list[str]
    dtypes: list[str]
    phases: list[str]
    statuses: list[str]


def options_of(items: Sequence[Row] | Sequence[RecordOutline]) -> Options:
    found = zip(*{(item.op, item.backend, item.dtype, item.phase, item.status) for item in items}, strict=True)
    return Options(*[sorted(filter(None, set(values))) for values in (list(found) or [()] * 5)])


def ordered(items: Iterable[_Row], sort: Sort, keys: Mapping[str, Callable[[Any], Any]] | None = None) -> list[_Row]:
    """What has no value comes last, whichever way. `keys`: of what is no Row."""
    rows = list(items)
    if not sort:
        return rows
    key: Callable[[Any], Any] = (keys or _KEYS)[sort.removeprefix("-")]
    down = sort.startswith("-")
    valued = [(key(item), item) for item in rows]
    with_value = [pair for pair in valued if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=down)
    return [item for _, item in with_value] + [item for value, item in valued if value is None]


def _has(item: Row, words: str) -> bool:
    text = f"{item.name} {item.where} {item.implementation} {item.reason} {item.case}".casefold()
    return all(word in text for word in words.casefold().split())


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_KEYS: dict[str, Callable[[Row], Any]] = {
    "name": lambda item: item.name,
    "time": lambda item: _number(item.seconds),
    "share": lambda item: _number(item.of_peak.share) if item.of_peak else None,
    "backend": lambda item: item.where,
    "memory": lambda item: item.memory,
}
