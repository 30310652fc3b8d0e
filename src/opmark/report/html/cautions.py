"""Cautions of a run: which kinds, how many cases of each, an example, and what to do."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from opmark.analysis.rows import Row, RunView
from opmark.report.html.content import Place
from opmark.report.html.failures import Link
from opmark.report.plain import printable
from opmark.schema.measurement import Caution

_LISTED = 200


class Doubt(NamedTuple):
    code: str
    message: str
    """The message of the first row that has it."""
    hints: list[str]
    total: int
    links: list[Link]

    @property
    def more(self) -> int:
        return self.total - len(self.links)


def doubts(run_view: RunView, place: Place) -> list[Doubt]:
    """The most frequent first."""
    found: dict[str, list[tuple[Row, Caution]]] = {}
    for row in run_view.rows:
        told: dict[str, Caution] = {}
        for key, caution in row.warnings():
            of = f"{' '.join(key)}: " if len(row.timings) > 1 else ""
            told.setdefault(caution.code, replace(caution, message=of + caution.message))
        for code, caution in told.items():
            found.setdefault(code, []).append((row, caution))
    return [
        Doubt(
            printable(code),
            printable(alike[0][1].message),
            list(dict.fromkeys(printable(caution.hint) for _, caution in alike if caution.hint))[:3],
            len(alike),
            [Link(place.href(row.key), printable(row.name), printable(row.where)) for row, _ in alike[:_LISTED]],
        )
        for code, alike in sorted(found.items(), key=lambda one: -len(one[1]))
    ]
