"""A workload as a file: what a person reads first, then one line an entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from opmark.schema import Entry, Workload


def yaml_text(workload: Workload) -> str:
    """Each entry on a line of its own, in the part of YAML that is JSON: quick to write, to read and to search."""
    head = {"schema": workload.schema, "name": workload.name, "description": workload.description}
    lines = [f"{key}: {_line(value)}" for key, value in head.items() if value]
    return "\n".join([*lines, "cases:", *(f"  - {_line(_brief(entry))}" for entry in workload.cases)]) + "\n"


def json_text(workload: Workload) -> str:
    whole = {**msgspec.to_builtins(workload), "cases": [_brief(entry) for entry in workload.cases]}
    return _line(whole) + "\n"


def compact(entries: Sequence[Entry]) -> list[Entry]:
    """Neighbours that differ in the values of their parameters alone, as one entry with rows: the same cases, in the
    same order."""
    found: list[Entry] = []
    for _, group in groupby(entries, key=_alike):
        found += _joined(list(group))
    return found


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _brief(entry: Entry) -> dict[str, Any]:
    """What differs from the defaults."""
    usual = msgspec.to_builtins(Entry(entry.op))
    return {key: value for key, value in msgspec.to_builtins(entry).items() if key == "op" or value != usual[key]}


def _alike(entry: Entry) -> bytes:
    rest = msgspec.structs.replace(entry, params=dict.fromkeys(entry.params))
    return msgspec.json.encode(rest)


def _joined(group: list[Entry]) -> Iterator[Entry]:
    first = group[0]
    constant = {k: v for k, v in first.params.items() if all(entry.params[k] == v for entry in group)}
    changing = [name for name in first.params if name not in constant]
    if len(group) == 1 or not changing:
        yield from group
        return
    rows = [[_value(entry.params[name]) for name in changing] for entry in group]
    axis: list[Any] = [row[0] for row in rows] if len(changing) == 1 else rows
    yield msgspec.structs.replace(first, params={**constant, ".".join(changing): axis})


def _value(written: Any) -> Any:
    """A list that is one value is written as an axis of one."""
    return written[0] if isinstance(written, list) and len(written) == 1 and isinstance(written[0], list) else written
