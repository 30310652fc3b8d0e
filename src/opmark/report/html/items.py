"""The rows of a run in a page: the table, which `table.js` sorts and filters, and the details of each row.

There may be thousands, so that texts are joined instead of rendered by a template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from markupsafe import Markup

from opmark.analysis.accuracy import output_accuracies
from opmark.analysis.rows import Row, Timing, headline_name, split_by_headline
from opmark.report.summary import WORDS, ItemAnchors
from opmark.report.text import (
    amount,
    coverage_text,
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
from opmark.units import count_noun, seconds, significant

FILTERS = ("backend", "dtype", "status", "phase")
"""Fields to filter by: each is an attribute of a row, and `data-NAME` in the page."""


class ItemColumn(NamedTuple):
    head: str
    text: Callable[[Row], str]
    number: Callable[[Row], float | None] | None = None
    """Number to sort by; None to sort by the text."""
    always: bool = False
    """Whether the column is shown even if it is empty."""


def value_text(timing: Timing) -> str:
    """Return the median as text, in brackets if it was disturbed."""
    text = amount(timing.median, timing.unit)
    return f"({text})" if text and timing.disturbed else text


def _interval_width(row: Row) -> float | None:
    """Return the width of the interval relative to the median."""
    first = row.headline
    if not first or first.disturbed or not first.median or first.low is None or first.high is None:
        return None
    return (first.high - first.low) / first.median


def _item_rate(row: Row) -> str:
    """Return samples or tokens per second."""
    known = finite(row.items_per_second)
    return f"{significant(known)} {row.items}/s" if known else ""


def _bandwidth(row: Row) -> float | None:
    """Return the bandwidth; for communication operators, that of the bus."""
    return row.bytes_per_second if row.bus_bandwidth is None else row.bus_bandwidth


COLUMNS = (
    ItemColumn("where", lambda row: row.where, always=True),
    ItemColumn("dtype", lambda row: row.dtype),
    ItemColumn("phase", lambda row: "" if row.phase == "forward" else row.phase_text),
    ItemColumn("status", lambda row: WORDS[row.status], always=True),
    ItemColumn("quantity", lambda row: f"{row.headline.quantity} {row.headline.cache}" if row.headline else ""),
    ItemColumn(
        "median",
        lambda row: value_text(row.headline) if row.headline else "",
        # A disturbed number has no place in the order.
        lambda row: row.headline.median if row.headline and not row.headline.disturbed else None,
    ),
    ItemColumn(
        "interval",
        lambda row: interval(t.low, t.high, t.unit) if (t := row.headline) and not t.disturbed else "",
        _interval_width,
    ),
    ItemColumn("items", _item_rate, lambda row: row.items_per_second),
    ItemColumn("bandwidth", lambda row: rate(_bandwidth(row), "B/s"), _bandwidth),
    ItemColumn("arithmetic", lambda row: rate(row.flops_per_second, "FLOP/s"), lambda row: row.flops_per_second),
    ItemColumn(
        "of peak",
        lambda row: percent(row.of_peak.share) if row.of_peak else "",
        lambda row: row.of_peak.share if row.of_peak else None,
    ),
    ItemColumn(
        "of datasheet",
        lambda row: percent(row.of_datasheet.share) if row.of_datasheet else "",
        lambda row: row.of_datasheet.share if row.of_datasheet else None,
    ),
    ItemColumn(
        "calls",
        lambda row: str(row.count) if row.step_share is not None else "",
        lambda row: row.count if row.step_share is not None else None,
    ),
    ItemColumn(
        "of step",
        lambda row: percent(row.step_share) if row.step_share is not None else "",
        lambda row: row.step_share,
    ),
    ItemColumn("original", lambda row: seconds(row.original) if row.original else "", lambda row: row.original),
    ItemColumn("memory", memory, lambda row: row.memory),
    ItemColumn("cautions", lambda row: ", ".join(row.headline_cautions)),
)


def row_table(rows: Sequence[Row], place: ItemAnchors, of: str = "", *, instead: bool = False) -> Markup:
    """Return the table with its filters; rows of different headlines have tables of their own. `of`: the run, if there
    are several. `instead`: there are no details, so that the rows of the table are the targets of links."""
    name, parts = f"items-{place.number}", split_by_headline(rows)
    if len(parts) == 1:
        return _table_of(rows, place, name, of, instead=instead)
    found = ""
    for number, part in enumerate(parts, 1):
        what = headline_name(part)
        own = ", ".join(filter(None, (what, of)))
        found += f"<p>{esc(what)}</p>{_table_of(part, place, f'{name}-{number}', own, instead=instead)}"
    return Markup(found)


def _table_of(rows: Sequence[Row], place: ItemAnchors, name: str, of: str, *, instead: bool) -> Markup:
    used = [column for column in COLUMNS if column.always or any(column.text(row) for row in rows)]
    heads = "".join(
        f"<th scope=col{' class=n' if number else ''}><button type=button>{head}</button>"
        for head, number in (("case", False), *((column.head, column.number is not None) for column in used))
    )
    shared = set.intersection(*(set(row.tags) for row in rows)) if rows else set()  # nobody filters by these
    lines = []
    for row in rows:
        anchor = esc(place.id(row.key))
        data = "".join(f' data-{field}="{esc(str(getattr(row, field)))}"' for field in FILTERS)
        data += f' id="{anchor}"' if instead else ""
        hidden = " ".join(filter(None, (row.reason, *row.notes, *(tag for tag in row.tags if tag not in shared))))
        data += f' data-t="{esc(hidden[:300])}"' if hidden else ""
        cells = ""
        for column in used:
            value = sortable(column.number(row)) if column.number else ""
            kind = "" if column.number is None else f" class=n data-v={value}" if value else " class=n"
            cells += f"<td{kind}>{esc(column.text(row))}"
        lines.append(f'<tr{data}><th scope=row><a href="#{anchor}">{esc(row.name)}</a>{cells}\n')
    region = esc(" ".join(filter(None, ("All cases", of and f"of {of}"))))
    return Markup(
        f'{filters(name, rows)}<div class="scroll tall" tabindex=0 role=region aria-label="{region}">'
        f"<table id={name} class=items data-sortable><thead><tr>{heads}</thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def filters(name: str, rows: Sequence[Row]) -> str:
    """Return a select for each field in which rows differ; the form is hidden until its script runs."""
    selects = ""
    for field in FILTERS:
        values = sorted({str(getattr(row, field)) for row in rows})
        options = "".join(
            f'<option value="{esc(value)}">{esc(WORDS.get(value, value) if field == "status" else value)}</option>'
            for value in values
            if value
        )
        if len(values) > 1:
            selects += f"<label>{field}<select name={field}><option value=''>all</option>{options}</select></label>"
    return (
        f"<form class=filters data-for={name} hidden><label class=wide>Filter<input type=search "
        f"placeholder='any words: operator, shape, reason, caution'></label>{selects}"
        f"<button type=reset>Show all</button></form><p class=shown data-for={name} role=status aria-live=polite></p>"
    )


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
    it. The scale ends at the slowest sample that is no straggler, which would flatten all others; stragglers are at
    the upper edge, with strokes above."""
    low, slowest = min(samples, default=0.0), max(samples, default=0.0)
    if len(samples) < 2 or not slowest > low:
        return ""
    limit = outlier_limit(samples)
    usual = max(value for value in samples if value <= limit)
    high = usual if usual > low else slowest
    dots = thin_out(samples, most)
    across = [round(i * (WIDTH - _ASIDE - 8) / (len(dots) - 1)) + 2 for i in range(len(dots))]
    middle, *down = [max(0, round((HEIGHT - 1) * (high - value) / (high - low))) for value in (median(samples), *dots)]
    path = f"M{across[0]} {down[0]}h0"  # relative moves, each with a stroke of length 0: a round pen draws a dot
    for (x, y), (next_x, next_y) in pairwise(zip(across, down, strict=True)):
        path += f"m{next_x - x}{next_y - y if next_y < y else f' {next_y - y}'}h0"
    counts = [0] * _BINS
    for value in samples:
        if value <= high:
            counts[min(_BINS - 1, int(_BINS * (high - value) / (high - low)))] += 1
    histogram = "".join(
        f"M{WIDTH - _ASIDE + 2} {2 * i + 1}h{max(1, round((_ASIDE - 4) * count / max(counts)))}"
        for i, count in enumerate(counts)
        if count
    )
    beyond = "".join(f"M{x} 0v-{_TICK}" for x, value in zip(across, dots, strict=True) if value > high)
    return (
        f'<svg class=strip viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden=true>'
        f'<path class=m d="M0 {middle}H{WIDTH - _ASIDE}"/><path d="{path}"/><path class=h d="{histogram}"/>'
        + (f'<path class=far d="{beyond}"/>' if beyond else "")
        + "</svg>"
    )


