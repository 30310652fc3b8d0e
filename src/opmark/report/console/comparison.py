"""Prints comparisons, the verdict of the gate, and the result of a bisection."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from io import StringIO
from typing import Any, get_args

import msgspec
from rich.console import Console

from opmark.report.comparison import (
    _WIDE,
    CYCLES,
    Columns,
    clock_lines,
    footer,
    header,
    interval,
    mean_cases,
    ratio,
    select_pairs,
    split_by_quantity,
    step_lines,
)
from opmark.report.console.table import fits, print_prose, print_rows
from opmark.schema.comparison import FAIL_ON, BisectResult, Candidate, CheckedCase, CheckResult, Compared, Outcome
from opmark.units import count_noun, percent, significant

_NEWS = ("slower", "failed", "unconfirmed", "missing", "undecided", "cleared", "faster", "mended")
"""Outcomes that get a row, in order of severity."""


def checked_view(checked: CheckResult) -> dict[str, Any]:
    counts = dict(checked.counts())
    return {**msgspec.to_builtins(checked), "counts": counts, "failing": checked.failing, "exit": checked.exit_code}


def news(checked: CheckResult) -> list[CheckedCase]:
    """Return the findings that get a row, the most severe first; unchanged cases and old failures get none."""
    found = [finding for finding in checked.findings if finding.outcome in _NEWS]
    return sorted(found, key=lambda finding: _NEWS.index(finding.outcome))


def row_figures(finding: CheckedCase, columns: Columns) -> list[str]:
    """Return the figures of the first measurement, followed by the result of the second one."""
    cells = columns.figures(finding.pair)
    cells[-2] = finding.outcome
    again = finding.again
    if again is not None and again.ratio is not None:
        known = f" ({interval(again)})" if interval(again) else ""
        cells[-1] = f"again {ratio(again.ratio)}{known}: {again.verdict}"
    elif again is not None and again.note:
        cells[-1] = f"again: {again.note}"
    return cells


def print_checked(checked: CheckResult, console: Console) -> None:
    for line in header(checked.compared):
        _print_line(line, console)
    found = news(checked)
    if found:
        columns = Columns.of([finding.pair for finding in found])
        parts = split_by_quantity(found, lambda one: one.pair)
        _print_tables(
            columns,
            [[[*columns.cells(one.pair), *row_figures(one, columns)] for one in part] for part in parts],
            console,
        )
    for line in (*remarks(checked), verdict(checked)):
        _print_line(line, console)


def remarks(checked: CheckResult) -> Iterator[str]:
    unsure = checked.counts()["unconfirmed"]
    if unsure and "unconfirmed" not in checked.fail_on:
        verb = "was" if unsure == 1 else "were"
        yield (
            f"WARNING: {count_noun(unsure, 'case')} {verb} slower twice than the stored numbers of a baseline that "
            "could not be measured again: the code or the machine; this fails only with --fail-on unconfirmed"
        )
    yield from checked.notes
    yield from step_lines(checked.compared)
    yield from clock_lines(checked.compared)
    if checked.missing:
        listed = "; ".join(checked.missing[:5]) + ("; ..." if len(checked.missing) > 5 else "")
        yield f"{count_noun(len(checked.missing), 'case')} of the baseline not measured now: {listed}"


def verdict(checked: CheckResult) -> str:
    counts = checked.counts()
    listed = ", ".join(f"{counts[name]} {name}" for name in get_args(Outcome) if counts[name])
    mean = checked.compared.geomean
    over = f"; geometric mean {ratio(mean.ratio)} over {mean_cases(checked.compared, mean)}" if mean else ""
    word = "FAILED" if checked.exit_code else "passed"
    fails = [name for name in FAIL_ON if name in checked.fail_on] or ["nothing"]
    return f"{word}: {listed}{over} (fails on {', '.join(fails)}; margin {percent(checked.compared.margin)})"


# Lines of a bisection.

_SHORT = 10
_RESULTS = {"good": "as fast as the good one", "bad": "slower", "skip": "skipped"}


def bisected_lines(found: BisectResult) -> Iterator[str]:
    if not found.first:
        yield nothing_slower(found.compared)
        return
    yield f"{found.op} {found.params}: {_bad_end(found)}"
    half, what = significant(1 + found.margin), "version" if found.package else "commit"
    yield f"a {what} is bad where it takes {half} times as long or more: half of that, by factor"
    for step in found.steps:
        yield f"  {step_line(step)}"
    if len(found.first) == 1:
        named = f"{found.package} {found.first[0].commit}".strip()
        yield f"first bad {what}: {named}"
        yield from _about(found.first[0], what)
        return
    yield f"the first bad {what} is one of {len(found.first)}: those before it had to be skipped"
    for one in found.first:
        who = f" {one.author}" if one.author else ""
        yield f"  {one.commit}{who}: {one.subject}{f' ({one.why})' if one.why else ''}"


def step_line(step: Candidate) -> str:
    return f"{step.commit[:_SHORT]} {step.word}: {_ratio_text(step)}{step.why or _RESULTS[step.word]}: {step.subject}"


def _about(one: Candidate, what: str) -> Iterator[str]:
    if one.author:
        yield f"  {one.author}, {one.date}"
        yield f"  {one.subject}"
    if one.ratio is not None:
        yield f"  {_ratio_text(one)}B/A of the good {what} and this one, measured in turns"


def _bad_end(found: BisectResult) -> str:
    end = next(pair for pair in found.compared.pairs if pair.case == found.case and pair.ratio is not None)
    return f"{found.bad[:_SHORT]} takes {significant(end.ratio or 0.0)} times as long as {found.good[:_SHORT]}"


def _ratio_text(one: Candidate) -> str:
    if one.ratio is None or one.low is None or one.high is None:
        return ""
    return f"{significant(one.ratio)} ({significant(one.low)}–{significant(one.high)}) "


def nothing_slower(compared: Compared) -> str:
    counts = compared.counts()
    listed = ", ".join(f"{counts[word]} {word}" for word in ("faster", "same", "undecided") if counts[word])
    return (
        f"nothing to look for: of {count_noun(len(compared.pairs), 'case')}, none is slower in {compared.b} than in "
        f"{compared.a} beyond doubt ({listed})"
    )


def print_comparison(compared: Compared, console: Console, only: Collection[str] = ()) -> None:
    pairs = select_pairs(compared, only)
    for line in header(compared):
        _print_line(line, console)
    if pairs:
        columns, parts = Columns.of(pairs), split_by_quantity(pairs, lambda pair: pair)
        _print_tables(
            columns, [[[*columns.cells(pair), *columns.figures(pair)] for pair in part] for part in parts], console
        )
    for line in footer(compared):
        _print_line(line, console)


def _print_tables(columns: Columns, tables: list[list[list[str]]], console: Console) -> None:
    """Print a table for each quantity, with a row for each pair, whose last cell is a note. Where a terminal has no
    room for the notes, each different one gets a number, and stands below."""
    heads = [*columns.heads, *columns.figure_heads]
    numbers: dict[str, int] = {}
    left_out: dict[str, None] = {}
    if not all(fits(heads, rows, console) for rows in tables):
        for row in (row for rows in tables for row in rows):
            row[-1] = row[-1] and f"[{numbers.setdefault(row[-1], len(numbers) + 1)}]"
    for rows in tables:
        if rows is not tables[0]:
            console.print()
        hidden = print_rows(
            heads, rows, console, len(columns.heads), optional=(("A", "B"), ("interval",), CYCLES[:2]), name_share=0.0
        )  # fmt: skip
        left_out |= dict.fromkeys(hidden)
    if left_out:
        _print_line(f"no room for {', '.join(left_out)}: a wider terminal shows every column", console)
    for note, number in numbers.items():
        _print_line(f"[{number}] {note}", console)


def comparison_text(compared: Compared, only: Collection[str] = ()) -> str:
    """Return the comparison as text for a file."""
    written = StringIO()
    print_comparison(compared, Console(file=written, width=_WIDE, highlight=False), only)
    return written.getvalue()


def _print_line(line: str, console: Console) -> None:
    print_prose(line, console)
