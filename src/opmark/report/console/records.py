"""Prints records as a table, with remarks below: what was not verified, why a number is missing, what is doubtful.

A file gets every column. A terminal gets the columns that fit it, below a line with what is the same in every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.analysis.ranking import Key
from opmark.analysis.rows import MachineFacts, Row, Timing, rows_of_records, split_by_headline, unit_of
from opmark.analysis.step import steps_of
from opmark.plugin.registry import backend_or_none, way_of
from opmark.report.console.communication import print_above_link, print_overlaps, print_pairs, print_stragglers
from opmark.report.console.fits import print_fits
from opmark.report.console.load import print_load
from opmark.report.console.table import DOUBTFUL, STYLES, gigabytes, print_prose, print_rows, samples_line
from opmark.report.text import coverage_text
from opmark.schema import Record
from opmark.schema.measurement import PREEMPTED
from opmark.schema.record import IN_SEQUENCE, NO_PROFILE, PARTLY
from opmark.stats.measurement import Summary
from opmark.units import count_noun

_WHO = ("operator", "parameters", "backend", "phase")
_NAMES = ("operator", "parameters", "phase")
"""Columns that share one on a narrow terminal; backends stand beside the figures, where they are aligned."""
_RATES = ("GB/s", "GFLOP/s")
_ITEM_RATES = ("samples/s", "tokens/s")
_COMPILE = ("cached", "export", "coverage")
"""Columns about compiling that only `wide` shows."""
_LINKS = ("algbw GB/s", "busbw GB/s", "of link", "skew", "overlap")
_SHARES = ("of peak", "of datasheet", "gain", "calls", "of step", "original")
SAMPLES, COUNT = "samples", "taken"
_CHARACTERS = 16
"""Width of the sparkline of samples."""
_ALWAYS_SHOWN = (*_WHO, "quantity", "median", "status")
_BY_WORTH = ("of step", "interval", *_ITEM_RATES, "of peak", "of link", "gain", "busbw GB/s", "GB/s", "GFLOP/s",
             "compile", "calls", "original", "algbw GB/s", "of datasheet", "noise", "overlap", "skew", "memory",
             SAMPLES)  # fmt: skip
"""Columns that a narrow terminal leaves out, the last of them first. Further quantities, which somebody asked for, come
before all of them."""

Cells = dict[str, Text | str]


def print_records(
    records: Sequence[Record],
    console: Console,
    machines: Mapping[str, MachineFacts] | None = None,
    *,
    wide: bool = False,
) -> None:
    """Print a row for each task, and remarks below; rows of different headlines are tables of their own. A file gets
    all columns, and with `wide` also a sparkline of the samples and their number. A terminal gets what fits it, unless
    `wide`. `machines` has facts by the id of an environment."""
    every = rows_of_records(records, machines=machines)
    found = [row for row in every if row.load is None]
    if len(found) < len(every):
        print_load([row for row in every if row.load], console)
    parts = split_by_headline(found) or ([] if every else [[]])
    for part in parts:
        _print_table(part, console, wide=wide, several=len(parts) > 1)
        if part is not parts[-1]:
            console.print()
    print_remarks(every, console)


def _print_table(found: Sequence[Row], console: Console, *, wide: bool, several: bool) -> None:
    columns, cells = cells_of(found, several=several)
    if wide and "compile" in columns:
        place = columns.index("compile") + 1
        more = [name for name in _COMPILE if any(own.get(name) for own in cells)]
        columns = [*columns[:place], *more, *columns[place:]]
    if wide or console.is_terminal:
        columns = _add_samples(columns, cells, found, console.encoding, count=wide)
    fitted = console.is_terminal and not wide and bool(found)
    if fitted:
        columns, line = _state_shared(columns, cells, found)
        print_prose(line, console)
    lines = [[own.get(name, "") for name in columns] for own in cells]
    others = [name for name in columns if name not in (*_ALWAYS_SHOWN, *_BY_WORTH)]
    names = [name for name in columns if name in (_NAMES if fitted else _WHO)]
    left_out = print_rows(
        columns, lines, console, len(names), left=("backend", "quantity", SAMPLES, "status", "configuration"),
        optional=[(name,) for name in (*others, *_BY_WORTH)] if fitted else (),
    )  # fmt: skip
    if hidden := [name for name in left_out if name != SAMPLES]:
        print_prose(f"no room for {', '.join(hidden)}: `opmark show --wide` shows every column", console)
    unlike = {(row.threads, row.machine.calibrated_threads) for row in found if row.machine.calibrated_threads}
    for threads, calibrated in sorted(unlike):
        print_prose(
            f"of peak is empty for {units.count_noun(threads, 'thread')}: the peaks were measured with {calibrated}; "
            f"`opmark calibrate --threads {threads}` measures these",
            console,
        )


def _state_shared(columns: Sequence[str], cells: Sequence[Cells], found: Sequence[Row]) -> tuple[list[str], str]:
    """Take what is the same in every row out of the cells, and shorten the parameters. Return the columns that are
    left, and a line that says what all rows share: `torch-cpu ×2, latency warm; forward and float32 where a row says
    nothing else`."""
    same: list[str] = []
    usual: list[str] = []
    for name in ("backend", "quantity"):
        values = {str(own[name]) for own in cells if name in own}
        if len(values) == 1:
            same.append(values.pop())
            columns = [column for column in columns if column != name]
    phases = {row.phase_text for row in found}
    (same if len(phases) == 1 else usual).append(phases.pop() if len(phases) == 1 else "forward")
    dtype = _usual_dtype(found)
    if dtype:
        (same if all(row.dtype == dtype for row in found) else usual).append(dtype)
    for row, own in zip(found, cells, strict=True):
        own["parameters"] = _shorten(row, dtype)
        own["phase"] = "" if row.phase_text in (*same, *usual) else row.phase_text
    columns = [column for column in columns if column != "phase" or any(own["phase"] for own in cells)]
    columns = sorted(columns, key=lambda column: _NAMES.index(column) if column in _NAMES else len(_NAMES))
    unless = f"{' and '.join(usual)} where a row says nothing else" if usual else ""
    return columns, "; ".join(filter(None, (", ".join(same), unless)))


def _usual_dtype(found: Sequence[Row]) -> str:
    """Return the element type of most rows; empty if there is none, or if a row names none, which would then seem to
    have it."""
    dtypes = [row.dtype for row in found if row.dtype in row.parameters.split(" ")]
    dtype, count = Counter(dtypes).most_common(1)[0] if dtypes else ("", 0)
    return dtype if len(dtypes) == len(found) and 2 * count > len(found) else ""


def _shorten(row: Row, dtype: str) -> str:
    """Return the parameters without the usual element type; neighbours with the same value share it: `M=N=256`."""
    words: list[str] = []
    for word in row.parameters.split(" "):
        name, equals, value = word.partition("=")
        before = words[-1] if words else ""
        if equals and name.isidentifier() and "=" in before and before.rpartition("=")[2] == value:
            words[-1] = f"{before.rpartition('=')[0]}={word}"
        elif word != dtype or row.dtype != dtype:
            words.append(word)
    return " ".join(words)


def _add_samples(
    columns: Sequence[str], cells: Sequence[Cells], found: Sequence[Row], encoding: str, *, count: bool
) -> list[str]:
    """Fill the cells of the samples, and return the columns with the one for them behind the noise; with `count` also
    the one for their number."""
    for row, own in zip(found, cells, strict=True):
        samples = row.samples()
        if samples:
            own[SAMPLES] = samples_line(samples, _CHARACTERS, encoding)
            own[COUNT] = str(len(samples))
    if not any(SAMPLES in own for own in cells):  # nothing but failures
        return list(columns)
    place = columns.index("noise") + 1
    return [*columns[:place], SAMPLES, *([COUNT] if count else []), *columns[place:]]


def cells_of(found: Sequence[Row], *, several: bool = False) -> tuple[list[str], list[Cells]]:
    """Return the columns that these rows need, and the cells of each row. `several`: there are rows of another headline
    beside these."""
    cells = [_cells(row) for row in found]
    used = {name for own in cells for name, cell in own.items() if cell}
    links = [name for name in _LINKS if name in used]
    # The quantity is not named where it is the warm latency of all rows; further quantities get a column each.
    plain = not several and all(row.keys[:1] in ([], [("latency", "warm")]) for row in found)
    others = dict.fromkeys(" ".join(key) for row in found for key in row.keys[1:])
    columns = [
        *_WHO,
        *([] if plain else ["quantity"]),
        "median",
        "interval",
        "noise",
        *(["compile"] if "compile" in used else []),
        *others,
        *(name for name in _ITEM_RATES if name in used),
        *(_RATES if not links or used & {*_RATES} else ()),
        *links,
        *(name for name in _SHARES if name in used),
        "memory",
        "status",
        *(["configuration"] if "configuration" in used else []),
    ]
    return columns, cells


def _cells(row: Row) -> Cells:
    """Return the cells of a row by column; unknown values have no cell."""
    cells: Cells = {
        "operator": row.op,
        "parameters": row.parameters,
        "backend": row.where,
        "phase": row.phase_text,
        "configuration": row.configuration,
    }
    if row.memory is not None:
        known = row.memory >= row.memory_resolution
        cells["memory"] = "<" * (not known) + units.count_bytes(row.memory if known else row.memory_resolution)
    codes = row.cautions
    mark = " !!" if PREEMPTED in codes else " !" if codes else ""
    style = {" !!": "bold red", " !": DOUBTFUL if row.status == "ok" else STYLES[row.status]}
    cells["status"] = Text(row.status_text + mark, style=style.get(mark, STYLES[row.status_text]))
    if row.compile_time is not None:
        cells["compile"] = units.seconds(row.compile_time)
        cells["cached"] = "" if row.compile_cached is None else units.seconds(row.compile_cached)
        cells["export"] = "" if row.export_time is None else units.seconds(row.export_time)
        cells["coverage"] = coverage_text(row)
    if row.headline and (summary := row.summary()):
        first = row.headline.key
        cells |= {"quantity": " ".join(first), **_figures(summary, row.headline)}
        cells |= {" ".join(t.key): _figures(own, t)["median"] for t in row.timings[1:] if (own := row.summary(t.key))}
        cells["GB/s"] = "view" if row.view else gigabytes(row.bytes_per_second) if row.bytes_per_second else ""
        cells["GFLOP/s"] = gigabytes(row.flops_per_second) if row.flops_per_second else ""
        if row.items_per_second:
            cells[f"{row.items}/s"] = units.significant(row.items_per_second)
    found = {
        "algbw GB/s": gigabytes(row.algorithm_bandwidth) if row.algorithm_bandwidth else None,
        "busbw GB/s": gigabytes(row.bus_bandwidth) if row.bus_bandwidth else None,
        "of link": units.percent(row.of_link.share) if row.of_link else None,
        "skew": units.percent(row.skew.share) if row.skew else None,
        "overlap": units.percent(row.overlap.share) if row.overlap else None,
        "of peak": units.percent(row.of_peak.share) if row.of_peak else None,
        "of datasheet": units.percent(row.of_datasheet.share) if row.of_datasheet else None,
        "gain": None if row.gain is None else f"{units.significant(row.gain)}x",
        "calls": None if row.step_share is None else str(row.count),
        "of step": None if row.step_share is None else units.percent(row.step_share),
        "original": None if row.original is None else units.seconds(row.original),
    }
    return cells | {name: text for name, text in found.items() if text is not None}


def _figures(summary: Summary, timing: Timing) -> Cells:
    scale, name = units.small_unit(summary.median, unit_of(timing.quantity))
    value = f"{units.significant(summary.median / scale)} {name}"
    if timing.disturbed:  # its spread says nothing about the operator
        return {"median": f"({value})", "interval": "", "noise": ""}
    if summary.samples == 1:  # the spread is unknown
        return {"median": value, "interval": "", "noise": ""}
    return {
        "median": value,
        "interval": "–".join(units.significant(end / scale) for end in (summary.low, summary.high)),
        "noise": units.percent(summary.noise),
    }


# Remarks below a table.

RowNamer = Callable[[Sequence[Row]], str]
"""Names the rows that a remark is about."""

_DISTURBANCES = (PREEMPTED, "stolen", "loaded", "interrupted", "clocks-moved", "drifting", "unsettled", "noisy",
                 "outliers", "imprecise")  # fmt: skip
"""Cautions that mostly come together, a cause before its consequences."""
_QUIETEN = "stop other work (`opmark doctor` names it) and measure again, if need be with a higher --effort"
_NAIVE = "tvm"
"""Prefix of the names of backends that run untuned code of a compiler."""


def print_remarks(found: Sequence[Row], console: Console) -> None:
    """Print all remarks below a table with a row for each task."""
    scaled = sum(row.verified == "scaled" for row in found)
    if scaled:
        print_prose(
            f"{count_noun(scaled, 'case')} of {len(found)} verified at a smaller size: too large in full", console
        )
    checks = [row.record.verification for row in found if row.verified == "none"]
    for why, count in Counter(check.note for check in checks if check).items():
        print_prose(f"{count_noun(count, 'case')} of {len(found)} not verified: {why}", console)
    _print_reasons(found, console)
    profiles = [profile for row in found for record in row.records for profile in record.profiles]
    for name in dict.fromkeys(profile.profiler for profile in profiles):  # their content is in the JSON
        files = list(dict.fromkeys(profile.file for profile in profiles if profile.profiler == name))
        more = f" and {count_noun(len(files) - 1, 'more file')}" if len(files) > 1 else ""
        cases = sum(any(p.profiler == name for record in row.records for p in record.profiles) for row in found)
        print_prose(f"{name} profile of {count_noun(cases, 'case')}: {files[0]}{more}", console)
    print_communication(found, console)
    print_models(found, console)
    print_steps(found, console)
    print_doubts(found, console)


def print_models(found: Sequence[Row], console: Console) -> None:
    """Print what was left to something else than the backend, and the times of language models per token."""
    for row in found:
        covered = row.coverage
        if covered is not None and covered.fallback:
            listed = ", ".join(f"{name} ({number})" for name, number in covered.fallback.items())
            print_prose(f"{row.name} on {row.place}: {coverage_text(row)} taken; left to others: {listed}", console)
    for row in found:
        if row.time_to_first_token:
            print_prose(
                f"{row.name} on {row.place}: first token after {units.seconds(row.time_to_first_token)}", console
            )
        if row.time_per_token:
            cache = f", cache {units.count_bytes(row.token_cache)}" if row.token_cache else ""
            print_prose(f"{row.name} on {row.place}: {units.seconds(row.time_per_token)} per token{cache}", console)


def print_steps(found: Sequence[Row], console: Console) -> None:
    """Print how long all calls of the program take that the cases come from, where these have counts."""
    for step in steps_of(found).values():
        first = step.rows[0]
        quantity = " ".join(first.headline.key) if first.headline else ""
        there, here, known = step.recorded
        original = f"; {units.seconds(here)} against {units.seconds(there)} in the original" if known else ""
        partly = f" ({count_noun(known, 'case')} of {len(step.rows)})" if known and known < len(step.rows) else ""
        print_prose(
            f"step on {first.place}: {count_noun(step.calls, 'call')} of {count_noun(len(step.rows), 'case')} take "
            f"{units.seconds(step.seconds)} one by one ({quantity}){original}{partly}",
            console,
        )


def print_communication(found: Sequence[Row], console: Console) -> None:
    """Print what several rows tell together: pairs of ranks, overlaps, and fits of latency and bandwidth over sizes."""
    if any(row.traffic is not None or row.overlap for row in found):
        print_pairs(found, console)
        print_overlaps(found, console)
        print_fits(found, console)


def name_rows(found: Sequence[Row]) -> str:
    """Return the name of the first row, and the number of the others."""
    first = found[0].name
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"


def print_doubts(
    found: Sequence[Row], console: Console, name: RowNamer = name_rows, keys: Collection[Key] | None = None
) -> None:
    """Print what is doubtful about these rows; `keys`: about these quantities alone."""
    _print_cautions(found, console, name, keys)
    if any("ranks" in row.params for row in found):
        print_stragglers(found, console, name)
        print_above_link(found, console, name)
    # A reader could take the time of a default schedule for what the chip can do.
    ran = list(dict.fromkeys(row.backend for row in found if row.timings))
    scheduled = any(row.implementation == "schedule" or row.backend.endswith("/tuned") for row in found)
    if ran and all(name.startswith(_NAIVE) for name in ran) and not scheduled:
        library = f"torch-{ran[0].partition('/')[0].rpartition('-')[2]}"
        better = f"compare with a library, e.g. --backend {library},{ran[0]}"
        if backend_or_none(library) is None:
            better = "`opmark tune` finds better ones"
        print_prose(f"{', '.join(ran)} runs default schedules, which are naive: {better}", console)


def reasons_of(row: Row) -> list[str]:
    """Return the reasons why a row has no number, or not all requested numbers."""
    plain = (NO_PROFILE, PARTLY, IN_SEQUENCE)
    notes = [note if note.startswith(plain) else f"not measured: {note}" for note in row.notes]
    return [f"{row.status_text}: {row.reason}", *notes] if row.reason else notes


def _print_reasons(found: Sequence[Row], console: Console) -> None:
    """Print each reason once, in the colour of the status with which it begins. Why rows are unchecked is counted
    elsewhere."""
    reasons: dict[str, list[Row]] = {}
    for row in (row for row in found if row.status != "unchecked"):
        for reason in reasons_of(row):
            reasons.setdefault(reason, []).append(row)
    several = len({(row.backend, way_of(row.backend, row.implementation)) for row in found}) > 1
    if reasons:
        console.print()
    for reason, affected in reasons.items():
        ways = dict.fromkeys(f"{row.backend}{way_of(row.backend, row.implementation)}" for row in affected)
        on = f" on {', '.join(ways)}" if several else ""
        style = STYLES.get(reason.partition(":")[0], "")
        print_prose(f"{name_rows(affected)}{on}: {reason}", console, style)


def _print_cautions(
    found: Sequence[Row], console: Console, name: RowNamer, keys: Collection[Key] | None = None
) -> None:
    """Print one line for each kind of caution, with the number of rows and the first of them, and what to do. Of a row
    that other work disturbed, the cause has such a line; its consequences are only counted, each kind in one place."""
    doubts: dict[str, tuple[Row, str, str]] = {}
    counts: Counter[str] = Counter()
    for row in found:
        own: dict[str, tuple[str, str]] = {}
        for key, caution in row.warnings():
            if keys is not None and key not in keys:
                continue
            what = "" if len(row.timings if keys is None else keys) == 1 else f"{' '.join(key)}: "
            own.setdefault(caution.code, (what + caution.message, caution.hint))
        others = [code for code in _DISTURBANCES if code in own][1:]
        for code in (code for code in own if code not in others):
            doubts.setdefault(code, (row, *own[code]))
        counts.update([*own])
    consequences = Counter({code: counts[code] for code in _DISTURBANCES if counts[code] and code not in doubts})
    if doubts:
        console.print()
    disturbed = sorted((code for code in doubts if code in _DISTURBANCES), key=lambda code: -counts[code])
    together = len(disturbed) > 1 or bool(consequences)
    for code in (*disturbed, *(code for code in doubts if code not in disturbed)):
        row, message, hint = doubts[code]
        rows = f", {counts[code]} of {len(found)} rows" if counts[code] > 1 else ""
        print_prose(f"! {code}{rows}: {name([row])}: {message}", console, DOUBTFUL)
        if together and code == disturbed[-1]:
            if consequences:
                listed = [f"{code} ({count})" if len(found) > 1 else code for code, count in consequences.most_common()]
                print_prose(f"! in the same rows also: {', '.join(listed)}", console, DOUBTFUL)
            print_prose(f"  hint: {_QUIETEN if len(disturbed) > 1 else hint}", console)
        elif hint and not (together and code in disturbed):
            print_prose(f"  hint: {hint}", console)
