"""Which commit it was, for people."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.schema.bisected import Bisected, Candidate
from opmark.schema.comparison import Compared
from opmark.units import counted, significant

_SHORT = 10
_SAID = {"good": "as fast as the good one", "bad": "slower", "skip": "skipped"}


def bisected_lines(found: Bisected) -> Iterator[str]:
    if not found.first:
        yield nothing_slower(found.compared)
        return
    yield f"{found.op} {found.params}: {_bad_end(found)}"
    half = significant(1 + found.margin)
    yield f"a commit is bad where it takes {half} times as long or more: half of that, by factor"
    for step in found.steps:
        yield f"  {step_line(step)}"
    if len(found.first) == 1:
        yield f"first bad commit: {found.first[0].commit}"
        yield from _about(found.first[0])
        return
    yield f"the first bad commit is one of {len(found.first)}: those before it had to be skipped"
    for one in found.first:
        yield f"  {one.commit} {one.author}: {one.subject}{f' ({one.why})' if one.why else ''}"


def step_line(step: Candidate) -> str:
    return f"{step.commit[:_SHORT]} {step.word}: {_measured(step)}{step.why or _SAID[step.word]}: {step.subject}"


def _about(one: Candidate) -> Iterator[str]:
    yield f"  {one.author}, {one.date}"
    yield f"  {one.subject}"
    if one.ratio is not None:
        yield f"  {_measured(one)}B/A of the good commit and this one, measured in turns"


def _bad_end(found: Bisected) -> str:
    end = next(pair for pair in found.compared.pairs if pair.case == found.case and pair.ratio is not None)
    return f"{found.bad[:_SHORT]} takes {significant(end.ratio or 0.0)} times as long as {found.good[:_SHORT]}"


def _measured(one: Candidate) -> str:
    if one.ratio is None or one.low is None or one.high is None:
        return ""
    return f"{significant(one.ratio)} ({significant(one.low)}–{significant(one.high)}) "


def nothing_slower(compared: Compared) -> str:
    counts = compared.counts()
    listed = ", ".join(f"{counts[word]} {word}" for word in ("faster", "same", "undecided") if counts[word])
    return (
        f"nothing to look for: of {counted(len(compared.pairs), 'case')}, none is slower in {compared.b} than in "
        f"{compared.a} beyond doubt ({listed})"
    )
