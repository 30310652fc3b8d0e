"""Beneath a table of communication: which rank keeps the others waiting, and what hides behind what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.analysis.rows import Row
from opmark.metrics.bus import Skew
from opmark.metrics.doubts import is_above
from opmark.report.tables import print_rows

STRAGGLING = 0.2
"""Skew beyond which the rank that is nearly always the slowest is named."""
_NEARLY_ALWAYS = 0.8
_FEWEST = 10
"""Samples that it takes: with two ranks that are alike, the chance that one is the slowest in more than 8 of 10 samples
is 1 in 50."""
_UNLIKE = ("root", "src")
"""Parameters of operators whose ranks have different work, so that one of them has to be the slowest."""
_OVERLAP = ("overlap", "parameters", "backend", "alone", "beside it, alone", "together", "hidden")


def straggler(row: Row) -> Skew | None:
    """The skew of a row where one rank is nearly always the slowest, and by much."""
    found = row.skew
    if found is None or found.slowest is None or found.samples < _FEWEST:
        return None
    alike = not any(name in row.params for name in _UNLIKE)
    return found if alike and found.often > _NEARLY_ALWAYS and found.share > STRAGGLING else None


def print_stragglers(found: Sequence[Row], console: Console, named: Callable[[Sequence[Row]], str]) -> None:
    """Print one line for each rank, with the first of the cases in which it keeps the others waiting."""
    late: dict[int, list[tuple[Row, Skew]]] = {}
    for row in found:
        if (apart := straggler(row)) and apart.slowest is not None:
            late.setdefault(apart.slowest, []).append((row, apart))
    if late:
        console.print()
    for rank, cases in late.items():
        apart = cases[0][1]
        said = f"the slowest in {units.percent(apart.often)} of the samples, ranks {units.percent(apart.share)} apart"
        console.print(Text(f"! straggler: {named([row for row, _ in cases])}: rank {rank} is {said}"), soft_wrap=True)
        console.print(Text("  hint: look at what else runs on its device, or at its link"), soft_wrap=True)


def print_above_link(found: Sequence[Row], console: Console, named: Callable[[Sequence[Row]], str]) -> None:
    """No link carries more than it can: then it is another one, or something on the way computes."""
    above = [row for row in found if row.of_link and is_above(row.of_link.share)]
    if above and (share := above[0].of_link):
        said = f"{units.percent(share.share)} of {share.link}; at most 100 % is possible"
        console.print(Text(f"! above-link: {named(above)}: {said}"), soft_wrap=True)
        hint = "  hint: data takes another way, a switch adds up on the way, or the hardware file is wrong"
        console.print(Text(hint), soft_wrap=True)


def print_overlaps(found: Sequence[Row], console: Console) -> None:
    """Print what each share of overlap is made of."""
    lines = [
        [
            row.op,
            row.parameters,
            row.where,
            f"{overlap.first} {units.seconds(overlap.first_alone)}",
            f"{overlap.second} {units.seconds(overlap.second_alone)}",
            units.seconds(overlap.together),
            units.percent(overlap.share),
        ]
        for row in found
        if (overlap := row.overlap)
    ]
    if lines:
        console.print()
        print_rows(_OVERLAP, lines, console, who=3)
