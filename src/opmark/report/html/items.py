"""The rows of a run in a page: the table, which `table.js` sorts and filters, and the details of each row.

There may be thousands, so that texts are joined instead of rendered by a template.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from markupsafe import Markup

from opmark.analysis.rows import Row, Timing
from opmark.report.summary import WORDS, ItemAnchors
from opmark.report.text import (
    amount,
    esc,
    esc_lines,
    finite,
    format_moment,
    interval,
    memory,
    percent,
    rate,
    size,
    sortable,
)
from opmark.schema.measurement import Caution
from opmark.stats import outlier_limit
from opmark.units import count_noun, significant

FILTERS = ("backend", "dtype", "status", "phase")
"""Fields to filter by: each is an attribute of a row, and `data-NAME` in the page."""


class ItemColumn(NamedTuple):
    head: str
    text: Callable[[Row], str]
    number: Callable[[Row], float | None] | None = None
    """Number to sort by; None to sort by the text."""
    always: bool = False
    """Whether the column is shown even if it is empty."""


def _median(row: Row) -> float | None:
    """Return the number to sort by; a disturbed one has no place in the order."""
    return row.headline.median if row.headline and not row.headline.disturbed else None


def value_text(timing: Timing) -> str:
    """Return the median as text, in brackets if it was disturbed."""
    text = amount(timing.median, timing.unit)
    return f"({text})" if text and timing.disturbed else text


def _headline(row: Row) -> str:
    return value_text(row.headline) if row.headline else ""


def _interval(row: Row) -> str:
    first = row.headline
    return interval(first.low, first.high, first.unit) if first and not first.disturbed else ""


def _width(row: Row) -> float | None:
    """Return the width of the interval relative to the median."""
    first = row.headline
    if not first or first.disturbed or not first.median or first.low is None or first.high is None:
        return None
    return (first.high - first.low) / first.median


def _bandwidth(row: Row) -> float | None:
    """Return the bandwidth; for communication operators, that of the bus."""
    return row.bytes_per_second if row.bus_bandwidth is None else row.bus_bandwidth


COLUMNS = (
    ItemColumn("where", lambda row: row.where, always=True),
    ItemColumn("dtype", lambda row: row.dtype),
    ItemColumn("phase", lambda row: "" if row.phase == "forward" else row.phase_text),
    ItemColumn("status", lambda row: WORDS[row.status], always=True),
    ItemColumn("quantity", lambda row: f"{row.headline.quantity} {row.headline.cache}" if row.headline else ""),
    ItemColumn("median", _headline, _median),
    ItemColumn("interval", _interval, _width),
    ItemColumn("bandwidth", lambda row: rate(_bandwidth(row), "B/s"), _bandwidth),
    ItemColumn("arithmetic", lambda row: rate(row.flops_per_second, "FLOP/s"), lambda row: row.flops_per_second),
    ItemColumn("of peak", lambda row: percent(_of_peak(row)), lambda row: _of_peak(row)),
    ItemColumn("of datasheet", lambda row: percent(_of_datasheet(row)), lambda row: _of_datasheet(row)),
    ItemColumn("memory", memory, lambda row: row.memory),
    ItemColumn("cautions", lambda row: ", ".join(row.headline_cautions)),
)


def _of_peak(row: Row) -> float | None:
    return row.of_peak.share if row.of_peak else None


def _of_datasheet(row: Row) -> float | None:
    return row.of_datasheet.share if row.of_datasheet else None


def row_table(rows: Sequence[Row], place: ItemAnchors, of: str = "", *, instead: bool = False) -> Markup:
    """Return the table with its filters. `of`: the run, if there are several. `instead`: there are no details, so that
    the rows of the table are the targets of links."""
    name = f"items-{place.number}"
    used = [column for column in COLUMNS if column.always or any(column.text(row) for row in rows)]
    heads = "".join(_head(head, number=number) for head, number in _heads(used))
    shared = set.intersection(*(set(row.tags) for row in rows)) if rows else set()
    names = [f' id="{esc(place.id(row.key))}"' if instead else "" for row in rows]
    lines = "".join([_table_row(row, place, used, shared, own) for row, own in zip(rows, names, strict=True)])
    region = esc(" ".join(filter(None, ("All cases", of and f"of {of}"))))
    return Markup(
        f'{filters(name, rows)}<div class="scroll tall" tabindex=0 role=region aria-label="{region}">'
        f"<table id={name} class=items data-sortable><thead><tr>{heads}</thead><tbody>{lines}</tbody></table></div>"
    )


def _heads(used: Sequence[ItemColumn]) -> Iterator[tuple[str, bool]]:
    yield "case", False
    for column in used:
        yield column.head, column.number is not None


def _head(head: str, *, number: bool) -> str:
    return f"<th scope=col{' class=n' if number else ''}><button type=button>{head}</button>"


def _table_row(row: Row, place: ItemAnchors, used: Sequence[ItemColumn], shared: Collection[str], own: str) -> str:
    """Return a row. `shared` are the tags of all rows, by which nobody filters."""
    data = "".join(f' data-{name}="{esc(str(getattr(row, name)))}"' for name in FILTERS)
    hidden = " ".join(filter(None, (row.reason, *row.notes, *(tag for tag in row.tags if tag not in shared))))
    words = f' data-t="{esc(hidden[:300])}"' if hidden else ""
    cells = "".join([_cell(row, column) for column in used])
    return f'<tr{data}{own}{words}><th scope=row><a href="#{esc(place.id(row.key))}">{esc(row.name)}</a>{cells}\n'


def _cell(row: Row, column: ItemColumn) -> str:
    text = esc(column.text(row))
    if column.number is None:
        return f"<td>{text}"
    value = sortable(column.number(row))
    return f"<td class=n data-v={value}>{text}" if value else f"<td class=n>{text}"


def filters(name: str, rows: Sequence[Row]) -> str:
    """Return a select for each field in which rows differ; the form is hidden until its script runs."""
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
    options = "".join(
        f'<option value="{esc(value)}">{esc(WORDS.get(value, value) if field == "status" else value)}</option>'
        for value in values
        if value
    )
    return f"<label>{field}<select name={field}><option value=''>all</option>{options}</select></label>"


# Samples as a small picture: dots in the order of measurement, a histogram at the right, and the median as a line.

WIDTH, HEIGHT = 200, 24
_BINS = 12
_ASIDE = 36
"""Width of the histogram."""
_TICK = 4
MOST = 40
"""Number of dots that can be distinguished."""


def strip(samples: Sequence[float], most: int = MOST) -> str:
    """Return the picture; empty if all samples are equal. Screen readers skip it, because the numbers are next to
    it."""
    low, slowest = min(samples, default=0.0), max(samples, default=0.0)
    if len(samples) < 2 or not slowest > low:
        return ""
    high = _top(samples)
    dots = thin_out(samples, most)
    places = [_down(value, low, high) for value in dots]
    middle = _down(median(samples), low, high)
    beyond = [i for i, value in enumerate(dots) if value > high]
    return (
        f'<svg class=strip viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden=true>'
        f'<path class=m d="M0 {middle}H{WIDTH - _ASIDE}"/><path d="{_dots(places)}"/>'
        f'<path class=h d="{_histogram([value for value in samples if value <= high], low, high)}"/>'
        f"{_ticks(beyond, len(dots))}</svg>"
    )


def _top(samples: Sequence[float]) -> float:
    """Return the upper end of the scale: the slowest sample that is no straggler, which would flatten all others."""
    limit = outlier_limit(samples)
    usual = max(value for value in samples if value <= limit)
    return usual if usual > min(samples) else max(samples)


def _ticks(beyond: Sequence[int], count: int) -> str:
    """Return strokes above stragglers, which are drawn at the upper edge and lie further off."""
    if not beyond:
        return ""
    across = [_across(i, count) for i in beyond]
    return f'<path class=far d="{"".join(f"M{x} 0v-{_TICK}" for x in across)}"/>'


def thin_out(samples: Sequence[float], most: int) -> list[float]:
    """Return at most `most` samples at equal distances, and always the fastest and the slowest."""
    if len(samples) <= most:
        return list(samples)
    step = len(samples) / (most - 2)
    chosen = {int(i * step) for i in range(most - 2)}
    chosen |= {min(range(len(samples)), key=samples.__getitem__), max(range(len(samples)), key=samples.__getitem__)}
    return [samples[i] for i in sorted(chosen)]


def _down(value: float, low: float, high: float) -> int:
    """Return the distance from the upper edge; values beyond the scale are at the edge."""
    return max(0, round((HEIGHT - 1) * (high - value) / (high - low)))


def _across(i: int, count: int) -> int:
    return round(i * (WIDTH - _ASIDE - 8) / (count - 1)) + 2


def _dots(places: Sequence[int]) -> str:
    """Return a path of relative moves, each with a stroke of length 0, which a round pen draws as a dot."""
    across = [_across(i, len(places)) for i in range(len(places))]
    moves = [f"M{across[0]} {places[0]}h0"]
    for i in range(1, len(places)):
        down = places[i] - places[i - 1]
        moves.append(f"m{across[i] - across[i - 1]}{down if down < 0 else f' {down}'}h0")
    return "".join(moves)


def _histogram(samples: Sequence[float], low: float, high: float) -> str:
    counts = [0] * _BINS
    for value in samples:
        counts[min(_BINS - 1, int(_BINS * (high - value) / (high - low)))] += 1
    most = max(counts)
    return "".join(
        f"M{WIDTH - _ASIDE + 2} {2 * i + 1}h{max(1, round((_ASIDE - 4) * count / most))}"
        for i, count in enumerate(counts)
        if count
    )


# The details of a row, folded: quantities, facts, cautions.

_HEADS = ("quantity", "median", "interval", "fastest", "slowest", "samples")
_VERIFIED = {"full": "in full", "sampled": "in part, at the size that was measured",
             "scaled": "at a smaller size: too large in full",
             "none": "not verified"}  # fmt: skip


class ItemStyle(NamedTuple):
    """Options of the details of rows."""

    dots: int = MOST
    """Number of samples of a quantity that are drawn; 0 for none."""
    every: bool = True
    """Whether samples of every quantity are drawn, and not only of the headline."""
    open: bool = False
    """Whether rows are unfolded, for printing."""
    of: str = ""
    """Name of the run, if the page has several."""


def row_details(row: Row, place: ItemAnchors, look: ItemStyle, figure: str = "") -> str:
    """Return the details of a row. `figure` is the large chart of its samples."""
    opened = " open" if look.open else ""
    facts = "".join(f"<dt>{name}<dd>{value}" for name, value in _facts(row))
    reason = f"<pre>{esc_lines(row.reason)}</pre>" if row.reason else ""
    return (
        f'<details class=item id="{esc(place.id(row.key))}"{opened}><summary>{_summary(row)}</summary>{reason}'
        f"{_quantities(row, look)}<dl>{facts}</dl>{figure}</details>\n"
    )


def _summary(row: Row) -> str:
    first = row.headline
    word = (value_text(first) if first else "") or WORDS[row.status]
    kind = " class=fail" if row.failed else ""
    return f"{esc(row.name)} <i>{esc(row.where)}</i> <b{kind}>{esc(word)}</b>"


def _quantities(row: Row, look: ItemStyle) -> str:
    if not row.timings:
        return ""
    lines = "".join([_line(timing, _samples(row, timing), look, i) for i, timing in enumerate(row.timings)])
    label = ", ".join(filter(None, (f"{row.name} on {row.where}", look.of)))
    heads = "".join(f"<th scope=col>{head}" for head in _HEADS)
    picture = "<th scope=col>in the order taken" if look.dots else ""
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="Quantities: {esc(label)}">'
        f"<table class=q><thead><tr>{heads}{picture}"
        f"<tbody>{lines}</table></div>"
    )


def _samples(row: Row, timing: Timing) -> list[float]:
    """Return the finite samples of all processes, in the order of measurement."""
    return [value for m in row.measurements(timing.key) for value in m.samples if finite(value) is not None]


def _line(timing: Timing, samples: Sequence[float], look: ItemStyle, number: int) -> str:
    several = f" in {timing.processes} processes" if timing.processes > 1 else ""
    cells = (
        amount(timing.median, timing.unit) or "no number",
        interval(timing.low, timing.high, timing.unit),
        amount(min(samples, default=None), timing.unit),
        amount(max(samples, default=None), timing.unit),
        f"{timing.samples}{several}",
    )
    picture = f"<td>{strip(samples, look.dots)}" if look.dots and (look.every or not number) else ""
    return (
        f"<tr><th scope=row>{esc(timing.quantity)} {timing.cache}" + "".join(f"<td>{cell}" for cell in cells) + picture
    )


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the names and escaped values of the facts that are known."""
    doubts: dict[Caution, list[str]] = {}
    for key, caution in row.warnings():
        doubts.setdefault(caution, []).append(" ".join(key))
    for caution, quantities in doubts.items():
        hint = f"; {esc(caution.hint)}" if caution.hint else ""
        which = f"{esc(', '.join(dict.fromkeys(quantities)))}: " if len(row.timings) > 1 else ""
        yield "caution", f"<b class=caution>{esc(caution.code)}</b> {which}{esc(caution.message)}{hint}"
    yield from ((name, esc(value)) for name, value in _plain_facts(row) if value)


