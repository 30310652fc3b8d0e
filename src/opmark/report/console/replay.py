"""Prints what a replay of a trace covers, and replayed against recorded time per operator."""

from __future__ import annotations

from rich.console import Console

from opmark.report.console.table import print_prose, print_rows
from opmark.schema.replay import ReplayGap, ReplayReport
from opmark.units import count_bytes, count_noun, seconds, significant

_MOST = 20
"""Operators that a screen has room for; the rest is one line."""
_HEADS = ("operator", "calls", "recorded", "replayed", "ratio")
_MOST_NAMES = 4


def print_replay(report: ReplayReport, console: Console) -> None:
    """Print the operators by recorded time, then what is covered and what is not."""
    console.print()
    shown, rest = report.operators[:_MOST], report.operators[_MOST:]
    lines = [
        [one.name, str(one.calls), _time(one.recorded), _time(one.replayed), _ratio(one.ratio)] for one in shown
    ]  # fmt: skip
    if rest:
        recorded = sum(one.recorded or 0.0 for one in rest)
        replayed = sum(one.replayed or 0.0 for one in rest)
        calls = str(sum(one.calls for one in rest))
        lines.append([
            f"{len(rest)} others", calls, _time(recorded or None), _time(replayed),
            _ratio(replayed / recorded if recorded else None),
        ])  # fmt: skip
    print_rows(_HEADS, lines, console, 1, left=("operator",))
    console.print()
    for line in coverage_lines(report):
        print_prose(line, console)


def coverage_lines(report: ReplayReport) -> list[str]:
    """Return the coverage of a replay in words."""
    who = f"rank {report.rank}, " if report.rank is not None else ""
    found = [f"coverage on {who}{report.backend}: {report.headline}"]
    found += [f"left out: {_describe(gap)}" for gap in report.gaps]
    found += [f"left out as asked: {_describe(gap)}" for gap in report.chosen]
    found += report.notes
    same = report.compared - len(report.differences)
    found.append(
        f"shape and type of {same} of {count_noun(report.compared, 'result')} are as recorded; values are not verified"
    )
    found += [f"differs: {one}" for one in report.differences]
    found.append(
        f"tensors that exist before the step: {count_bytes(report.made_bytes)}; times per operator are of one replay "
        "that waits for each call"
    )
    return found


def _describe(gap: ReplayGap) -> str:
    names = [f"{name} ({count})" if count > 1 else name for name, count in gap.operators.items()]
    listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    time = "" if gap.recorded is None else f", {seconds(gap.recorded)} recorded"
    return f"{count_noun(gap.calls, 'call')}{time}: {gap.reason}: {listed}"


def _time(value: float | None) -> str:
    return "" if value is None else seconds(value)


def _ratio(value: float | None) -> str:
    return "" if value is None else significant(value)