def thin_out(samples: Sequence[float], most: int) -> list[float]:
    """Return at most `most` samples at equal distances, and always the fastest and the slowest."""
    if len(samples) <= most:
        return list(samples)
    step = len(samples) / (most - 2)
    chosen = {int(i * step) for i in range(most - 2)}
    chosen |= {min(range(len(samples)), key=samples.__getitem__), max(range(len(samples)), key=samples.__getitem__)}
    return [samples[i] for i in sorted(chosen)]


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
    first = row.headline
    word = (value_text(first) if first else "") or WORDS[row.status]
    kind = " class=fail" if row.failed else ""
    facts = "".join(f"<dt>{name}<dd>{value}" for name, value in _facts(row))
    reason = f"<pre>{esc_lines(row.reason)}</pre>" if row.reason else ""
    return (
        f'<details class=item id="{esc(place.id(row.key))}"{" open" if look.open else ""}>'
        f"<summary>{esc(row.name)} <i>{esc(row.where)}</i> <b{kind}>{esc(word)}</b></summary>{reason}"
        f"{_quantity_table(row, look)}{_accuracy_table(row, look)}<dl>{facts}</dl>{figure}</details>\n"
    )


def _quantity_table(row: Row, look: ItemStyle) -> str:
    if not row.timings:
        return ""
    lines = ""
    for number, timing in enumerate(row.timings):
        # Of all processes, in the order of measurement.
        samples = [value for m in row.measurements(timing.key) for value in m.samples if finite(value) is not None]
        several = f" in {timing.processes} processes" if timing.processes > 1 else ""
        cells = (
            amount(timing.median, timing.unit) or "no number",
            interval(timing.low, timing.high, timing.unit),
            amount(min(samples, default=None), timing.unit),
            amount(max(samples, default=None), timing.unit),
            f"{timing.samples}{several}",
        )
        lines += f"<tr><th scope=row>{esc(timing.quantity)} {timing.cache}" + "".join(f"<td>{cell}" for cell in cells)
        lines += f"<td>{strip(samples, look.dots)}" if look.dots and (look.every or not number) else ""
    label = ", ".join(filter(None, (f"{row.name} on {row.where}", look.of)))
    heads = "".join(f"<th scope=col>{head}" for head in _HEADS)
    picture = "<th scope=col>in the order taken" if look.dots else ""
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="Quantities: {esc(label)}">'
        f"<table class=q><thead><tr>{heads}{picture}"
        f"<tbody>{lines}</table></div>"
    )


