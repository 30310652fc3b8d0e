"""The gate's verdict, as a table: what fails the build first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from rich.console import Console

from opmark.report.comparison import FIGURES, Columns, figures, header, interval, ratio
from opmark.report.tables import print_rows
from opmark.schema.checked import FAIL_ON, Checked, Finding, Outcome
from opmark.units import counted, percent

_NEWS = ("slower", "failed", "unconfirmed", "missing", "undecided", "cleared", "faster", "mended")
"""What is worth a row."""


def checked_view(checked: Checked) -> dict[str, Any]:
    counts = dict(checked.counts())
    return {**msgspec.to_builtins(checked), "counts": counts, "failing": checked.failing, "exit": checked.exit_code}


def news(checked: Checked) -> list[Finding]:
    """In the order of their gravity; what is the same, or failed as before, is none."""
    worth = [finding for finding in checked.findings if finding.outcome in _NEWS]
    return sorted(worth, key=lambda finding: _NEWS.index(finding.outcome))


def row_figures(finding: Finding) -> list[str]:
    """The figures of the first measurement, with what the second one says behind them."""
    cells = figures(finding.pair)
    cells[-2] = finding.outcome
    again = finding.again
    if again is not None and again.ratio is not None:
        known = f" ({interval(again)})" if interval(again) else ""
        cells[-1] = f"again {ratio(again.ratio)}{known}: {again.verdict}"
    elif again is not None and again.note:
        cells[-1] = f"again: {again.note}"
    return cells


def print_checked(checked: Checked, console: Console) -> None:
    for line in header(checked.compared):
        _say(line, console)
    found = news(checked)
    if found:
        columns = Columns.of([finding.pair for finding in found])
        rows = [[*columns.cells(finding.pair), *row_figures(finding)] for finding in found]
        print_rows([*columns.heads, *FIGURES], rows, console, who=len(columns.heads))
    for line in (*remarks(checked), verdict(checked)):
        _say(line, console)


def _say(line: str, console: Console) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def remarks(checked: Checked) -> Iterator[str]:
    unsure = checked.counts()["unconfirmed"]
    if unsure and "unconfirmed" not in checked.fail_on:
        verb = "was" if unsure == 1 else "were"
        yield (
            f"WARNING: {counted(unsure, 'case')} {verb} slower twice than the stored numbers of a baseline that could "
            "not be measured again: the code or the machine; this fails only with --fail-on unconfirmed"
        )
    yield from checked.notes
    if checked.missing:
        listed = "; ".join(checked.missing[:5]) + ("; ..." if len(checked.missing) > 5 else "")
        yield f"{counted(len(checked.missing), 'case')} of the baseline not measured now: {listed}"


def verdict(checked: Checked) -> str:
    """One line."""
    counts = checked.counts()
    told = ", ".join(f"{counts[name]} {name}" for name in get_args(Outcome) if counts[name])
    mean = checked.compared.geomean
    over = f"; geometric mean {ratio(mean.ratio)} over {counted(mean.cases, 'case')}" if mean else ""
    word = "FAILED" if checked.exit_code else "passed"
    fails = [name for name in FAIL_ON if name in checked.fail_on] or ["nothing"]
    return f"{word}: {told}{over} (fails on {', '.join(fails)}; margin {percent(checked.compared.margin)})"
