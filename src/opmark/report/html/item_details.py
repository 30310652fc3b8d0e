"""Everything about an item, folded away: what was measured, what it means, what is doubtful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.report.html.cautions import each
from opmark.report.html.content import Place
from opmark.report.html.failures import WORDS
from opmark.report.html.strip import MOST, strip
from opmark.report.html.text import amount, esc, esc_lines, interval, known, memory, moment, percent, rate, size
from opmark.schema import Record
from opmark.schema.item import Item, Timing
from opmark.schema.measurement import Caution
from opmark.schema.record import Verification
from opmark.units import counted, significant

_HEADS = ("quantity", "median", "interval", "fastest", "slowest", "samples")
_VERIFIED = {"full": "in full", "scaled": "at a smaller size: too large in full",
             "none": "not verified"}  # fmt: skip


class Look(NamedTuple):
    """How items are shown in a page."""

    dots: int = MOST
    """Samples that are drawn of a quantity; 0 for none."""
    every: bool = True
    """Of every quantity, and not only of the headline."""
    open: bool = False
    """On paper nobody can unfold them."""
    of: str = ""
    """The run, where a page has several."""


def item_details(item: Item, records: Sequence[Record], place: Place, look: Look, figure: str = "") -> str:
    """`figure`: its samples, drawn large."""
    opened = " open" if look.open else ""
    facts = "".join(f"<dt>{name}<dd>{value}" for name, value in _facts(item, records))
    reason = f"<pre>{esc_lines(item.reason)}</pre>" if item.reason else ""
    return (
        f'<details class=item id="{esc(place.id(item.key))}"{opened}><summary>{_summary(item)}</summary>{reason}'
        f"{_quantities(item, records, look)}<dl>{facts}</dl>{figure}</details>\n"
    )


def _summary(item: Item) -> str:
    first = item.headline
    told = amount(first.median, first.unit) if first else ""
    word = told or WORDS[item.status]
    kind = " class=fail" if item.failed else ""
    return f"{esc(item.name)} <i>{esc(item.where)}</i> <b{kind}>{esc(word)}</b>"


def _quantities(item: Item, records: Sequence[Record], look: Look) -> str:
    if not item.timings:
        return ""
    rows = "".join([_row(timing, _samples(timing, records), look, i) for i, timing in enumerate(item.timings)])
    named = ", ".join(filter(None, (f"{item.name} on {item.where}", look.of)))
    heads = "".join(f"<th scope=col>{head}" for head in _HEADS)
    drawn = "<th scope=col>in the order taken" if look.dots else ""
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="Quantities: {esc(named)}">'
        f"<table class=q><thead><tr>{heads}{drawn}"
        f"<tbody>{rows}</table></div>"
    )


def _samples(timing: Timing, records: Sequence[Record]) -> list[float]:
    """Of all processes, in the order taken; what is no number is left out."""
    measured = (m for record in records for m in record.measurements)
    fitting = (m for m in measured if (m.quantity, m.cache) == (timing.quantity, timing.cache))
    return [value for m in fitting for value in m.samples if known(value) is not None]


def _row(timing: Timing, samples: Sequence[float], look: Look, number: int) -> str:
    several = f" in {timing.processes} processes" if timing.processes > 1 else ""
    cells = (
        amount(timing.median, timing.unit) or "no number",
        interval(timing.low, timing.high, timing.unit),
        amount(min(samples, default=None), timing.unit),
        amount(max(samples, default=None), timing.unit),
        f"{timing.samples}{several}",
    )
    drawn = f"<td>{strip(samples, look.dots)}" if look.dots and (look.every or not number) else ""
    return f"<tr><th scope=row>{esc(timing.quantity)} {timing.cache}" + "".join(f"<td>{cell}" for cell in cells) + drawn


def _facts(item: Item, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """(name, escaped value) of what there is."""
    doubts: dict[Caution, list[str]] = {}
    for quantity, cache, caution in each(item, records):
        doubts.setdefault(caution, []).append(f"{quantity} {cache}")
    for caution, of in doubts.items():
        hint = f"; {esc(caution.hint)}" if caution.hint else ""
        which = f"{esc(', '.join(dict.fromkeys(of)))}: " if len(item.timings) > 1 else ""
        yield "caution", f"<b class=caution>{esc(caution.code)}</b> {which}{esc(caution.message)}{hint}"
    told = (*_rates(item), *_peaks(item), *_costs(item, records), *_words(item))
    yield from ((name, esc(value)) for name, value in told if value)


def _rates(item: Item) -> Iterator[tuple[str, str]]:
    rates = (rate(item.bytes_per_second, "B/s"), rate(item.flops_per_second, "FLOP/s"))
    yield "rate", ", ".join(filter(None, rates))
    buses = (rate(item.bus_bandwidth, "B/s"), rate(item.algorithm_bandwidth, "B/s"))
    if all(buses):
        yield "communication", f"bus {buses[0]}, algorithm {buses[1]}, {counted(item.ranks or 0, 'rank')}"


def _peaks(item: Item) -> Iterator[tuple[str, str]]:
    for name, share in (("peak", item.of_peak), ("datasheet", item.of_datasheet)):
        if share and percent(share.share):
            yield f"of {name}", f"{percent(share.share)} ({share.bound})"


def _costs(item: Item, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    work = (size(item.bytes) and f"at least {size(item.bytes)}", item.flops and rate(item.flops, "FLOP"))
    yield "work", ", ".join(part for part in work if part)
    yield "memory", memory(item) + (f" (by {item.memory_source})" if item.memory_source else "")
    yield "compiled in", amount(item.compile_time, "s")
    check = next((record.verification for record in records if record.verification), None)
    if item.verified:
        yield "verified", _verified(item.verified, check)


def _verified(how: str, check: Verification | None) -> str:
    told = [_VERIFIED.get(how, how)]
    if check and known(check.max_rel_error) is not None:
        told.append(f"largest relative error {significant(check.max_rel_error or 0.0, 2)}")
    if check and check.note:
        told.append(check.note)
    return "; ".join(told)


def _words(item: Item) -> Iterator[tuple[str, str]]:
    for note in item.notes:
        yield "note", note
    yield "tags", ", ".join(item.tags)
    yield "how", ", ".join(filter(None, (f"effort {item.effort}", item.mode, counted(item.threads, "thread"))))
    yield "case", item.case
    yield "started", moment(item.started)