_ACCURACY = ("output", "verdict", "bound", "max", "mean", "RMSE", "cosine", "ulp", "NaN", "Inf")


def _accuracy_table(row: Row, look: ItemStyle) -> str:
    """Return how far each output of a model is from the reference."""
    if not row.is_model or not row.records:
        return ""
    lines = ""
    for name, one, bound, verdict in output_accuracies(row.record):
        numbers = (one.max_abs, one.mean_abs, one.rmse)
        cells = (
            verdict or "?", bound, *("" if value is None else f"{value:.2g}" for value in numbers),
            "" if one.cosine is None else f"{one.cosine:.9g}", "" if one.max_ulp is None else f"{one.max_ulp:.2g}",
            f"{one.nan} / {one.nan_expected}", f"{one.inf} / {one.inf_expected}",
        )  # fmt: skip
        kind = " class=fail" if verdict == "FAIL" else ""
        lines += f"<tr><th scope=row>{esc(name)}<td{kind}>" + "<td>".join(map(esc, cells))
    if not lines:
        return ""
    label = ", ".join(filter(None, (f"{row.name} on {row.where}", look.of)))
    heads = "".join(f"<th scope=col>{head}" for head in _ACCURACY)
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="Numerics: {esc(label)}">'
        f"<table class=q><thead><tr>{heads}<tbody>{lines}</table></div>"
    )


