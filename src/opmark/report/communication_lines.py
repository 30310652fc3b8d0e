"""Beneath a table of what communicates: which rank keeps the others waiting, and what hides behind what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.metrics.bus import Skew
from opmark.report.communication import link_share, overlap_of, straggler
from opmark.report.known import Known
from opmark.report.names import parameters, where
from opmark.report.rows import Row
from opmark.report.tables import print_rows
from opmark.schema.overlap import Overlap

ABOVE_LINK = 1.05
_OVERLAP = ("overlap", "parameters", "backend", "alone", "beside it, alone", "together", "hidden")


def print_stragglers(found: Sequence[Row], console: Console, called: Callable[[Sequence[Row]], str]) -> None:
    """One line a rank, by the first of the cases in which it keeps the others waiting."""
    late: dict[int, list[tuple[Row, Skew]]] = {}
    for row in found:
        if (apart := straggler(row)) and apart.slowest is not None:
            late.setdefault(apart.slowest, []).append((row, apart))
    if late:
        console.print()
    for rank, cases in late.items():
        apart = cases[0][1]
        said = f"the slowest in {units.percent(apart.often)} of the samples, ranks {units.percent(apart.share)} apart"
        console.print(Text(f"! straggler: {called([row for row, _ in cases])}: rank {rank} is {said}"), soft_wrap=True)
        console.print(Text("  hint: look at what else runs on its device, or at its link"), soft_wrap=True)


def print_above_link(
    found: Sequence[Row], console: Console, peaks: Mapping[str, Known], called: Callable[[Sequence[Row]], str]
) -> None:
    """No link carries more than it can: then it is another one, or something on the way computes."""
    shares = [(row, link_share(row, peaks.get(row.record.environment, Known()))) for row in found]
    above = [(row, share) for row, share in shares if share and share.share > ABOVE_LINK]
    if above:
        share = above[0][1]
        said = f"{units.percent(share.share)} of {share.link}; at most 100 % is possible"
        console.print(Text(f"! above-link: {called([row for row, _ in above])}: {said}"), soft_wrap=True)
        hint = "  hint: data takes another way, a switch adds up on the way, or the hardware file is wrong"
        console.print(Text(hint), soft_wrap=True)


def print_overlaps(found: Sequence[Row], console: Console) -> None:
    """What the share is made of."""
    rows_ = [(row, overlap) for row in found if (overlap := overlap_of(row))]
    if not rows_:
        return
    console.print()
    print_rows(_OVERLAP, [list(_overlap_cells(row, overlap)) for row, overlap in rows_], console, who=3)


def _overlap_cells(row: Row, overlap: Overlap) -> Iterator[str]:
    record = row.record
    yield from (record.task.case.op, parameters(record), where(row))
    yield f"{overlap.first} {units.seconds(overlap.first_alone)}"
    yield f"{overlap.second} {units.seconds(overlap.second_alone)}"
    yield from (units.seconds(overlap.together), units.percent(overlap.share))
