"""From every rank to every other: a matrix of bandwidths and one of latencies, where pairs were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.analysis.rows import Row, case_parameters
from opmark.report.tables import print_lines
from opmark.schema import Case
from opmark.schema.case import content_id
from opmark.schema.shown import short_bytes

Pair = tuple[int, int]
"""From, to."""


class Pairs(NamedTuple):
    """What differs only in who sends to whom, and in how much."""

    name: str
    by_size: dict[int, dict[Pair, Row]]
    """Sizes as they were asked for; the bytes where there is no such parameter."""


def print_pairs(found: Sequence[Row], console: Console) -> None:
    """Latencies are those of the smallest size, bandwidths those of the largest that has several pairs."""
    for pairs in _pairs(found):
        sizes = [size for size in sorted(pairs.by_size) if len(pairs.by_size[size]) > 1]
        if not sizes:
            continue
        smallest, largest = (pairs.by_size[sizes[i]] for i in (0, -1))
        bandwidth = {pair: row.algorithm_bandwidth or 0.0 for pair, row in largest.items()}
        latency = {pair: row.seconds or 0.0 for pair, row in smallest.items()}
        scale, unit = units.seconds_unit(_shortest(latency))
        _print(f"{pairs.name}, size={short_bytes(sizes[-1])}: algbw GB/s", bandwidth, 1e9, console)
        _print(f"{pairs.name}, size={short_bytes(sizes[0])}: latency {unit}", latency, scale, console)


def _shortest(latency: dict[Pair, float]) -> float:
    """Between two ranks, where there are such: a copy to itself is so short that in its unit the others are long."""
    return min([t for (src, dst), t in latency.items() if src != dst] or latency.values())


def _pairs(found: Sequence[Row]) -> list[Pairs]:
    grouped: dict[str, Pairs] = {}
    for row in found:
        params = row.params
        if row.traffic is None or row.seconds is None or not {"src", "dst"} <= params.keys():
            continue
        rest = {name: value for name, value in params.items() if name not in ("src", "dst", "size")}
        alike = content_id([row.op, rest, row.backend, row.implementation, row.threads])
        said = case_parameters(Case.of(row.op, rest, row.phase))
        pairs = grouped.setdefault(alike, Pairs(" ".join((row.op, said, "on", row.where)), {}))
        pairs.by_size.setdefault(params.get("size", row.traffic), {})[params["src"], params["dst"]] = row
    return list(grouped.values())


def _print(title: str, values: dict[Pair, float], scale: float, console: Console) -> None:
    """A row a sender, a column a receiver; a dash where nothing was measured."""
    senders, receivers = (sorted({pair[i] for pair in values}) for i in (0, 1))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in ("from \\ to", *map(str, receivers)):
        table.add_column(head, justify="right", no_wrap=True)
    for sender in senders:
        cells = (values.get((sender, receiver)) for receiver in receivers)
        table.add_row(str(sender), *(units.significant(cell / scale) if cell else "-" for cell in cells))
    console.print()
    console.print(Text(title), soft_wrap=True)
    print_lines(table, console)
