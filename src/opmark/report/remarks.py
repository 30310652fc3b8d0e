"""What is said beneath a table: what was not verified, why something has no number, what is doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from opmark.metrics.doubts import ABOVE_PEAK
from opmark.report.above_peak import above_peak
from opmark.report.communication_lines import print_above_link, print_overlaps, print_stragglers
from opmark.report.fit_table import print_fits
from opmark.report.names import named
from opmark.report.pairs import print_pairs
from opmark.report.rows import Row
from opmark.report.tables import DOUBTFUL, STYLES
from opmark.report.view import Known, of_peak
from opmark.schema.profile import NO_PROFILE, PARTLY
from opmark.units import counted

Named = Callable[[Sequence[Row]], str]
"""How rows are called that a remark is about."""


_NAIVE = "tvm"
"""How the backends are called that run what a compiler makes of an operator untuned."""


def print_remarks(found: Sequence[Row], console: Console, peaks: Mapping[str, Known]) -> None:
    """In full, beneath a table with a row a task."""
    _print_checks(found, console)
    _print_reasons(found, console)
    _print_profiles(found, console)
    print_communication(found, console)
    print_doubts(found, console, peaks)


def print_communication(found: Sequence[Row], console: Console) -> None:
    """What several rows say together: pairs of ranks, what hides behind what, latency and bandwidth over sizes."""
    print_pairs(found, console)
    print_overlaps(found, console)
    print_fits(found, console)


def print_doubts(found: Sequence[Row], console: Console, peaks: Mapping[str, Known], called: Named = named) -> None:
    _print_cautions(found, console, called)
    print_stragglers(found, console, called)
    _print_above_peak(found, peaks, console, called)
    print_above_link(found, console, peaks, called)
    _print_alone(found, console)


def _print_alone(found: Sequence[Row], console: Console) -> None:
    """The number of a default schedule says little by itself: somebody may take it for what the chip can do."""
    ran = list(dict.fromkeys(row.record.task.backend for row in found if row.summary()))
    if ran and all(name.startswith(_NAIVE) for name in ran):
        beside = f"--backend torch-{ran[0].partition('/')[0].rpartition('-')[2]},{ran[0]}"
        said = f"{', '.join(ran)} runs default schedules, which are naive: compare with a library, e.g. {beside}"
        console.print(Text(said), soft_wrap=True)


def _print_checks(found: Sequence[Row], console: Console) -> None:
    checks = [row.record.verification for row in found]
    scaled = sum(check is not None and check.checked == "scaled" for check in checks)
    if scaled:
        console.print(Text(f"{counted(scaled, 'case')} of {len(found)} verified at a smaller size: too large in full"))
    for why, count in Counter(check.note for check in checks if check is not None and check.checked == "none").items():
        console.print(Text(f"{counted(count, 'case')} of {len(found)} not verified: {why}"))


def _print_reasons(found: Sequence[Row], console: Console) -> None:
    """Why something has no number, or not every number that was asked for; the same reason is given once."""
    reasons: dict[str, list[Row]] = {}
    for row in found:
        if row.record.reason:
            reasons.setdefault(f"{row.record.status}: {row.record.reason}", []).append(row)
        for note in dict.fromkeys(note for record in row.records for note in record.notes):
            told = note if note.startswith((NO_PROFILE, PARTLY)) else f"not measured: {note}"
            reasons.setdefault(told, []).append(row)
    several = len({row.record.task.backend for row in found}) > 1
    if reasons:
        console.print()
    for reason, affected in reasons.items():
        places = dict.fromkeys(row.record.task.backend for row in affected)
        on = f" on {', '.join(places)}" if several else ""
        console.print(Text(f"{named(affected)}{on}: {reason}", style=_style(reason)), soft_wrap=True)


def _style(reason: str) -> str:
    """That of the status with which it begins; what was merely not measured has none."""
    return STYLES.get(reason.partition(":")[0], "")


def _print_profiles(found: Sequence[Row], console: Console) -> None:
    """Where the files are; what they say is in the JSON."""
    taken = [profile for row in found for record in row.records for profile in record.profiles]
    for name in dict.fromkeys(profile.profiler for profile in taken):
        files = list(dict.fromkeys(profile.file for profile in taken if profile.profiler == name))
        more = f" and {counted(len(files) - 1, 'more file')}" if len(files) > 1 else ""
        cases = sum(any(p.profiler == name for record in row.records for p in record.profiles) for row in found)
        console.print(Text(f"{name} profile of {counted(cases, 'case')}: {files[0]}{more}"), soft_wrap=True)


def _print_cautions(found: Sequence[Row], console: Console, called: Named) -> None:
    """One line a kind of doubt, with its first example and what to do."""
    doubts: dict[str, list[tuple[Row, str, str]]] = {}
    for row in found:
        for measurement, caution in row.cautions():
            cases = doubts.setdefault(caution.code, [])
            if not cases or cases[-1][0] is not row:
                what = "" if len(row.measured()) == 1 else f"{measurement.quantity} {measurement.cache}: "
                cases.append((row, what + caution.message, caution.hint))
    if doubts:
        console.print()
    for code, cases in doubts.items():
        _, message, hint = cases[0]
        said = f"! {code}: {called([case[0] for case in cases])}: {message}"
        console.print(Text(said, style=DOUBTFUL), soft_wrap=True)
        if hint:
            console.print(Text(f"  hint: {hint}"), soft_wrap=True)


def _print_above_peak(found: Sequence[Row], peaks: Mapping[str, Known], console: Console, called: Named) -> None:
    """No chip does more than it can: then the peak is not one."""
    above = []
    for row in found:
        part = of_peak(row, peaks.get(row.record.environment, Known()).measured)
        if part and part.share > ABOVE_PEAK:
            above.append((row, part))
    if above:
        (_, part), rows_ = above[0], [row for row, _ in above]
        doubt = above_peak(part)
        said = f"! {doubt.code}: {called(rows_)}: {doubt.message}"
        console.print(Text(said, style=DOUBTFUL), soft_wrap=True)
        console.print(Text(f"  hint: {doubt.hint}"), soft_wrap=True)
