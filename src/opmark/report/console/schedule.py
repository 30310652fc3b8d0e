"""Prints schedules: predicted makespans, the chosen schedule as a timeline, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from opmark.report.console.table import print_rows
from opmark.units import change, energy_delay, joules, seconds, significant

_WIDTH = 60
_MOST_UNITS = 30


def print_schedule(view: Mapping[str, Any], console: Console) -> None:
    plain = next((one["seconds"] for one in view["predictions"] if one["method"] == "sequential"), None)
    rows = []
    for one in view["predictions"]:
        interval = f"{seconds(one['low'])} – {seconds(one['high'])}" if one["low"] is not None else ""
        gain = f"{significant(plain / one['seconds'], 3)}x" if plain else ""
        mark = "chosen" if one["method"] == view["chosen"] else ""
        spent = [joules(one["joules"]), energy_delay(one["energy_delay"])] if one["joules"] is not None else ["", ""]
        rows.append([one["method"], seconds(one["seconds"]), interval, *spent, gain, mark, one["note"]])
    heads: tuple[str, ...] = ("schedule", "predicted", "interval", "energy", "energy × delay", "speedup", "", "note")
    if all(one["joules"] is None for one in view["predictions"]):
        rows, heads = [[*row[:3], *row[5:]] for row in rows], (*heads[:3], *heads[5:])
    print_rows(heads, rows, console, 1, left=("", "note"))
    if view["anarchy"] is not None:
        console.print(f"price of anarchy: {significant(view['anarchy'], 4)}", highlight=False)
    print_timeline(view, console)
    if view["measured"] is not None:
        pair = view["compared"]
        console.print(
            f"{view['chosen']}: predicted {seconds(view['predicted'])}, measured {seconds(view['measured'])} "
            f"({change(view['predicted'] / view['measured'])})",
            highlight=False,
        )
        console.print(_verdict(view, pair), highlight=False)
        for name, spent in ((view["chosen"], view["energy"]["chosen"]), (view["against"], view["energy"]["against"])):
            if spent:
                product = energy_delay(spent["energy_delay"])
                console.print(f"energy of {name}: {joules(spent['joules'])} a call, {product}", highlight=False)
    elif view["compared"] is not None:
        console.print(f"not measured: {view['compared']['note']}", highlight=False)


def _verdict(view: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    against = "the model as it is" if view["against"] == "as it is" else view["against"]
    if pair["ratio"] is None:
        return f"{view['chosen']} and {against}: {pair['note'] or pair['verdict']}"
    statuses = " and ".join(dict.fromkeys(pair["statuses"]))
    interval = f"{significant(1 / pair['high'], 3)} to {significant(1 / pair['low'], 3)}" if pair["low"] else "unknown"
    gained = f"{significant(1 / pair['ratio'], 3)}x as fast as {against} ({interval})"
    verdict = str(pair["verdict"])
    if verdict == "faster":
        return f"faster: {gained}, in turns, {statuses}"
    return f"{verdict}: no gain is claimed; {gained}, in turns, {statuses}"


def print_timeline(view: Mapping[str, Any], console: Console) -> None:
    """Print the lanes of the chosen schedule as lines of text, units as letters, and what the letters are."""
    placed = view["timeline"]["predicted"]
    if not placed or len({one["lane"] for one in placed}) < 2:
        return
    end = max(one["end"] for one in placed)
    units = sorted({one["unit"] for one in placed})
    letters = {unit: _letter(place) for place, unit in enumerate(units)}
    names = view["lanes"]
    for lane in sorted({one["lane"] for one in placed}):
        line = [" "] * _WIDTH
        for one in placed:
            if one["lane"] == lane:
                first = int(one["start"] / end * _WIDTH)
                last = max(first + 1, int(one["end"] / end * _WIDTH))
                line[first:last] = letters[one["unit"]] * (min(last, _WIDTH) - first)
        console.print(f"{names[lane] if lane < len(names) else lane}  |{''.join(line)}|", highlight=False, markup=False)
    shown: Sequence[int] = units[:_MOST_UNITS]
    listed = "; ".join(f"{letters[unit]} {view['units'][unit]}" for unit in shown)
    more = f"; and {len(units) - len(shown)} more" if len(units) > len(shown) else ""
    console.print(f"{listed}{more}", highlight=False, markup=False)


def _letter(place: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return letters[place % len(letters)]
