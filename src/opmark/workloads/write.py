"""Write a workload as a file: name and description first, then one line per entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from opmark.schema import Entry, Workload


def yaml_text(workload: Workload) -> str:
    """Format a workload with each entry on one line, in the subset of YAML that is JSON: fast to write, read and
    search."""
    head = {"schema": workload.schema, "name": workload.name, "description": workload.description}
    lines = [f"{key}: {_line(value)}" for key, value in head.items() if value]
    return "\n".join([*lines, "cases:", *(f"  - {_line(_brief(entry))}" for entry in workload.cases)]) + "\n"


def json_text(workload: Workload) -> str:
    whole = {**msgspec.to_builtins(workload), "cases": [_brief(entry) for entry in workload.cases]}
    return _line(whole) + "\n"


def compact(entries: Sequence[Entry]) -> list[Entry]:
    """Join neighbouring entries that differ only in the values of their parameters into one entry with rows. The cases
    and their order stay the same."""
    found: list[Entry] = []
    for _, group in groupby(entries, key=_group_key):
        found += _join(list(group))
    return found


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _brief(entry: Entry) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    usual = msgspec.to_builtins(Entry(entry.op))
    return {key: value for key, value in msgspec.to_builtins(entry).items() if key == "op" or value != usual[key]}


def _group_key(entry: Entry) -> bytes:
    rest = msgspec.structs.replace(entry, params=dict.fromkeys(entry.params))
    return msgspec.json.encode(rest)


def _join(group: list[Entry]) -> Iterator[Entry]:
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
    """Unwrap a list value, which an entry writes as an axis of one value."""
    return written[0] if isinstance(written, list) and len(written) == 1 and isinstance(written[0], list) else written
