"""Numbers that are to be doubted: which, why, and where to read more. All of it goes to stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opmark.api import Result, talk
from opmark.exporters.opperf_rows import Line
from opmark.store.location import store_path
from opmark.store.memory import NAME as IN_MEMORY
from opmark.units import counted


def where_to_look(result: Result) -> str:
    """The command that shows a run; empty where nothing is stored."""
    if str(result.db) == IN_MEMORY:
        return ""
    elsewhere = "" if result.db == store_path() else f" --db {result.db}"
    return f"opmark show {result.run.id}{elsewhere}"


def say_doubt(what: str, reasons: Sequence[str], look: str) -> None:
    more = f"; `{look}` says more" if look else ""
    talk(f"{what} to be doubted: {'; '.join(reasons)}{more}")


def say_of_each_operator(lines: Iterable[Line], result: Result) -> None:
    """One line an operator, with the first reason of each kind."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.name, []).append(line)
    for name, own in by_name.items():
        doubtful = [line for line in own if line.cautions]
        if doubtful:
            what = f"{name}: {len(doubtful)} of {counted(len(own), 'result')}"
            say_doubt(what, _first_of_each_kind(doubtful), where_to_look(result))


def say_of_all(lines: Iterable[Line], result: Result) -> None:
    """One line for a whole file."""
    doubtful = [line for line in lines if line.cautions]
    if doubtful:
        kinds = dict.fromkeys(_kind(caution) for line in doubtful for caution in line.cautions)
        say_doubt(counted(len(doubtful), "result"), [", ".join(kinds)], where_to_look(result))


def _first_of_each_kind(lines: Iterable[Line]) -> list[str]:
    found: dict[str, str] = {}
    for line in lines:
        for caution in line.cautions:
            found.setdefault(_kind(caution), caution)
    return list(found.values())


def _kind(caution: str) -> str:
    return caution.partition(":")[0]
