"""Data to stdout, talk to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opmark.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from opmark.report.view import Known
    from opmark.schema import Record


def console(*, stderr: bool = False) -> Console:
    """For tables. Where nobody looks at a screen, lines are as long as they need to be."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr) if stream.isatty() else Console(stderr=stderr, width=1000, highlight=False)


def talk(message: str) -> None:
    print(message, file=sys.stderr)


def print_json_lines(items: Iterable[Any]) -> None:
    for item in items:
        sys.stdout.write(msgspec.json.encode(item).decode() + "\n")
    sys.stdout.flush()


def print_records(records: Sequence[Record], peaks: Mapping[str, Known] | None = None, *, long: bool = False) -> None:
    """Side by side where several backends ran the same case; `long`: a row a task all the same."""
    from opmark.report.beside import several_backends

    if not long and several_backends(records):
        from opmark.report.beside_table import print_beside as print_table
    else:
        from opmark.report.console import print_records as print_table
    print_table(records, console(), peaks)


def split(values: Iterable[str]) -> list[str]:
    """Options that take several values take them by comma, by repetition, or both."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def write_out(text: str, path: Path | None) -> None:
    """To a file, its folder made if need be, or to standard output."""
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()  # before what is said of it
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
