"""Prints rows under load: throughput, mean and percentiles with their intervals, and why a percentile is missing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.analysis.load import PERCENTILES
from opmark.analysis.rows import Row
from opmark.plugin.registry import way_of
from opmark.report.console.table import DOUBTFUL, STYLES, print_prose, print_rows
from opmark.stats.load import Estimate

_WHO = ("operator", "parameters", "backend")
_LOAD = ("clients", "batch", "arrival")
_BY_WORTH = ("p99", "mean", "p50", "samples/s", "p90", "p99.9")
"""Columns that a narrow terminal leaves out, the last of them first."""


def print_load(found: Sequence[Row], console: Console) -> None:
    """Print a line for each row under load, and below it why percentiles are missing."""
    batched = any(row.load_figures and row.load_figures.batch != 1 for row in found)
    heads = [*_WHO, *_LOAD, "requests/s", *(["samples/s"] if batched else []), "mean", *PERCENTILES, "status"]
    cells = [_cells(row) for row in found]
    lines = [[own.get(head, "") for head in heads] for own in cells]
    left_out = print_rows(
        heads, lines, console, len(_WHO), left=("arrival", "status"), optional=[(name,) for name in _BY_WORTH]
    )
    if left_out:
        print_prose(f"no room for {', '.join(left_out)}: `opmark show --format csv` has them all", console)
    refused: dict[str, int] = {}
    for row in found:
        for one in row.load_figures.percentiles.values() if row.load_figures else ():
            if one.value is None:
                refused[one.reason] = refused.get(one.reason, 0) + 1
    for reason, count in refused.items():
        rows = f" ({units.count_noun(count, 'row')})" if len(found) > 1 else ""
        print_prose(f"- {reason}{rows}; more --requests", console)


def _cells(row: Row) -> dict[str, Text | str]:
    load, figures = row.load, row.load_figures
    assert load is not None
    several = f" in {row.processes} processes" if row.processes > 1 else ""
    style = DOUBTFUL if row.cautions and row.status == "ok" else STYLES[row.status_text]
    cells: dict[str, Text | str] = {
        "operator": row.op,
        "parameters": row.parameters,
        "backend": f"{row.backend}{way_of(row.backend, row.implementation)} ×{row.threads}{several}",
        "clients": str(load.clients),
        "arrival": load.arrival if load.arrival == "closed" else f"{load.arrival} {load.rate:g}/s",
        "status": Text(row.status_text + (" !" if row.cautions else ""), style=style),
    }
    if figures is None:
        return cells
    return cells | {
        "batch": str(figures.batch),
        "requests/s": rate_text(figures.requests_per_second),
        "samples/s": rate_text(figures.samples_per_second),
        "mean": time_text(figures.mean),
        **{name: time_text(one) for name, one in figures.percentiles.items()},
    }


def rate_text(estimate: Estimate) -> str:
    """Return a rate with its interval; `-` where there is none."""
    return _text(estimate, 1.0, "")


def time_text(estimate: Estimate) -> str:
    """Return a time with its interval; `-` where the samples cannot support it."""
    scale, unit = units.seconds_unit(estimate.value or 0.0)
    return _text(estimate, scale, f" {unit}")


def _text(estimate: Estimate, scale: float, unit: str) -> str:
    if estimate.value is None:
        return "-"
    value = f"{units.significant(estimate.value / scale)}{unit}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({'–'.join(units.significant(end / scale) for end in (estimate.low, estimate.high))})"
