"""Records as a table on a terminal: wide where there is room, two lines for each row where there is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.analysis.rows import Key, MachineFacts, Row, rows_of_records, unit_of
from opmark.metrics.summary import Summary
from opmark.report.remarks import print_remarks
from opmark.report.sparkline import samples_line
from opmark.report.tables import DOUBTFUL, STYLES, gigabytes, print_rows
from opmark.schema import Record
from opmark.schema.measurement import PREEMPTED

_WHO = ("operator", "parameters", "backend", "phase")
_RATES = ("GB/s", "GFLOP/s")
_LINKS = ("algbw GB/s", "busbw GB/s", "of link", "skew", "overlap")
_SHARES = ("of peak", "of datasheet", "gain")
SAMPLES, COUNT = "samples", "taken"
_CHARACTERS = 16
"""Width of the samples of a row, drawn."""

Cells = dict[str, Text | str]


def print_records(
    records: Sequence[Record],
    console: Console,
    machines: Mapping[str, MachineFacts] | None = None,
    *,
    wide: bool = False,
) -> None:
    """Print a row for each task, and remarks beneath. Samples are drawn where somebody looks at a screen that has room
    for them; with `wide` in any case, and their number beside them. `machines`: by the id of an environment."""
    found = rows_of_records(records, machines=machines)
    columns, cells = cells_of(found)
    if wide or console.is_terminal:
        columns = _add_samples(columns, cells, found, console.encoding, count=wide)
    lines = [[own.get(name, "") for name in columns] for own in cells]
    print_rows(
        columns, lines, console, len(_WHO), left=("quantity", SAMPLES, "status"),
        unnamed=("status", "quantity", "median"), lead="status", spare=None if wide else SAMPLES,
    )  # fmt: skip
    print_remarks(found, console)


def _add_samples(
    columns: Sequence[str], cells: Sequence[Cells], found: Sequence[Row], encoding: str, *, count: bool
) -> list[str]:
    """The columns with one more, behind the noise, which is about the spread as well. `count`: and one that says how
    many samples there are."""
    for row, own in zip(found, cells, strict=True):
        taken = row.samples()
        if taken:
            own[SAMPLES] = samples_line(taken, _CHARACTERS, encoding)
            own[COUNT] = str(len(taken))
    if not any(SAMPLES in own for own in cells):  # nothing but failures
        return list(columns)
    place = columns.index("noise") + 1
    return [*columns[:place], SAMPLES, *([COUNT] if count else []), *columns[place:]]


def cells_of(found: Sequence[Row]) -> tuple[list[str], list[Cells]]:
    """The columns that these rows need, and for each row what stands in them."""
    cells = [_cells(row) for row in found]
    used = {name for own in cells for name, cell in own.items() if cell}
    links = [name for name in _LINKS if name in used]
    # What the headline is goes without saying where it is the latency of all; other quantities get a column each.
    plain = all(row.keys[:1] in ([], [("latency", "warm")]) for row in found)
    others = dict.fromkeys(" ".join(key) for row in found for key in row.keys[1:])
    columns = [
        *_WHO,
        *([] if plain else ["quantity"]),
        "median",
        "interval",
        "noise",
        *(["compile"] if "compile" in used else []),
        *others,
        *(_RATES if not links or used & {*_RATES} else ()),
        *links,
        *(name for name in _SHARES if name in used),
        "memory",
        "status",
    ]
    return columns, cells


def _cells(row: Row) -> Cells:
    """By column; what is not known has no cell."""
    cells: Cells = {
        "operator": row.op,
        "parameters": row.parameters,
        "backend": row.where,
        "phase": row.phase_text,
        "memory": _memory(row),
        "status": _status(row),
    }
    if row.compile_time is not None:
        cells["compile"] = units.seconds(row.compile_time)
    if row.headline and (summary := row.summary()):
        first, *more = row.keys
        cells |= {"quantity": " ".join(first), **_figures(summary, first)}
        cells |= {" ".join(key): _figures(other, key)["median"] for key in more if (other := row.summary(key))}
        cells["GB/s"] = "view" if row.view else gigabytes(row.bytes_per_second) if row.bytes_per_second else ""
        cells["GFLOP/s"] = gigabytes(row.flops_per_second) if row.flops_per_second else ""
    found = {
        "algbw GB/s": gigabytes(row.algorithm_bandwidth) if row.algorithm_bandwidth else None,
        "busbw GB/s": gigabytes(row.bus_bandwidth) if row.bus_bandwidth else None,
        "of link": units.percent(row.of_link.share) if row.of_link else None,
        "skew": units.percent(row.skew.share) if row.skew else None,
        "overlap": units.percent(row.overlap.share) if row.overlap else None,
        "of peak": units.percent(row.of_peak.share) if row.of_peak else None,
        "of datasheet": units.percent(row.of_datasheet.share) if row.of_datasheet else None,
        "gain": None if row.gain is None else f"{units.significant(row.gain)}x",
    }
    return cells | {name: text for name, text in found.items() if text is not None}


def _figures(summary: Summary, key: Key) -> Cells:
    scale, name = units.small_unit(summary.median, unit_of(key[0]))
    value = f"{units.significant(summary.median / scale)} {name}"
    if summary.samples == 1:  # nothing is known of its spread
        return {"median": value, "interval": "", "noise": ""}
    return {
        "median": value,
        "interval": "–".join(units.significant(end / scale) for end in (summary.low, summary.high)),
        "noise": units.percent(summary.noise),
    }


def _memory(row: Row) -> str:
    if row.memory is None:
        return ""
    if row.memory < row.memory_resolution:
        return f"<{units.count_bytes(row.memory_resolution)}"
    return units.count_bytes(row.memory)


def _status(row: Row) -> Text:
    codes = row.cautions
    mark = " !!" if PREEMPTED in codes else " !" if codes else ""
    style = {" !!": "bold red", " !": DOUBTFUL if row.status == "ok" else STYLES[row.status]}
    return Text(row.status + mark, style=style.get(mark, STYLES[row.status]))
