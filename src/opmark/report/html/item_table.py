"""The table of all items, which `table.js` sorts and filters. Of thousands of rows, texts are joined, not templated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from opmark.report.html.content import Place
from opmark.report.html.failures import WORDS
from opmark.report.html.text import amount, esc, interval, memory, percent, rate, sortable
from opmark.schema.item import Item

FILTERS = ("backend", "dtype", "status", "phase")
"""Each is an attribute of an item, and `data-NAME` of its row."""


class Column(NamedTuple):
    head: str
    text: Callable[[Item], str]
    number: Callable[[Item], float | None] | None = None
    """What it is sorted by; None: its text."""
    always: bool = False
    """Also where no item has anything there."""


def _median(item: Item) -> float | None:
    return item.headline.median if item.headline else None


def _headline(item: Item) -> str:
    return amount(_median(item), item.headline.unit) if item.headline else ""


def _interval(item: Item) -> str:
    first = item.headline
    return interval(first.low, first.high, first.unit) if first else ""


def _width(item: Item) -> float | None:
    """Of the interval, relative to the median."""
    first = item.headline
    if not first or not first.median or first.low is None or first.high is None:
        return None
    return (first.high - first.low) / first.median


def _bandwidth(item: Item) -> float | None:
    """Of communication that of the bus."""
    return item.bytes_per_second if item.bus_bandwidth is None else item.bus_bandwidth


COLUMNS = (
    Column("where", lambda item: item.where, always=True),
    Column("dtype", lambda item: item.dtype),
    Column("phase", lambda item: "" if item.phase == "forward" else item.phase_text),
    Column("status", lambda item: WORDS[item.status], always=True),
    Column("quantity", lambda item: f"{item.headline.quantity} {item.headline.cache}" if item.headline else ""),
    Column("median", _headline, _median),
    Column("interval", _interval, _width),
    Column("bandwidth", lambda item: rate(_bandwidth(item), "B/s"), _bandwidth),
    Column("arithmetic", lambda item: rate(item.flops_per_second, "FLOP/s"), lambda item: item.flops_per_second),
    Column("of peak", lambda item: percent(_of_peak(item)), lambda item: _of_peak(item)),
    Column("of datasheet", lambda item: percent(_of_datasheet(item)), lambda item: _of_datasheet(item)),
    Column("memory", memory, lambda item: item.memory),
    Column("cautions", lambda item: ", ".join(item.headline_cautions)),
)


def _of_peak(item: Item) -> float | None:
    return item.of_peak.share if item.of_peak else None


def _of_datasheet(item: Item) -> float | None:
    return item.of_datasheet.share if item.of_datasheet else None


def item_table(items: Sequence[Item], place: Place, of: str = "", *, instead: bool = False) -> Markup:
    """With its filters. `of`: the run, where there are several. `instead`: there are no details, so that what links to
    an item finds its row."""
    name = f"items-{place.number}"
    used = [column for column in COLUMNS if column.always or any(column.text(item) for item in items)]
    heads = "".join(_head(head, number=number) for head, number in _heads(used))
    shared = set.intersection(*(set(item.tags) for item in items)) if items else set()
    names = [f' id="{esc(place.id(item.key))}"' if instead else "" for item in items]
    rows = "".join([_row(item, place, used, shared, own) for item, own in zip(items, names, strict=True)])
    region = esc(" ".join(filter(None, ("All cases", of and f"of {of}"))))
    return Markup(
        f'{filters(name, items)}<div class="scroll tall" tabindex=0 role=region aria-label="{region}">'
        f"<table id={name} class=items data-sortable><thead><tr>{heads}</thead><tbody>{rows}</tbody></table></div>"
    )


def _heads(used: Sequence[Column]) -> Iterator[tuple[str, bool]]:
    yield "case", False
    for column in used:
        yield column.head, column.number is not None


def _head(head: str, *, number: bool) -> str:
    return f"<th scope=col{' class=n' if number else ''}><button type=button>{head}</button>"


def _row(item: Item, place: Place, used: Sequence[Column], shared: Collection[str], own: str) -> str:
    """`shared`: tags that all have; nobody filters by these."""
    kept = "".join(f' data-{name}="{esc(str(getattr(item, name)))}"' for name in FILTERS)
    unseen = " ".join(filter(None, (item.reason, *item.notes, *(tag for tag in item.tags if tag not in shared))))
    said = f' data-t="{esc(unseen[:300])}"' if unseen else ""
    cells = "".join([_cell(item, column) for column in used])
    return f'<tr{kept}{own}{said}><th scope=row><a href="#{esc(place.id(item.key))}">{esc(item.name)}</a>{cells}\n'


def _cell(item: Item, column: Column) -> str:
    text = esc(column.text(item))
    if column.number is None:
        return f"<td>{text}"
    value = sortable(column.number(item))
    return f"<td class=n data-v={value}>{text}" if value else f"<td class=n>{text}"


def filters(name: str, items: Sequence[Item]) -> str:
    """A select for whatever differs between items; hidden until the script that they need is there."""
    selects = "".join(
        _select(field, values)
        for field in FILTERS
        if len(values := sorted({str(getattr(item, field)) for item in items})) > 1
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
