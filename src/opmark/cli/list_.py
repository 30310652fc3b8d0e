"""opmark list"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any

import typer

from opmark.cli.output import print_json_lines
from opmark.errors import UnknownName, UserError

_PROSE = frozenset({"summary", "description", "reason", "found", "is", "use it for", "what"})
"""Columns that are folded on a terminal."""
_OPTIONAL = ("source", "vendor", "phases", "aliases", "frameworks", "found")
"""Columns that a narrow terminal leaves out, the first of them first."""
_LEAST_PROSE = 24
"""Width that a column of prose has before an optional column is shown."""
_NARROWEST = 12
_GAP = 2


def list_(
    kind: Annotated[
        str, typer.Argument(help="ops, models, categories, suites, backends, quantities, formats, datasets or chips.")
    ],
    category: Annotated[str | None, typer.Option(help="List only the operators of this category.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per item.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print operators as a page in Markdown.")] = False,
    probe: Annotated[bool, typer.Option("--probe", help="Start every backend to see whether it runs.")] = False,
) -> None:
    listings: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "ops": _ops,
        "models": partial(_models, as_json),
        "categories": _categories,
        "suites": _suites,
        "backends": partial(_backends, probe, as_json),
        "quantities": _quantities,
        "formats": _formats,
        "datasets": _datasets,
        "chips": partial(_chips, as_json),
        "hardware": partial(_chips, as_json),
    }
    if kind not in listings:
        raise UnknownName("listing", kind, listings)
    if markdown and kind != "ops":
        raise UserError(f"{kind} are no page", "`opmark list ops --markdown` prints operators as one")
    if probe and kind != "backends":
        raise UserError(f"{kind} cannot be started", "`opmark list backends --probe` starts backends")
    rows = listings[kind]()
    if category is not None:
        if kind != "ops":
            raise UserError(f"{kind} have no category", "`opmark list ops --category activation` lists operators")
        known = sorted({row["category"] for row in rows})
        if category not in known:
            raise UnknownName("category", category, known, "opmark list categories")
        rows = [row for row in rows if row["category"] == category]
    if markdown:
        _print_page([row["operator"] for row in rows])
        return
    if as_json:
        print_json_lines(rows)
        return
    _print_table(rows)
    if kind == "backends" and not probe:
        print("`installed` is what metadata tells; --probe starts each backend to see whether it runs", file=sys.stderr)


def _print_page(names: list[str]) -> None:
    from opmark.api.describe import describe
    from opmark.report.console.operators import catalogue_page

    print(catalogue_page(map(describe, names)), end="")


def _ops() -> list[dict[str, Any]]:
    from opmark.api.list_ import operators

    found = sorted(operators(), key=lambda op: (op.category, op.name))
    return [
        {
            "operator": op.name,
            "category": op.category,
            "phases": ["forward", "backward"] if op.gradients else ["forward"],
            "summary": op.summary,
        }
        for op in found
    ]


def _models(whole: bool) -> list[dict[str, Any]]:
    """List the zoo: with `whole` also aliases, stages and notes, and numbers in full."""
    from opmark.api.list_ import models
    from opmark.units import rate

    return [
        {
            "model": one.name,
            "domain": one.domain,
            "purpose": one.purpose,
            "frameworks": list(one.frameworks),
            "data set": one.dataset,
            "precision": one.precision,
            "parameters": one.parameters if whole else rate(one.parameters, "").strip(),
            "aliases": list(one.aliases),
            "summary": one.summary,
            **({"stages": list(one.stages), "needs": one.needs, "note": one.note} if whole else {}),
        }
        for one in models()
    ]


def _categories() -> list[dict[str, Any]]:
    from collections import Counter

    from opmark.api.list_ import operators

    counts = Counter(op.category for op in operators())
    return [{"category": category, "operators": counts[category]} for category in sorted(counts)]


def _suites() -> list[dict[str, Any]]:
    from opmark.api.list_ import case_count, suites

    return [{"suite": w.name, "cases": case_count(w), "description": w.description} for w in suites()]


def _backends(probe: bool, whole: bool) -> list[dict[str, Any]]:
    """List what is installed, or with `probe` what runs; with `whole` all that is known of it."""
    from opmark.api.list_ import backends_here

    found = backends_here(probe=probe)
    if whole:
        return [
            {"backend": a.name, "here": a.reason is None, "probed": a.probed, "reason": a.reason or "",
             "summary": a.summary, "facts": a.facts}
            for a in found
        ]  # fmt: skip
    rows = []
    for a in found:
        row = {"backend": a.name, "here": "no" if a.reason else "runs" if a.probed else "installed"}
        if not probe:
            row["found"] = ", ".join(f"{name} {value}" for name, value in a.facts.items())
        rows.append({**row, "reason": a.reason or "", "summary": a.summary})
    return rows


def _quantities() -> list[dict[str, Any]]:
    from opmark.schema import QUANTITIES

    return [{"quantity": q.name, "unit": q.unit, "is": q.meaning, "use it for": q.use} for q in QUANTITIES.values()]


def _formats() -> list[dict[str, Any]]:
    from opmark.api.list_ import formats

    return [{"command": command, "format": name, "what": summary} for command, name, summary in formats()]


def _datasets() -> list[dict[str, Any]]:
    from opmark.api.list_ import data_sets

    return [{"data set": name, "what": summary} for name, summary in data_sets()]


def _chips(whole: bool) -> list[dict[str, Any]]:
    """List every chip: with `whole` all that its datasheet says, else the columns of a table."""
    from opmark.api.describe import chip_view
    from opmark.api.list_ import chips
    from opmark.report.console.machine import hardware_row

    return [chip_view(peaks) if whole else hardware_row(peaks) for peaks, _ in chips()]


def _print_table(rows: list[dict[str, Any]]) -> None:
    """Print a table, on a terminal fitted to its width: prose is folded between words, and a name that is longer than
    its column has a line of its own. Rich would take longer to draw hundreds of rows than everything else takes
    together."""
    if not rows:
        return
    lines = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [*range(len(widths))]
    if sys.stdout.isatty():
        shown, widths = _fit(lines[0], widths, get_terminal_size().columns)
    for line in lines:
        cells = [_fold(line[i], widths[i]) if lines[0][i] in _PROSE else [line[i]] for i in shown]
        if len(line[0]) > widths[0]:
            print(line[0])
            cells[0] = [""]
        for parts in zip_longest(*cells, fillvalue=""):
            print((" " * _GAP).join(f"{part:<{widths[i]}}" for i, part in zip(shown, parts, strict=True)).rstrip())
    left_out = [head for i, head in enumerate(lines[0]) if i not in shown]
    if left_out:
        print(f"no room for {', '.join(left_out)}: --json shows everything")


def _fit(heads: list[str], widths: list[int], width: int) -> tuple[list[int], list[int]]:
    """Return the columns that a terminal of this width has room for, and the widths of all columns."""
    shown = [*range(len(heads))]
    for without in ("", *_OPTIONAL):
        shown = [i for i in shown if heads[i] != without]
        prose = sorted((i for i in shown if heads[i] in _PROSE), key=lambda i: widths[i])
        room = width - sum(_GAP + widths[i] for i in shown[1:] if i not in prose) - _GAP * len(prose)
        name = min(widths[0], room // (1 + len(prose)))
        if (room - name) // len(prose) >= _LEAST_PROSE if prose else name >= min(widths[0], _LEAST_PROSE):
            break
    fitted = [max(name, 1), *widths[1:]]
    room -= name
    for count, i in zip(range(len(prose), 0, -1), prose, strict=True):  # what a short column leaves goes to the others
        fitted[i] = max(min(widths[i], room // count), _NARROWEST)
        room -= fitted[i]
    return shown, fitted


def _fold(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "asks torch"
    return ", ".join(value) if isinstance(value, list) else str(value)
