"""A night for people and programs: lines of text, Markdown, and the JSON that a hook gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from opmark.report.comparison import ratio
from opmark.report.formats.markdown import escape_markdown
from opmark.report.text import format_duration
from opmark.schema.comparison import difference_lines
from opmark.schema.nightly import BisectNews, CaseNews, LevelNews, Night, NightRun
from opmark.units import count_noun

_CASES = 20
"""Number of cases of a run that are named."""


def night_view(night: Night) -> dict[str, Any]:
    """Return the plain data of a night, with its verdict."""
    verdict = "failed" if night.exit_code else "passed"
    return {"verdict": verdict, "changed": night.changed, **msgspec.to_builtins(night)}


def night_lines(night: Night) -> Iterator[str]:
    yield f"night of {night.date}: {'FAILED' if night.exit_code else 'passed'}"
    if night.missed:
        yield f"missed before: {', '.join(night.missed)}"
    for problem in night.problems:
        yield f"problem: {problem}"
    for run in night.runs:
        yield from _run_lines(run)


def _run_lines(run: NightRun) -> Iterator[str]:
    yield _headline(run)
    if run.problem:
        yield f"  problem: {run.problem}"
    for one in run.news[:_CASES]:
        yield f"  {_case_line(one)}"
    if len(run.news) > _CASES:
        yield f"  and {len(run.news) - _CASES} more"
    for change in run.history[:_CASES]:
        yield f"  {_level_line(change)}"
    for found in run.bisected:
        yield f"  {_bisect_line(found)}"
    for note in run.notes:
        yield f"  {note}"


def _headline(run: NightRun) -> str:
    part = f" part {run.part}" if run.part else ""
    late = " (of a missed night)" if run.caught_up else ""
    if not run.run:
        return f"{run.label}{part}{late}: not measured"
    measured = f"run {run.run}, {_counted(run.statuses)} in {format_duration(run.seconds)}"
    against = f"; {run.verdict} against {run.baseline}: {_counted(run.counts)}" if run.verdict else ""
    return f"{run.label}{part}{late}: {measured}{against}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing"


def _case_line(one: CaseNews) -> str:
    phase = "" if one.phase == "forward" else f" {one.phase}"
    case = f"{one.op} {one.params}{phase} on {one.where}"
    if one.ratio is None:
        return f"{one.outcome}: {case}{f': {one.why}' if one.why else ''}"
    known = f" ({ratio(one.low)} to {ratio(one.high)})" if one.low is not None and one.high is not None else ""
    return f"{one.outcome}: {case}: {ratio(one.ratio)}{known}"


def _level_line(one: LevelNews) -> str:
    word = "slower" if one.ratio > 1 else "faster"
    facts = "; ".join(f"{fact} {text}" for fact, text in difference_lines(one.changed))
    changed = f"; changed there: {facts}" if facts else ""
    return f"history: {one.op} {one.params} on {one.backend} is {word} ({ratio(one.ratio)}) since {one.since}{changed}"


def _bisect_line(one: BisectNews) -> str:
    what, case = f"{one.package} " if one.package else "", f"{one.op} {one.params}".strip()
    if not one.first:
        return f"bisect: {case}: nothing found: {one.why}"
    first = one.first[0] if len(one.first) == 1 else f"one of {count_noun(len(one.first), 'candidate')}"
    listed = f": {', '.join(one.first)}" if len(one.first) > 1 else ""
    return f"bisect: {case}: slower since {what}{first}{listed}"


def night_markdown(night: Night) -> str:
    sign = "❌" if night.exit_code else "⚠️" if night.changed else "✅"
    first, *lines = night_lines(night)
    text = [f"### {sign} {escape_markdown(f'{night.label}: {first}')}", ""]
    for line in lines:
        text.append(f"{'  ' * line.startswith('  ')}- {escape_markdown(line.strip())}")
    return "\n".join(text) + "\n"
