"""What is said beneath a table: what was not verified, why something has no number, what is doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from opmark.analysis.rows import Row
from opmark.report.communication_lines import print_above_link, print_overlaps, print_stragglers
from opmark.report.fit_table import print_fits
from opmark.report.pairs import print_pairs
from opmark.report.tables import DOUBTFUL, STYLES
from opmark.schema.profile import NO_PROFILE, PARTLY
from opmark.units import counted

Named = Callable[[Sequence[Row]], str]
"""Names the rows that a remark is about."""

_NAIVE = "tvm"
"""Beginning of the names of backends that run what a compiler makes of an operator untuned."""


def print_remarks(found: Sequence[Row], console: Console) -> None:
    """Print all remarks, beneath a table with a row for each task."""
    _print_checks(found, console)
    _print_reasons(found, console)
    _print_profiles(found, console)
    print_communication(found, console)
    print_doubts(found, console)


def print_communication(found: Sequence[Row], console: Console) -> None:
    """What several rows say together: pairs of ranks, what hides behind what, latency and bandwidth over sizes."""
    print_pairs(found, console)
    print_overlaps(found, console)
    print_fits(found, console)


def name_rows(found: Sequence[Row]) -> str:
    """Rows by the first of them."""
    first = f"{found[0].op} {found[0].parameters}".strip()
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"


def print_doubts(found: Sequence[Row], console: Console, named: Named = name_rows) -> None:
    _print_cautions(found, console, named)
    print_stragglers(found, console, named)
    print_above_link(found, console, named)
    # The number of a default schedule says little by itself: somebody may take it for what the chip can do.
    ran = list(dict.fromkeys(row.backend for row in found if row.timings))
    if ran and all(name.startswith(_NAIVE) for name in ran):
        beside = f"--backend torch-{ran[0].partition('/')[0].rpartition('-')[2]},{ran[0]}"
        said = f"{', '.join(ran)} runs default schedules, which are naive: compare with a library, e.g. {beside}"
        console.print(Text(said), soft_wrap=True)


def reasons_of(row: Row) -> list[str]:
    """Why a row has no number, or not every number that was asked for."""
    notes = [note if note.startswith((NO_PROFILE, PARTLY)) else f"not measured: {note}" for note in row.notes]
    return [f"{row.status}: {row.reason}", *notes] if row.reason else notes


def _print_checks(found: Sequence[Row], console: Console) -> None:
    scaled = sum(row.verified == "scaled" for row in found)
    if scaled:
        console.print(Text(f"{counted(scaled, 'case')} of {len(found)} verified at a smaller size: too large in full"))
    checks = [row.record.verification for row in found if row.verified == "none"]
    for why, count in Counter(check.note for check in checks if check).items():
        console.print(Text(f"{counted(count, 'case')} of {len(found)} not verified: {why}"))


def _print_reasons(found: Sequence[Row], console: Console) -> None:
    """The same reason is given once. It has the colour of the status with which it begins."""
    reasons: dict[str, list[Row]] = {}
    for row in found:
        for reason in reasons_of(row):
            reasons.setdefault(reason, []).append(row)
    several = len({row.backend for row in found}) > 1
    if reasons:
        console.print()
    for reason, affected in reasons.items():
        on = f" on {', '.join(dict.fromkeys(row.backend for row in affected))}" if several else ""
        style = STYLES.get(reason.partition(":")[0], "")
        console.print(Text(f"{name_rows(affected)}{on}: {reason}", style=style), soft_wrap=True)


def _print_profiles(found: Sequence[Row], console: Console) -> None:
    """Where the files are; what they say is in the JSON."""
    taken = [profile for row in found for record in row.records for profile in record.profiles]
    for name in dict.fromkeys(profile.profiler for profile in taken):
        files = list(dict.fromkeys(profile.file for profile in taken if profile.profiler == name))
        more = f" and {counted(len(files) - 1, 'more file')}" if len(files) > 1 else ""
        cases = sum(any(p.profiler == name for record in row.records for p in record.profiles) for row in found)
        console.print(Text(f"{name} profile of {counted(cases, 'case')}: {files[0]}{more}"), soft_wrap=True)


def _print_cautions(found: Sequence[Row], console: Console, named: Named) -> None:
    """One line for each kind of caution, with its first example and what to do."""
    doubts: dict[str, list[tuple[Row, str, str]]] = {}
    for row in found:
        for key, caution in row.warnings():
            cases = doubts.setdefault(caution.code, [])
            if not cases or cases[-1][0] is not row:
                what = "" if len(row.timings) == 1 else f"{' '.join(key)}: "
                cases.append((row, what + caution.message, caution.hint))
    if doubts:
        console.print()
    for code, cases in doubts.items():
        _, message, hint = cases[0]
        said = f"! {code}: {named([case[0] for case in cases])}: {message}"
        console.print(Text(said, style=DOUBTFUL), soft_wrap=True)
        if hint:
            console.print(Text(f"  hint: {hint}"), soft_wrap=True)
