"""Prints histories: the changes of levels over many runs, and the series without a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.analysis.rows import unit_of
from opmark.plugin.registry import way_of
from opmark.report.console.table import WIDTH, print_prose, print_rows, sparkline
from opmark.report.text import printable
from opmark.schema.history import Histories, History, LevelChange, RunAt
from opmark.schema.run import short_revision
from opmark.stats.change_point import LASTING, SHORTEST

_HEADS = ("since", "operator", "parameters", "backend", "change", "interval", "p", "before", "after", "history", "")
_WHO = 4
_QUIET_HEADS = ("operator", "parameters", "backend", "runs", "last", "of its level", "history, no change", "")
_QUIET_WHO = 3
_FEW = 6
"""Up to this number, requested series are printed in full."""
_DAY = 10
"""Characters of a date."""
_FACTS = 3
"""Number of facts that are listed for a change; the others are counted, and `--json` has them."""
_STYLES = {"slower": "red", "faster": "green"}


def print_history(found: Histories, console: Console, *, named: bool) -> None:
    """Print up to `_FEW` requested series in full; otherwise a table of changes, newest first.

    `named`: whether the query names the series."""
    if named and len(found.series) <= _FEW:
        for history in found.series:
            for line in _full_lines(history):
                console.print(line, soft_wrap=True)
            console.print()
    else:
        rows = _rows(found.series)
        if rows:
            print_rows(_HEADS, rows, console, _WHO)
        _print_quiet(found.series, console)
    for text in _legend(found):
        print_prose(text, console)


def history_view(history: History) -> dict[str, Any]:
    """Return a history as `--json` prints it."""
    plain: dict[str, Any] = msgspec.to_builtins(history)
    for view, change in zip(plain["changes"], history.changes, strict=True):
        view["direction"] = change.direction
        view["cycles_ratio"] = change.cycles_ratio
    return plain | {"last_over_level": history.last}


def _rows(series: Sequence[History]) -> list[list[str]]:
    """Return a row for each change, newest first."""
    found = [(change, history) for history in series for change in history.changes]
    found.sort(key=lambda pair: pair[0].after.started, reverse=True)
    return [_change_row(change, history) for change, history in found]


def _change_row(change: LevelChange, history: History) -> list[str]:
    return [
        change.after.started[:_DAY],
        _op(history),
        _params(history),
        f"{_where(history)} {_quantity(history)}",
        f"{units.change(change.ratio)} {change.direction}{'' if change.sure else ' ?'}",
        f"{units.change(change.low)} to {units.change(change.high)}",
        _chance(change.p),
        _value(change.level_before, history),
        _value(change.level_after, history),
        sparkline([point.value for point in history.points]),
        "; ".join([f"{_run(change.before)} to {_run(change.after)}", *_cycles(change), *_facts(change)]),
    ]


def _print_quiet(series: Sequence[History], console: Console) -> None:
    """Print one line for each series without a change."""
    rows = [_quiet_row(history) for history in series if not history.changes]
    if rows:
        print_rows(_QUIET_HEADS, rows, console, _QUIET_WHO)


def _quiet_row(history: History) -> list[str]:
    return [
        _op(history),
        _params(history),
        f"{_where(history)} {_quantity(history)}",
        str(len(history.points)),
        _value(history.points[-1].value, history),
        units.change(history.last),
        sparkline([point.value for point in history.points]),
        "; ".join(filter(None, ["out of line" if history.warning else "", _shape(history)])),
    ]


def _shape(history: History) -> str:
    """Return how a series without a change goes; empty if it is level."""
    if history.states:
        low, high = history.states
        return f"two states: {_value(low, history)} and {_value(high, history)}, {units.change(high / low)}"
    return f"slow drift, {units.change(history.drift)} in all" if history.drift else ""


def _no_change(history: History) -> str:
    shape = _shape(history)
    return f"no change of its level, but {shape}" if shape else "no change of its level"


def _full_lines(history: History) -> Iterator[Text]:
    name = " ".join(filter(None, (_op(history), _params(history))))
    yield Text(f"{name}, {_where(history)}, {_quantity(history)}, {printable(history.chip)}", style="bold")
    values = [point.value for point in history.points]
    first, last = history.points[0].run, history.points[-1].run
    span = f"{_value(min(values), history)} to {_value(max(values), history)}"
    between = f"{first.started[:_DAY]} to {last.started[:_DAY]}"
    yield Text(f"  {units.count_noun(len(values), 'run')}, {between}: {span}  {sparkline(values, 2 * WIDTH)}")
    for change in history.changes:
        yield from _change_lines(change, history)
    if not history.changes:
        short = len(values) < 2 * SHORTEST
        yield Text("  too few runs to tell a change of its level" if short else f"  {_no_change(history)}")
    against = units.change(history.last)
    yield Text(f"  last: {_value(values[-1], history)}, {against} against its level{_spread(history)}")
    if history.warning:
        yield Text("  the newest runs are out of line: too few for a change yet", style="yellow")
    if history.outages:
        yield Text(f"  not counted: {_outages(history)}", style="yellow")


def _change_lines(change: LevelChange, history: History) -> Iterator[Text]:
    levels = f"{_value(change.level_before, history)} -> {_value(change.level_after, history)}"
    text = Text(f"  {change.after.started[:_DAY]}  ")
    text.append(f"{units.change(change.ratio)} {change.direction}", style=_STYLES[change.direction])
    text.append(f" ({units.change(change.low)} to {units.change(change.high)}, p {_chance(change.p)}): {levels}")
    if not change.settled:
        text.append(f"; may be a state of the machine: no level has lasted {LASTING} runs, or it wanders")
    elif not change.sure:
        text.append("; may be chance")
    yield text
    yield Text(f"      between {_run(change.before)} and {_run(change.after)}")
    for told in _cycles(change):
        yield Text(f"      {told}")
    facts = _facts(change)
    if facts:
        yield Text(f"      changed there: {'; '.join(facts)}")


def _cycles(change: LevelChange) -> list[str]:
    """Return the change in cycles, if the clock moved with the level."""
    if change.clocks is None or change.cycles_ratio is None:
        return []
    before, after = (f"{clock / 1e6:.0f}" for clock in change.clocks)
    return [f"the clock moved too, {before} -> {after} MHz: {units.change(change.cycles_ratio)} in cycles"]


def _facts(change: LevelChange) -> list[str]:
    facts = [printable(f"{fact} {_short_value(a)} -> {_short_value(b)}") for fact, (a, b) in change.differing.items()]
    more = len(facts) - _FACTS
    return [*facts[:_FACTS], f"and {units.count_noun(more, 'more fact')}"] if more > 0 else facts


def _short_value(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _run(run: RunAt) -> str:
    return printable(" ".join(filter(None, (run.id, run.label, short_revision(run.revision)))))


def _outages(history: History) -> str:
    counts = Counter(outage.status for outage in history.outages)
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{listed}, last in {_run(history.outages[-1].run)}"


def _spread(history: History) -> str:
    return f"; processes differ by {units.percent(history.floor)}" if history.floor else ""


def _op(history: History) -> str:
    return printable(history.op)


def _params(history: History) -> str:
    phase = "" if history.phase == "forward" else history.phase
    return printable(f"{history.params} {phase}".strip())


def _where(history: History) -> str:
    return printable(f"{history.backend}{way_of(history.backend, history.implementation)} {history.where}")


def _quantity(history: History) -> str:
    return " ".join(filter(None, (history.quantity, history.cache)))


def _value(value: float, history: History) -> str:
    scale, name = units.small_unit(value, unit_of(history.quantity))
    return f"{units.significant(value / scale)} {name}"


def _chance(p: float) -> str:
    return f"{p:.0e}" if p >= 1e-12 else "<1e-12"


def _legend(found: Histories) -> Iterator[str]:
    changed = sum(bool(history.changes) for history in found.series)
    warned = sum(history.warning for history in found.series)
    looked = f"{units.count_noun(found.looked, 'series', 'series')} of {2 * SHORTEST} runs or more"
    parts = [f"{looked}, {changed} with a change", f"{warned} out of line in the newest runs" if warned else ""]
    yield ", ".join(filter(None, parts)) + (f"; {found.short} shorter" if found.short else "")
    if changed and found.by_chance >= 1:
        yield f"among so many series, up to about {found.by_chance:.0f} of them by chance; `opmark ab` decides"
    if found.unsure:
        more = units.count_noun(found.unsure, "change")
        yield f"{more} may be chance among so many series: --all lists them with a `?`"
    if found.unsettled:
        more = units.count_noun(found.unsettled, "change")
        yield f"{more} may be states of the machine: --all lists them with a `?`; `opmark ab` decides"
    shapes = ((found.drifting, "slowly drift"), (found.alternating, "go to and fro between two states"))
    listed = [f"{count} {does}" for count, does in shapes if count]
    if listed:
        yield f"{', '.join(listed)}: no change; --all lists them"
