"""Numbers that are to be doubted: which, why, and where to read more. All of it goes to stderr."""

from __future__ import annotations

from collections.abc import Iterable

from opmark.api import talk
from opmark.exporters.opperf_rows import Line
from opmark.result import Result
from opmark.schema.measurement import PREEMPTED
from opmark.store.location import shown
from opmark.store.memory import NAME as IN_MEMORY
from opmark.units import counted


def where_to_look(result: Result) -> str:
    """The command that shows a run; empty where nothing is stored."""
    if str(result.db) == IN_MEMORY:
        return ""
    elsewhere = "" if result.db == shown() else f" --db {result.db}"
    return f"opmark show {result.run.id}{elsewhere}"


def say_doubt(what: str, codes: Iterable[str], look: str) -> None:
    """The codes alone: a busy machine has something to say of most numbers, and the run keeps all of it."""
    kinds = list(dict.fromkeys(codes))
    worthless = "; the number is the scheduler's, do not use it" if PREEMPTED in kinds else ""
    more = f"; `{look}` says more" if look else ""
    talk(f"{what} to be doubted: {', '.join(kinds)}{worthless}{more}")


def say_of_each_operator(lines: Iterable[Line], result: Result) -> None:
    """One line an operator."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.name, []).append(line)
    for name, own in by_name.items():
        doubtful = [line for line in own if line.cautions]
        if doubtful:
            what = f"{name}: {len(doubtful)} of {counted(len(own), 'result')}"
            say_doubt(what, _kinds(doubtful), where_to_look(result))


def say_of_all(lines: Iterable[Line], result: Result) -> None:
    """One line for a whole file."""
    doubtful = [line for line in lines if line.cautions]
    if doubtful:
        say_doubt(counted(len(doubtful), "result"), _kinds(doubtful), where_to_look(result))


def _kinds(lines: Iterable[Line]) -> list[str]:
    return [caution.partition(":")[0] for line in lines for caution in line.cautions]