def _facts(row: Row) -> list[tuple[str, str]]:
    """Return the names and escaped values of the facts that are known."""
    doubts: dict[Caution, list[str]] = {}
    for key, caution in row.warnings():
        doubts.setdefault(caution, []).append(" ".join(key))
    found = []
    for caution, quantities in doubts.items():
        hint = f"; {esc(caution.hint)}" if caution.hint else ""
        which = f"{esc(', '.join(dict.fromkeys(quantities)))}: " if len(row.timings) > 1 else ""
        found.append(("caution", f"<b class=caution>{esc(caution.code)}</b> {which}{esc(caution.message)}{hint}"))
    rates = (_item_rate(row), rate(row.bytes_per_second, "B/s"), rate(row.flops_per_second, "FLOP/s"))
    facts = [("rate", ", ".join(filter(None, rates)))]
    buses = (rate(row.bus_bandwidth, "B/s"), rate(row.algorithm_bandwidth, "B/s"))
    if all(buses):
        ranks = count_noun(row.ranks or 0, "rank")
        facts.append(("communication", f"bus {buses[0]}, algorithm {buses[1]}, {ranks}"))
    for name, share in (("peak", row.of_peak), ("datasheet", row.of_datasheet)):
        if share and percent(share.share):
            facts.append((f"of {name}", f"{percent(share.share)} ({share.bound})"))
    work = (size(row.bytes) and f"at least {size(row.bytes)}", row.flops and rate(row.flops, "FLOP"))
    facts.append(("work", ", ".join(part for part in work if part)))
    facts.append(("memory", memory(row) + (f" (by {row.memory_source})" if row.memory_source else "")))
    tokens = {"first token after": row.time_to_first_token, "time per token": row.time_per_token}
    facts += [(name, amount(value, "s")) for name, value in tokens.items()]
    facts.append(("token cache", size(row.token_cache)))
    cached = f"; with caches {amount(row.compile_cached, 's')}" if row.compile_cached is not None else ""
    facts.append(("exported in", amount(row.export_time, "s")))
    facts.append(("compiled in", amount(row.compile_time, "s") + cached))
    if covered := row.coverage:
        others = ", ".join(f"{name} ({number})" for name, number in covered.fallback.items())
        texts = [f"{covered.taken} of {covered.operators} operators ({coverage_text(row)})"]
        texts += [f"left to others: {others}"] if others else []
        texts += [f"{row.graphs} graphs"] if row.graphs and row.graphs > 1 else []
        facts.append(("coverage", "; ".join(filter(None, (*texts, covered.note)))))
    breaks = [reason for record in row.records[:1] if record.compilation for reason in record.compilation.breaks]
    facts += [("graph break", reason) for reason in breaks]
    check = next((record.verification for record in row.records if record.verification), None)
    if row.verified:
        texts = [_VERIFIED.get(row.verified, row.verified)]
        if check and finite(check.max_rel_error) is not None:
            texts.append(f"largest relative error {significant(check.max_rel_error or 0.0, 2)}")
        facts.append(("verified", "; ".join([*texts, *([check.note] if check and check.note else [])])))
    facts += [("note", note) for note in row.notes]
    facts.append(("tags", ", ".join(row.tags)))
    how = (f"effort {row.effort}", row.mode, count_noun(row.threads, "thread"))
    facts.append(("how", ", ".join(filter(None, how))))
    facts += [("case", row.case), ("started", format_moment(row.started))]
    return [*found, *((name, esc(value)) for name, value in facts if value)]
