"""Prints what can be varied, and what each factor does."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from opmark.report.console.table import print_rows
from opmark.schema.factors import FactorEffect, FactorOutcome, FactorSetting, FactorStudy
from opmark.units import count_noun, percent, significant

_TITLES = {"time": "What decides the time", "energy": "What decides the energy",
           "energy_delay": "What decides energy times delay"}  # fmt: skip


def print_settings(settings: Sequence[FactorSetting], console: Console) -> None:
    """Print a line for each setting: its range, and how it is controlled here, or why not."""
    heads = ("factor", "kind", "range", "by default", "how it is controlled")
    rows = [
        [one.name, one.group, "", "", f"not here: {one.why_not}"] if one.why_not
        else [one.name, one.group, one.range, "yes" if one.default else "", one.control]
        for one in settings
    ]  # fmt: skip
    print_rows(heads, rows, console, 4, left=heads[1:])


def print_study(found: FactorStudy, console: Console) -> None:
    """Print for each outcome a table of factors, the interactions, and what it means in sentences."""
    console.print(
        f"{found.op} on {found.backend}: {count_noun(found.points, 'point')} in "
        f"{count_noun(found.processes, 'process', 'processes')}, around {found.base}",
        highlight=False,
    )
    for outcome in found.outcomes:
        console.print()
        console.print(f"{_TITLES[outcome.outcome]} ({outcome.quantity})", highlight=False)
        _print_effects(outcome, console)
        for effect in outcome.effects:
            for sentence in effect.sentences:
                console.print(f"- {sentence}", highlight=False)
        for pair in outcome.interactions:
            if pair.sentence:
                console.print(f"- {pair.sentence} ({_interval(pair.low, pair.high)})", highlight=False)
        if outcome.noise is not None:
            console.print(f"noise: processes differ by {percent(outcome.noise)} at the same point", highlight=False)
    if found.failed:
        console.print(f"{count_noun(found.failed, 'record')} without a number: `opmark show {found.run}` says why")
    for note in found.notes:
        console.print(f"! {note}", highlight=False)


def _print_effects(outcome: FactorOutcome, console: Console) -> None:
    heads = ("factor", "levels", "share", "95 %", "with others", "effect", "trend", "lowest at", "rank corr.", "bits")
    rows = [_row(effect) for effect in outcome.effects]
    print_rows(heads, rows, console, 1, left=("levels", "trend", "lowest at"))


def _row(effect: FactorEffect) -> list[str]:
    names = [level.name for level in effect.levels]
    shown = f"{names[0]} to {names[-1]} ({len(names)})" if len(names) > 4 else ", ".join(names)
    known = effect.share is not None and effect.low is not None and effect.high is not None
    verdict = "unknown" if effect.matters is None else "" if effect.matters else "no effect"
    tied = f" (+{len(effect.best) - 1})" if len(effect.best) > 1 else ""
    return [
        effect.name, shown,
        _share(effect.share) if effect.share is not None else "",
        _interval(effect.low or 0.0, effect.high or 0.0) if known else "",
        _share(effect.total) if effect.total is not None else "",
        verdict or (f"{significant(effect.ratio, 3)}x" if effect.ratio else ""),
        effect.trend if effect.trend != "unknown" else "",
        f"{effect.best[0]}{tied}" if effect.best and effect.matters else "",
        "" if effect.spearman is None else f"{effect.spearman[0]:+.2f}",
        f"{effect.information:.2f}" if effect.information_p <= 0.05 else "0",
    ]  # fmt: skip


def _interval(low: float, high: float) -> str:
    return f"{_share(low)} to {_share(high)}"


def _share(value: float) -> str:
    """Return a share of the variance: what is far below a percent does not matter."""
    return "0 %" if value < 0.0005 else f"{100 * value:.1f} %" if value < 0.0995 else f"{100 * value:.0f} %"
