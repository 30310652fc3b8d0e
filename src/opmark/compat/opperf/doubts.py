"""Messages about doubtful numbers on standard error: which, why, and the command that shows more."""

from __future__ import annotations

from collections.abc import Iterable

from opmark.api import talk
from opmark.exporters.opperf_rows import Line
from opmark.result import Result
from opmark.schema.measurement import PREEMPTED
from opmark.store.location import shown
from opmark.store.memory import NAME as IN_MEMORY
from opmark.units import counted


def show_command(result: Result) -> str:
    """Return the command that shows a run; empty if it is not stored."""
    if str(result.db) == IN_MEMORY:
        return ""
    option = "" if result.db == shown() else f" --db {result.db}"
    return f"opmark show {result.run.id}{option}"


def print_doubt(what: str, codes: Iterable[str], command: str) -> None:
    """Print only the codes: on a busy machine most numbers have cautions, and the run stores their full text."""
    kinds = list(dict.fromkeys(codes))
    worthless = "; do not use numbers of a preempted call" if PREEMPTED in kinds else ""
    more = f"; `{command}` shows details" if command else ""
    talk(f"{what} to be doubted: {', '.join(kinds)}{worthless}{more}")


def print_doubts_by_operator(lines: Iterable[Line], result: Result) -> None:
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.name, []).append(line)
    for name, own in by_name.items():
        doubtful = [line for line in own if line.cautions]
        if doubtful:
            what = f"{name}: {len(doubtful)} of {counted(len(own), 'result')}"
            print_doubt(what, _codes(doubtful), show_command(result))


def print_doubts_of_file(lines: Iterable[Line], result: Result) -> None:
    doubtful = [line for line in lines if line.cautions]
    if doubtful:
        print_doubt(counted(len(doubtful), "result"), _codes(doubtful), show_command(result))


def _codes(lines: Iterable[Line]) -> list[str]:
    return [caution.partition(":")[0] for line in lines for caution in line.cautions]
