"""Everything about a row, folded away: what was measured, what it means, what is doubtful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark.analysis.rows import Row, Timing
from opmark.report.html.content import Place
from opmark.report.html.failures import WORDS
from opmark.report.html.strip import MOST, strip
from opmark.report.html.text import amount, esc, esc_lines, interval, known, memory, moment, percent, rate, size
from opmark.schema.measurement import Caution
from opmark.units import counted, significant

_HEADS = ("quantity", "median", "interval", "fastest", "slowest", "samples")
_VERIFIED = {"full": "in full", "scaled": "at a smaller size: too large in full",
             "none": "not verified"}  # fmt: skip


class Look(NamedTuple):
    """How rows are shown in a page."""

    dots: int = MOST
    """Number of samples of a quantity that are drawn; 0 for none."""
    every: bool = True
    """Whether samples of every quantity are drawn, and not only of the headline."""
    open: bool = False
    """Whether rows are unfolded, because on paper nobody can do it."""
    of: str = ""
    """The run, where a page has several."""


def row_details(row: Row, place: Place, look: Look, figure: str = "") -> str:
    """A row with everything about it. `figure`: its samples, drawn large."""
    opened = " open" if look.open else ""
    facts = "".join(f"<dt>{name}<dd>{value}" for name, value in _facts(row))
    reason = f"<pre>{esc_lines(row.reason)}</pre>" if row.reason else ""
    return (
        f'<details class=item id="{esc(place.id(row.key))}"{opened}><summary>{_summary(row)}</summary>{reason}'
        f"{_quantities(row, look)}<dl>{facts}</dl>{figure}</details>\n"
    )


def _summary(row: Row) -> str:
    first = row.headline
    told = amount(first.median, first.unit) if first else ""
    word = told or WORDS[row.status]
    kind = " class=fail" if row.failed else ""
    return f"{esc(row.name)} <i>{esc(row.where)}</i> <b{kind}>{esc(word)}</b>"


def _quantities(row: Row, look: Look) -> str:
    if not row.timings:
        return ""
    lines = "".join([_line(timing, _samples(row, timing), look, i) for i, timing in enumerate(row.timings)])
    named = ", ".join(filter(None, (f"{row.name} on {row.where}", look.of)))
    heads = "".join(f"<th scope=col>{head}" for head in _HEADS)
    drawn = "<th scope=col>in the order taken" if look.dots else ""
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="Quantities: {esc(named)}">'
        f"<table class=q><thead><tr>{heads}{drawn}"
        f"<tbody>{lines}</table></div>"
    )


def _samples(row: Row, timing: Timing) -> list[float]:
    """The samples of all processes in the order taken, without those that are no number."""
    return [value for m in row.measurements(timing.key) for value in m.samples if known(value) is not None]


def _line(timing: Timing, samples: Sequence[float], look: Look, number: int) -> str:
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


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    """(name, escaped value) of what there is."""
    doubts: dict[Caution, list[str]] = {}
    for key, caution in row.warnings():
        doubts.setdefault(caution, []).append(" ".join(key))
    for caution, of in doubts.items():
        hint = f"; {esc(caution.hint)}" if caution.hint else ""
        which = f"{esc(', '.join(dict.fromkeys(of)))}: " if len(row.timings) > 1 else ""
        yield "caution", f"<b class=caution>{esc(caution.code)}</b> {which}{esc(caution.message)}{hint}"
    yield from ((name, esc(value)) for name, value in _plain_facts(row) if value)


def _plain_facts(row: Row) -> Iterator[tuple[str, str]]:
    """(name, value), which is empty where there is nothing to tell."""
    rates = (rate(row.bytes_per_second, "B/s"), rate(row.flops_per_second, "FLOP/s"))
    yield "rate", ", ".join(filter(None, rates))
    buses = (rate(row.bus_bandwidth, "B/s"), rate(row.algorithm_bandwidth, "B/s"))
    if all(buses):
        yield "communication", f"bus {buses[0]}, algorithm {buses[1]}, {counted(row.ranks or 0, 'rank')}"
    for name, share in (("peak", row.of_peak), ("datasheet", row.of_datasheet)):
        if share and percent(share.share):
            yield f"of {name}", f"{percent(share.share)} ({share.bound})"
    work = (size(row.bytes) and f"at least {size(row.bytes)}", row.flops and rate(row.flops, "FLOP"))
    yield "work", ", ".join(part for part in work if part)
    yield "memory", memory(row) + (f" (by {row.memory_source})" if row.memory_source else "")
    yield "compiled in", amount(row.compile_time, "s")
    check = next((record.verification for record in row.records if record.verification), None)
    if row.verified:
        told = [_VERIFIED.get(row.verified, row.verified)]
        if check and known(check.max_rel_error) is not None:
            told.append(f"largest relative error {significant(check.max_rel_error or 0.0, 2)}")
        yield "verified", "; ".join([*told, *([check.note] if check and check.note else [])])
    for note in row.notes:
        yield "note", note
    yield "tags", ", ".join(row.tags)
    yield "how", ", ".join(filter(None, (f"effort {row.effort}", row.mode, counted(row.threads, "thread"))))
    yield "case", row.case
    yield "started", moment(row.started)
