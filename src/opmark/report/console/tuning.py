"""Prints spaces, the course of a tuning and what it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from opmark.plugin.space import format_configuration, format_value
from opmark.report.console.table import plain_table, print_rows
from opmark.units import count_noun, percent, seconds, significant

_MOST_VALUES = 8


def space_tables(spaces: Sequence[Mapping[str, Any]]) -> Iterator[Table | str]:
    """Yield for each space a title, a table of its knobs, and its rules."""
    for space in spaces:
        params = format_configuration(space["params"])
        about = "about " if space["allowed_is_estimate"] else ""
        yield (
            f"{space['op']} {params} on {space['backend']} ({space['implementation']}): "
            f"{count_noun(space['size'], 'combination')}, {about}{space['allowed']} allowed"
        )
        table = plain_table("knob", "kind", "number", "values", "default", "what it is")
        for knob in space["knobs"]:
            values = [format_value(value) for value in knob["values"]]
            more = [f"... {values[-1]}"] if len(values) > _MOST_VALUES else []
            shown = ", ".join([*values[: _MOST_VALUES - len(more)], *more])
            table.add_row(
                knob["name"], knob["kind"], str(knob["length"]), shown, format_value(knob["default"]), knob["summary"]
            )
        yield table
        yield from space["rules"]


def print_tuning(found: Mapping[str, Any], console: Console) -> None:
    """Print for each case default, tuned and library with the verdicts, then what is kept."""
    heads = ("case", "default", "tuned", "verdict", "library", "verdict", "tried", "failed", "kept")
    rows = []
    for one in found["cases"]:
        default, library, entry = one["against_default"], one["against_library"], one["entry"]
        kept = format_configuration(entry["configuration"]) or "the default"
        rows.append([
            one["case"],
            _time(entry["default_seconds"]), _time(default["b"] if default else None), _verdict(default),
            _time(library["a"] if library else None), _verdict(library),
            str(entry["trials"]), str(sum(one["failed"].values()) or ""), kept,
        ])  # fmt: skip
    print_rows(heads, rows, console, 1, left=("verdict", "kept"))
    for one in found["cases"]:
        if one["tied"] > 1:
            console.print(f"{one['case']}: a tie of {one['tied']} configurations; the first is shown", highlight=False)
        if (pair := one["against_default"]) and pair["verdict"] != "faster":
            why = f" ({pair['note']})" if pair["note"] else ""
            stays = "the default stays" if one["stored"] else f"what was tuned on {one['standing'][:10]} stays"
            console.print(f"{one['case']}: the best that was found is {pair['verdict']}{why}: {stays}", highlight=False)
        if (pair := one["against_library"]) and pair["note"]:
            console.print(f"{one['case']}: against {found['library']}: {pair['note']}", highlight=False)
        for reason, count in one["failed"].items():
            console.print(f"{one['case']}: {count_noun(count, 'candidate')} failed: {reason}", highlight=False)
    if found["library"]:
        console.print(f"library: {found['library']}", highlight=False)


def print_tuned(found: Sequence[Mapping[str, Any]], console: Console, *, near: bool = False) -> None:
    """Print entries of the database as they look from here."""
    heads = [
        "operator",
        "parameters",
        "backend",
        "threads",
        "default",
        "tuned",
        "verdict",
        "configuration",
        "made",
        "holds here",
    ]
    rows = []
    for one in found:
        row = [
            one["op"], format_configuration(one["params"]), one["backend"], str(one["target"]["threads"] or ""),
            _time(one["default_seconds"]), _time(one["tuned_seconds"]), one["verdict"],
            format_configuration(one["configuration"]) or _without_configuration(one), one["made"][:10],
            "stale: " + "; ".join(one["stale"]) if one["stale"] else "yes",
        ]  # fmt: skip
        if near:
            loss = one["expected_loss"]
            row += [f"{one['distance']:.2f}", "unknown" if loss is None else percent(loss) if one["distance"] else ""]
        rows.append(row)
    if near:
        heads += ["distance", "expected loss"]
    print_rows(heads, rows, console, 2, left=("verdict", "configuration", "made", "holds here"))


def _without_configuration(one: Mapping[str, Any]) -> str:
    """Return what an entry without a configuration means: a log of another system tells nothing of the default."""
    if one["origin"] == "opmark":
        return "the default stays"
    return f"nothing known: {one['note'] or 'no trial was right'}"


def _time(value: float | None) -> str:
    return "" if value is None else seconds(value)


def _verdict(pair: Mapping[str, Any] | None) -> str:
    if pair is None:
        return ""
    if pair["ratio"] is None:
        return str(pair["verdict"])
    return f"{pair['verdict']}, {significant(1 / pair['ratio'], 3)}x as fast"
