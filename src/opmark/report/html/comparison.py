"""A comparison in a page: verdicts, mean, differing facts, and a table with the slowest case first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from opmark.report.comparison import (
    CYCLES,
    WORDS,
    Columns,
    failed_on_both,
    footer,
    header,
    interval,
    mean_cases,
    quantity,
    ratio,
    select_pairs,
    split_by_quantity,
    word,
)
from opmark.report.summary import ItemAnchors, Key, RunSection
from opmark.report.text import esc, fact, printable, sortable
from opmark.schema.comparison import Compared, Geomean, Pairing
from opmark.units import seconds

_NUMBERS = ("A", "B", "B/A", *CYCLES)
_CLASSES = {"slower": "fail", "failed": "fail", "faster": "good"}
Links = Mapping[tuple[str, str], str]
"""Links to rows by case and by the name of their backend in tables."""


class FactDifference(NamedTuple):
    name: str
    a: str
    b: str


def links_of(part: RunSection, place: ItemAnchors) -> Links:
    found = {}
    for row in part.run_view.rows:
        found[row.case, row.place] = place.href(row.key)
    return found


def verdicts(compared: Compared) -> list[Key]:
    counts = Counter(word(pair) for pair in compared.pairs if not failed_on_both(pair))
    mean = compared.geomean
    found = [Key(name, str(counts[name]), "of B against A") for name in WORDS if counts[name]]
    if mean:
        about = f"{interval(mean)}, " if interval(mean) else ""
        remarks = filter(None, (f"{about}{mean_cases(compared, mean)}", spread(compared)))
        found.append(Key("geometric mean B/A", ratio(mean.ratio), "; ".join(remarks)))
    for step in compared.steps:
        remark = f"{seconds(step.a)} → {seconds(step.b)}, count x {step.quantity} {step.cache} on {step.where[1]}"
        found.append(Key("step B/A", ratio(step.ratio), remark))
    return found


def spread(compared: Compared) -> str:
    """Return the range of the ratios of single cases, because the interval of the mean can be much narrower."""
    mean = compared.geomean
    found = [pair.ratio for pair in compared.pairs if pair.ratio and mean and _is_part(pair, mean)]
    if len(found) < 2:
        return ""
    return f"the interval is of the mean; single cases lie between {ratio(min(found))} and {ratio(max(found))}"


def _is_part(pair: Pairing, mean: Geomean) -> bool:
    return (pair.quantity, pair.cache) == (mean.quantity, mean.cache)


def lines(compared: Compared) -> list[str]:
    """Return the lines above and below a comparison, without the differing facts, which have a table."""
    return [printable(line) for line in (*header(compared), *footer(compared)) if not line.startswith("differs: ")]


def differences(compared: Compared) -> list[FactDifference]:
    return [
        FactDifference(printable(name), *(fact(name, value) or "unknown" for value in both))
        for name, both in compared.differing.items()
    ]


def versus_table(compared: Compared, number: int, links: Links, of: str = "") -> Markup:
    """Return a table of the pairs of each quantity, slowest first; empty if no case is on both sides. `of` names one of
    several comparisons."""
    pairs = select_pairs(compared)
    columns, parts = Columns.for_page(pairs), split_by_quantity(pairs, lambda pair: pair)
    heads = "".join(
        f"<th scope=col{' class=n' if head in _NUMBERS else ''}><button type=button>{head or 'remark'}</button>"
        for head in (*columns.heads, *columns.figure_heads)
    )
    found = ""
    for place, part in enumerate(parts):
        name = f"versus-{number}-{place + 1}" if place else f"versus-{number}"
        rows = "".join([_row(pair, columns, links) for pair in part])
        what = quantity(part[0]) if len(parts) > 1 else ""
        region = esc(": ".join(filter(None, ("Comparison, case by case", of, what))))
        found += (
            f'{_filters(name, part)}<div class="scroll tall" tabindex=0 role=region aria-label="{region}">'
            f"<table id={name} class=items data-sortable><thead><tr>{heads}</thead><tbody>{rows}</tbody></table></div>"
        )
    return Markup(found)


def _row(pair: Pairing, columns: Columns, links: Links) -> str:
    verdict = word(pair)
    href = next((link for where in reversed(pair.where) if (link := links.get((pair.case, where), ""))), "")
    first, *who = [esc(cell) for cell in columns.cells(pair)]
    name = f'<a href="{esc(href)}">{first}</a>' if href else first
    numbers = [pair.a, pair.b, pair.ratio]
    if columns.cycles:
        found = pair.cycles
        numbers += [found.a, found.b, found.ratio] if found else [None] * len(CYCLES)
    texts = columns.figures(pair)
    cells = "".join(f"<td>{cell}" for cell in who)
    cells += "".join(
        f'<td class=n data-v="{sortable(value)}">{esc(text)}' for value, text in zip(numbers, texts, strict=False)
    )
    kind = f" class={_CLASSES[verdict]}" if verdict in _CLASSES else ""
    return (
        f"<tr data-verdict={verdict}><th scope=row>{name}{cells}"
        f"<td>{esc(texts[-3])}<td{kind}>{verdict}<td>{esc(texts[-1])}\n"
    )


def _filters(name: str, pairs: Sequence[Pairing]) -> str:
    found = Counter(word(pair) for pair in pairs)
    options = "".join(f"<option value={one}>{one} ({found[one]})</option>" for one in WORDS if found[one])
    return (
        f"<form class=filters data-for={name} hidden><label class=wide>Filter<input type=search></label>"
        f"<label>verdict<select name=verdict><option value=''>all</option>{options}</select></label>"
        f"<button type=reset>Show all</button></form><p class=shown data-for={name} role=status aria-live=polite></p>"
    )
