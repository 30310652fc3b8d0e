"""Prints the operators of captured steps on one screen, and what to look at first."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console

from opmark.analysis.hotspots import HotOperator, StepProfile
from opmark.report.console.table import PlainConsole, print_prose, print_rows
from opmark.units import count_bytes, count_noun, percent, rate, seconds

_MOST, _MANY, _FEWEST = 15, 8, 3
"""Operators that are shown, as far as a terminal has room for them; the rest is one line. Where many do not fit, only
the first tensor of each is written."""
_OTHER_LINES = 3
"""Lines of a screen that are not its own: what was captured, and the prompt."""
_HEADS = ("operator", "tensors", "calls", "one", "all", "of step", "flops", "bytes", "reached", "limit", "gain")
_UNKNOWN = "-"
_MUCH_BETWEEN = 0.3
"""Share of the step without calls from which on it is said."""


def print_hotspots(profile: StepProfile, console: Console) -> None:
    """Print a screen: on a terminal as many operators as fit on it."""
    whole = [(most, False) for most in range(_MOST, _MANY - 1, -1)]
    short = [(most, True) for most in range(_MOST, _FEWEST - 1, -1)]
    most, brief = whole[0]
    for most, brief in [*whole, *short] if console.is_terminal else whole[:1]:
        screen = io.StringIO()
        _print_screen(profile, PlainConsole(file=screen, width=console.width, force_terminal=True), most, brief)
        if screen.getvalue().count("\n") <= console.height - _OTHER_LINES:
            break
    _print_screen(profile, console, most, brief)


def _print_screen(profile: StepProfile, console: Console, most: int, brief: bool) -> None:
    time = seconds(profile.median)
    plain = f", {seconds(profile.plain)} without the profiler" if profile.plain else ""
    calls = count_noun(round(profile.calls), "call")
    print_prose(f"one step on {profile.where}: {time}{plain}; {calls} of torch", console)
    shown, rest = profile.rows[:most], profile.rows[most:]
    lines = [_line(row, brief) for row in shown]
    if rest:
        total, gain = sum(row.total for row in rest), sum(row.gain or 0.0 for row in rest)
        share = percent(sum(row.share for row in rest))
        count = f"{sum(row.count for row in rest):g}"
        others = [f"{len(rest)} others", "", count, "", seconds(total), share, "", "", "", ""]
        lines.append([*others, seconds(gain) if gain else ""])
    between = profile.between * profile.seconds
    idle = "the device idle" if profile.on_device else "between the calls"
    lines.append([idle, "", "", "", seconds(between), percent(profile.between), *[""] * 5])
    heads: tuple[str, ...] = _HEADS
    if not profile.peaks:
        heads, lines = heads[:-2], [line[:-2] for line in lines]
    optional = (("gain",), ("one",), ("limit",), ("flops", "bytes"))
    print_rows(heads, lines, console, 2, left=("limit",), optional=optional)
    console.print()
    for sentence in advise(profile):
        print_prose(sentence, console)


def _name(row: HotOperator) -> str:
    name = row.op.removeprefix("aten::")
    return f"{name} ({row.part})" if row.part else name


def _line(row: HotOperator, brief: bool) -> list[str]:
    first, more, _ = row.shapes.partition(", ")
    return [
        _name(row),
        f"{first}, ..." if brief and more else row.shapes,
        f"{row.count:g}",
        seconds(row.seconds),
        seconds(row.total),
        percent(row.share),
        rate(row.flops, "").strip() if row.flops else _UNKNOWN,
        count_bytes(row.bytes) if row.bytes else _UNKNOWN,
        percent(row.least / row.seconds) if row.least is not None and row.seconds else _UNKNOWN,
        row.bound or _UNKNOWN,
        seconds(row.gain) if row.gain is not None else _UNKNOWN,
    ]


def advise(profile: StepProfile) -> Iterator[str]:
    """Yield what to look at first, and the commands to go on with."""
    first = profile.first
    if profile.between > _MUCH_BETWEEN:
        where = "no kernel runs on the device" if profile.on_device else "no operator runs"
        yield (
            f"During {percent(profile.between)} of the step {where}: Python, data loading or launches are the limit, "
            "so look there first (torch.compile, larger batches, a data loader with workers)."
        )
    if first is not None:
        text = f"Look at {_name(first)} {first.shapes}".rstrip() + f": {percent(first.share)} of the step"
        if first.gain and first.least is not None:
            text += (
                f", and {percent(first.least / first.seconds)} of what this machine's {first.bound} allows. "
                f"At the roofline a step would take {seconds(first.gain)} less."
            )
        else:
            text += "."
        yield text
    if not profile.peaks:
        yield "The roofline of this machine is not known: `opmark calibrate` measures it."
    yield (
        f"Go on: `opmark import {profile.file} -o ops.yaml` writes these calls as a workload, `opmark run -w ops.yaml` "
        f"measures them one by one, and `opmark replay {profile.file}` runs them all again."
    )
