"""Data to stdout, talk to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console

    from opmark.report.view import Known
    from opmark.schema import Record


def console() -> Console:
    """For tables. Where nobody looks at a screen, lines are as long as they need to be."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=1000, highlight=False)


def print_json_lines(items: Iterable[Any]) -> None:
    for item in items:
        sys.stdout.write(msgspec.json.encode(item).decode() + "\n")
    sys.stdout.flush()


def print_records(records: Sequence[Record], peaks: Mapping[str, Known] | None = None) -> None:
    from opmark.report.console import print_records as print_table

    print_table(records, console(), peaks)


def split(values: Iterable[str]) -> list[str]:
    """Options that take several values take them by comma, by repetition, or both."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
