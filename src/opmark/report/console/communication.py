"""Prints remarks below a table of communication: stragglers, overlaps, and matrices of pairs of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from opmark import units
from opmark.analysis.bandwidth import Skew
from opmark.analysis.metrics import is_above
from opmark.analysis.rows import Row, case_parameters
from opmark.plugin.param import short_bytes
from opmark.report.console.table import print_lines, print_prose, print_rows
from opmark.schema import Case
from opmark.schema.case import content_id

STRAGGLING = 0.2
"""Skew beyond which the rank that is nearly always the slowest is named."""
_NEARLY_ALWAYS = 0.8
_FEWEST = 10
"""Number of samples that it takes: with two equal ranks, the chance that one is the slowest in more than 8 of 10
samples is 1 in 50."""
_UNLIKE = ("root", "src")
"""Parameters of operators whose ranks have different work, so that one of them has to be the slowest."""
_OVERLAP = ("overlap", "parameters", "backend", "alone", "beside it, alone", "together", "hidden")


def straggler(row: Row) -> Skew | None:
    """Return the skew of a row if one rank is nearly always the slowest, and by much."""
    found = row.skew
    if found is None or found.slowest is None or found.samples < _FEWEST:
        return None
    alike = not any(name in row.params for name in _UNLIKE)
    return found if alike and found.often > _NEARLY_ALWAYS and found.share > STRAGGLING else None


def print_stragglers(found: Sequence[Row], console: Console, name: Callable[[Sequence[Row]], str]) -> None:
    """Print one line for each rank, with the first of the cases in which it keeps the others waiting."""
    late: dict[int, list[tuple[Row, Skew]]] = {}
    for row in found:
        if (apart := straggler(row)) and apart.slowest is not None:
            late.setdefault(apart.slowest, []).append((row, apart))
    if late:
        console.print()
    for rank, cases in late.items():
        apart = cases[0][1]
        how = f"the slowest in {units.percent(apart.often)} of the samples, ranks {units.percent(apart.share)} apart"
        print_prose(f"! straggler: {name([row for row, _ in cases])}: rank {rank} is {how}", console)
        print_prose("  hint: look at what else runs on its device, or at its link", console)


def print_above_link(found: Sequence[Row], console: Console, name: Callable[[Sequence[Row]], str]) -> None:
    """Print the rows above the peak of their link, which means that data took another link or was reduced in a
    switch."""
    above = [row for row in found if row.of_link and is_above(row.of_link.share)]
    if above and (share := above[0].of_link):
        how = f"{units.percent(share.share)} of {share.link}; at most 100 % is possible"
        print_prose(f"! above-link: {name(above)}: {how}", console)
        hint = "  hint: data takes another way, a switch adds up on the way, or the hardware file is wrong"
        print_prose(hint, console)


def print_overlaps(found: Sequence[Row], console: Console) -> None:
    """Print the times from which each share of overlap is computed."""
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


# Matrices of bandwidths and times from every rank to every other, where pairs were measured.

Pair = tuple[int, int]
"""Sender and receiver."""


class Pairs(NamedTuple):
    """Rows that differ only in sender, receiver and size."""

    name: str
    quantity: str
    by_size: dict[int, dict[Pair, Row]]
    """Rows by requested size, or by bytes if the operator has no such parameter."""


def print_pairs(found: Sequence[Row], console: Console) -> None:
    """Print times of the smallest and bandwidths of the largest size that has several pairs."""
    for pairs in _group_pairs(found):
        sizes = [size for size in sorted(pairs.by_size) if len(pairs.by_size[size]) > 1]
        if not sizes:
            continue
        smallest, largest = (pairs.by_size[sizes[i]] for i in (0, -1))
        bandwidth = {pair: row.algorithm_bandwidth or 0.0 for pair, row in largest.items()}
        times = {pair: row.seconds or 0.0 for pair, row in smallest.items()}
        scale, unit = units.seconds_unit(_shortest(times))
        _print_matrix(f"{pairs.name}, size={short_bytes(sizes[-1])}: algbw GB/s", bandwidth, 1e9, console)
        _print_matrix(f"{pairs.name}, size={short_bytes(sizes[0])}: {pairs.quantity} {unit}", times, scale, console)


def _shortest(times: dict[Pair, float]) -> float:
    """Return the shortest time between two ranks. A copy of a rank to itself is much shorter, and counts only if there
    is nothing else."""
    return min([t for (src, dst), t in times.items() if src != dst] or times.values())


def _group_pairs(found: Sequence[Row]) -> list[Pairs]:
    grouped: dict[str, Pairs] = {}
    for row in found:
        params = row.params
        if row.traffic is None or row.seconds is None or not {"src", "dst"} <= params.keys():
            continue
        rest = {name: value for name, value in params.items() if name not in ("src", "dst", "size")}
        alike = content_id([row.op, rest, row.backend, row.implementation, row.threads, *row.keys[0]])
        parameters = case_parameters(Case.of(row.op, rest, row.phase))
        pairs = grouped.setdefault(alike, Pairs(" ".join((row.op, parameters, "on", row.where)), row.keys[0][0], {}))
        pairs.by_size.setdefault(params.get("size", row.traffic), {})[params["src"], params["dst"]] = row
    return list(grouped.values())


def _print_matrix(title: str, values: dict[Pair, float], scale: float, console: Console) -> None:
    """Print a row for each sender and a column for each receiver, with a dash for pairs that were not measured."""
    senders, receivers = (sorted({pair[i] for pair in values}) for i in (0, 1))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in ("from \\ to", *map(str, receivers)):
        table.add_column(head, justify="right", no_wrap=True)
    for sender in senders:
        cells = (values.get((sender, receiver)) for receiver in receivers)
        table.add_row(str(sender), *(units.significant(cell / scale) if cell else "-" for cell in cells))
    console.print()
    print_prose(title, console)
    print_lines(table, console)