def _plain_facts(row: Row) -> Iterator[tuple[str, str]]:
    """Yield names and values, which are empty if unknown."""
    rates = (rate(row.bytes_per_second, "B/s"), rate(row.flops_per_second, "FLOP/s"))
    yield "rate", ", ".join(filter(None, rates))
    buses = (rate(row.bus_bandwidth, "B/s"), rate(row.algorithm_bandwidth, "B/s"))
    if all(buses):
        yield "communication", f"bus {buses[0]}, algorithm {buses[1]}, {count_noun(row.ranks or 0, 'rank')}"
    for name, share in (("peak", row.of_peak), ("datasheet", row.of_datasheet)):
        if share and percent(share.share):
            yield f"of {name}", f"{percent(share.share)} ({share.bound})"
    work = (size(row.bytes) and f"at least {size(row.bytes)}", row.flops and rate(row.flops, "FLOP"))
    yield "work", ", ".join(part for part in work if part)
    yield "memory", memory(row) + (f" (by {row.memory_source})" if row.memory_source else "")
    yield "compiled in", amount(row.compile_time, "s")
    check = next((record.verification for record in row.records if record.verification), None)
    if row.verified:
        texts = [_VERIFIED.get(row.verified, row.verified)]
        if check and finite(check.max_rel_error) is not None:
            texts.append(f"largest relative error {significant(check.max_rel_error or 0.0, 2)}")
        yield "verified", "; ".join([*texts, *([check.note] if check and check.note else [])])
    for note in row.notes:
        yield "note", note
    yield "tags", ", ".join(row.tags)
    yield "how", ", ".join(filter(None, (f"effort {row.effort}", row.mode, count_noun(row.threads, "thread"))))
    yield "case", row.case
    yield "started", format_moment(row.started)
