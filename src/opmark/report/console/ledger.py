"""Prints the ledger of a model, on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from opmark.analysis.ledger import Ledger, LedgerRow
from opmark.report.console.table import plain_table, print_rows
from opmark.units import count_bytes, count_noun, percent, rate, seconds

_MOST = 20
"""Operators that a screen has room for; the rest is one line."""
_HEADS = ("operator", "parameters", "calls", "one", "all", "of model", "flops", "bytes", "roofline", "reached", "gain")
_UNKNOWN = "-"


def kernels_table(kernels: Mapping[str, int]) -> Table:
    table = plain_table("kernel", "count")
    for kind, count in kernels.items():
        table.add_row(kind, str(count))
    return table


def print_ledger(ledger: Ledger, console: Console) -> None:
    """Print the operators by what the model would gain, then how their sum explains the model."""
    print_lines_above(ledger, console)
    shown, rest = ledger.rows[:_MOST], ledger.rows[_MOST:]
    several = len({row.cache for row in ledger.rows if row.cache}) > 1
    lines = [_line(row, named=several) for row in shown]
    if rest:
        total = sum(row.total or 0.0 for row in rest)
        gain = sum(row.gain or 0.0 for row in rest)
        lines.append([
            f"{len(rest)} others", "", str(sum(row.count for row in rest)), "", seconds(total),
            percent(total / ledger.seconds), "", "", "", "", seconds(gain) if gain else "",
        ])  # fmt: skip
    optional = (("roofline",), ("flops", "bytes"), ("one",))
    print_rows(_HEADS, lines, console, 2, left=("roofline",), optional=optional)
    for line in explain(ledger):
        console.print(line, soft_wrap=True, highlight=False)


def print_lines_above(ledger: Ledger, console: Console) -> None:
    time = f"({seconds(ledger.seconds)}) disturbed" if ledger.disturbed else seconds(ledger.seconds)
    title = f"{ledger.model} on {ledger.backend} ×{ledger.threads}: {ledger.quantity} {time}"
    console.print(title, soft_wrap=True, highlight=False)


def _line(row: LedgerRow, *, named: bool) -> list[str]:
    """Return the cells of an operator. `named`: with the state of the caches, in which operators differ."""
    name = [row.op.removeprefix("torch.ops."), row.parameters, str(row.count)]
    if row.seconds is None or row.total is None or row.share is None:
        return [*name, row.status, *[""] * 7]
    return [
        *name,
        f"{seconds(row.seconds)} {row.cache}" if named else seconds(row.seconds),
        seconds(row.total),
        percent(row.share),
        rate(row.flops, "") if row.flops else _UNKNOWN,
        count_bytes(row.bytes) if row.bytes else _UNKNOWN,
        f"{seconds(row.least)} {row.bound}" if row.least is not None else _UNKNOWN,
        percent(row.least / row.seconds) if row.least is not None else _UNKNOWN,
        seconds(row.gain) if row.gain is not None else _UNKNOWN,
    ]


def explain(ledger: Ledger) -> Iterator[str]:
    """Yield how the sum of the operators compares with the model, and where the difference comes from."""
    whole = percent(ledger.total / ledger.seconds)
    yield f"sum of {count_noun(ledger.calls, 'call')}: {seconds(ledger.total)}, {whole} of the model"
    states = sorted({row.cache for row in ledger.rows if row.cache})
    why = "more than" if ledger.driven_out else "no more than"
    data = count_bytes(ledger.footprint)
    yield f"caches {' and '.join(states)}: weights and results of all calls are {data}, {why} the last cache holds"
    if ledger.disturbed:
        yield f"disturbed, so that shares of the model mean little: {ledger.disturbed}"
    if ledger.between is not None and ledger.views and ledger.launch is not None:
        yield (
            f"between them: {count_noun(ledger.views, 'call')} that only make views, about {seconds(ledger.launch)} "
            f"each, {seconds(ledger.between)} in all, {percent(ledger.between / ledger.seconds)} of the model"
        )
    for row in ledger.missing:
        yield f"missing: {row.count} x {row.op} {row.parameters}: {row.status}, {row.reason}"
    rest = ledger.difference - (ledger.between or 0.0)
    if not ledger.close:
        yield (
            f"not explained: {percent(rest / ledger.seconds)}: "
            + ("operators are missing" if ledger.missing else "Python between the calls of small operators, or caches")
            if rest > 0
            else f"one by one the operators take {percent(-rest / ledger.seconds)} longer: in the model they find more "
            "of their data in the caches, or the machine was busier while they were measured"
        )
    if not ledger.peaks:
        yield "roofline and gain are unknown: `opmark calibrate` measures the peaks of this machine"
