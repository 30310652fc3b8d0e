"""The table of all rows, which `table.js` sorts and filters. There may be thousands: texts are joined,
not templated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from opmark.analysis.rows import Row
from opmark.report.html.content import Place
from opmark.report.html.failures import WORDS
from opmark.report.html.text import amount, esc, interval, memory, percent, rate, sortable

FILTERS = ("backend", "dtype", "status", "phase")
"""Each is an attribute of a row, and `data-NAME` in the page."""


class Column(NamedTuple):
    head: str
    text: Callable[[Row], str]
    number: Callable[[Row], float | None] | None = None
    """What it is sorted by; None: its text."""
    always: bool = False
    """Whether the column is shown also where no row has anything there."""


def _median(row: Row) -> float | None:
    return row.headline.median if row.headline else None


def _headline(row: Row) -> str:
    return amount(_median(row), row.headline.unit) if row.headline else ""


def _interval(row: Row) -> str:
    first = row.headline
    return interval(first.low, first.high, first.unit) if first else ""


def _width(row: Row) -> float | None:
    """Width of the interval relative to the median."""
    first = row.headline
    if not first or not first.median or first.low is None or first.high is None:
        return None
    return (first.high - first.low) / first.median


def _bandwidth(row: Row) -> float | None:
    """For communication operators, the bandwidth of the bus."""
    return row.bytes_per_second if row.bus_bandwidth is None else row.bus_bandwidth


COLUMNS = (
    Column("where", lambda row: row.where, always=True),
    Column("dtype", lambda row: row.dtype),
    Column("phase", lambda row: "" if row.phase == "forward" else row.phase_text),
    Column("status", lambda row: WORDS[row.status], always=True),
    Column("quantity", lambda row: f"{row.headline.quantity} {row.headline.cache}" if row.headline else ""),
    Column("median", _headline, _median),
    Column("interval", _interval, _width),
    Column("bandwidth", lambda row: rate(_bandwidth(row), "B/s"), _bandwidth),
    Column("arithmetic", lambda row: rate(row.flops_per_second, "FLOP/s"), lambda row: row.flops_per_second),
    Column("of peak", lambda row: percent(_of_peak(row)), lambda row: _of_peak(row)),
    Column("of datasheet", lambda row: percent(_of_datasheet(row)), lambda row: _of_datasheet(row)),
    Column("memory", memory, lambda row: row.memory),
    Column("cautions", lambda row: ", ".join(row.headline_cautions)),
)


def _of_peak(row: Row) -> float | None:
    return row.of_peak.share if row.of_peak else None


def _of_datasheet(row: Row) -> float | None:
    return row.of_datasheet.share if row.of_datasheet else None


def row_table(rows: Sequence[Row], place: Place, of: str = "", *, instead: bool = False) -> Markup:
    """With its filters. `of`: the run, where there are several. `instead`: there are no details, so that what links to
    an item finds its row."""
    name = f"items-{place.number}"
    used = [column for column in COLUMNS if column.always or any(column.text(row) for row in rows)]
    heads = "".join(_head(head, number=number) for head, number in _heads(used))
    shared = set.intersection(*(set(row.tags) for row in rows)) if rows else set()
    names = [f' id="{esc(place.id(row.key))}"' if instead else "" for row in rows]
    lines = "".join([_row(row, place, used, shared, own) for row, own in zip(rows, names, strict=True)])
    region = esc(" ".join(filter(None, ("All cases", of and f"of {of}"))))
    return Markup(
        f'{filters(name, rows)}<div class="scroll tall" tabindex=0 role=region aria-label="{region}">'
        f"<table id={name} class=items data-sortable><thead><tr>{heads}</thead><tbody>{lines}</tbody></table></div>"
    )


def _heads(used: Sequence[Column]) -> Iterator[tuple[str, bool]]:
    yield "case", False
    for column in used:
        yield column.head, column.number is not None


def _head(head: str, *, number: bool) -> str:
    return f"<th scope=col{' class=n' if number else ''}><button type=button>{head}</button>"


def _row(row: Row, place: Place, used: Sequence[Column], shared: Collection[str], own: str) -> str:
    """`shared`: tags that all have; nobody filters by these."""
    kept = "".join(f' data-{name}="{esc(str(getattr(row, name)))}"' for name in FILTERS)
    unseen = " ".join(filter(None, (row.reason, *row.notes, *(tag for tag in row.tags if tag not in shared))))
    said = f' data-t="{esc(unseen[:300])}"' if unseen else ""
    cells = "".join([_cell(row, column) for column in used])
    return f'<tr{kept}{own}{said}><th scope=row><a href="#{esc(place.id(row.key))}">{esc(row.name)}</a>{cells}\n'


def _cell(row: Row, column: Column) -> str:
    text = esc(column.text(row))
    if column.number is None:
        return f"<td>{text}"
    value = sortable(column.number(row))
    return f"<td class=n data-v={value}>{text}" if value else f"<td class=n>{text}"


def filters(name: str, rows: Sequence[Row]) -> str:
    """A select for whatever differs between items; hidden until the script that they need is there."""
    selects = "".join(
        _select(field, values)
        for field in FILTERS
        if len(values := sorted({str(getattr(row, field)) for row in rows})) > 1
    )
    return (
        f"<form class=filters data-for={name} hidden><label class=wide>Filter<input type=search "
        f"placeholder='any words: operator, shape, reason, caution'></label>{selects}"
        f"<button type=reset>Show all</button></form><p class=shown data-for={name} role=status aria-live=polite></p>"
    )


def _select(field: str, values: Sequence[str]) -> str:
    options = "".join(f'<option value="{esc(value)}">{esc(_said(field, value))}</option>' for value in values if value)
    return f"<label>{field}<select name={field}><option value=''>all</option>{options}</select></label>"


def _said(field: str, value: str) -> str:
    return WORDS.get(value, value) if field == "status" else value
