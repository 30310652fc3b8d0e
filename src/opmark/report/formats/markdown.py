"""Markdown, as GitHub and most others read it: tables, comparisons, histories and whole reports.

Texts are escaped, so that nothing in a cell is taken for markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from opmark.analysis.evaluation import accuracy_rows
from opmark.analysis.rows import Row, headline_name, split_by_headline
from opmark.report.comparison import (
    Columns,
    doubtful_lines,
    footer,
    header,
    legend,
    select_pairs,
    split_by_quantity,
    summary,
    word,
)
from opmark.report.console.comparison import news, remarks, row_figures, verdict
from opmark.report.console.history import _HEADS, _QUIET_HEADS, _QUIET_WHO, _WHO, _legend, _quiet_row, _rows
from opmark.report.evaluation import HEADS, accuracy_cells
from opmark.report.formats.grid import Grid, cell_text, is_number
from opmark.report.html.comparison import spread
from opmark.report.html.items import COLUMNS
from opmark.report.summary import (
    Content,
    FailureGroup,
    ItemAnchors,
    RunSection,
    Versus,
    about,
    describe_progress,
    doubts,
    facts_of,
    group_by_reason,
    run_name,
    sentence,
)
from opmark.report.text import printable
from opmark.schema.comparison import CheckedCase, CheckResult, Compared, Pairing
from opmark.schema.history import Histories
from opmark.schema.measurement import PREEMPTED
from opmark.units import count_noun

_MARKUP = re.compile(r"[\\`*\[\]|~#]|(?<![^\W_])_|_(?![^\W_])")
"""Matches markup; an underscore between letters is none."""
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "<span>$</span>"}
"""Replacements; GitHub needs the last one for a dollar that does not begin a formula."""
_LIVE = re.compile(r"@(?=\w)|#(?=\w)|\bGH-(?=\d)|\bwww(?=\.)|:(?=//)|\b(?:mailto|xmpp):", re.IGNORECASE)
"""Matches text that a pull request turns into a mention, a reference or a link, which a backslash does not prevent."""
_UNSEEN = "&#8203;"
"""A space of width 0, which prevents mentions, references and links."""


def markdown_text(grid: Grid) -> str:
    numeric = [_is_number([row[i] for row in grid.rows]) for i in range(len(grid.columns))]
    rule = _row("---:" if number else "---" for number in numeric)
    body = [_row(escape_markdown(cell_text(value)) for value in row) for row in grid.rows]
    return "\n".join([_row(map(escape_markdown, grid.columns)), rule, *body]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Escape text for a cell or a line, so that it contains no markup, mention, reference or link."""
    parts = _LIVE.split(line := printable(" ".join(text.split())))
    live = [found[0] for found in _LIVE.finditer(line)]
    dead = [_escape(part + end) for part, end in zip(parts, [*live, ""], strict=True)]
    return _UNSEEN.join(dead)


def _escape(text: str) -> str:
    marked = _MARKUP.sub(lambda found: f"\\{found[0]}", text)
    return "".join(_HTML.get(one, one) for one in marked)


def _is_number(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(map(is_number, known))


# Comparisons in full, and as short as for a pull request.

_ROWS = 50
"""Upper bound for a table in a pull request."""
_FOLDED = ("undecided", "cleared", "mended", "missing")
"""Outcomes that need no action."""


_VERDICT = ("verdict", "")


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], who: int, words: Collection[str] = _VERDICT
) -> Iterator[str]:
    """Yield the lines of a table. The first `who` columns and those in `words` are aligned left, figures right."""
    left = [i < who or head in words for i, head in enumerate(heads)]
    yield f"| {' | '.join(map(escape_markdown, heads))} |"
    yield f"| {' | '.join('---' if at_left else '---:' for at_left in left)} |"
    for row in rows:
        yield f"| {' | '.join(map(escape_markdown, row))} |"


def pairs_table(pairs: Sequence[Pairing], longest: int | None = None) -> Iterator[str]:
    """Yield the table of pairs of one quantity. `longest` limits the characters of a cell."""
    columns = Columns.for_page(pairs)
    rows = [[cell[:longest] for cell in (*columns.cells(pair), *columns.figures(pair))] for pair in pairs]
    yield from table([*columns.heads, *columns.figure_heads], rows, len(columns.heads))


def comparison_markdown(compared: Compared, only: Collection[str] = ()) -> str:
    pairs = select_pairs(compared, only)
    lines = [*(f"{escape_markdown(line)}  " for line in header(compared)), ""]
    for part in split_by_quantity(pairs, lambda pair: pair):
        lines += [*pairs_table(part), ""]
    lines += [f"{escape_markdown(line)}  " for line in footer(compared)]
    return "\n".join(lines) + "\n"


def summary_markdown(checked: CheckResult) -> str:
    """Return the verdict of a gate for a pull request, with slower and faster cases; the rest is folded. Only what
    concerns this verdict is explained."""
    found = news(checked)
    open_ = [finding for finding in found if finding.outcome not in _FOLDED]
    folded = [finding for finding in found if finding.outcome in _FOLDED]
    sign = "❌" if checked.exit_code else "⚠️" if checked.counts()["unconfirmed"] else "✅"
    lines = [f"### {sign} opmark: {escape_markdown(verdict(checked))}", ""]
    if open_:
        lines += [*_findings(open_[:_ROWS]), ""]
    if len(open_) > _ROWS:
        lines += [f"and {len(open_) - _ROWS} more", ""]
    lines += [f"- {escape_markdown(line)}" for line in remarks(checked)]
    lines += ["", "<details><summary>Details and environment</summary>", ""]
    explained = [
        *header(checked.compared),
        *doubtful_lines(checked.compared),
        *([legend(checked.compared)] if found else []),
    ]
    lines += [f"{escape_markdown(line)}  " for line in explained]
    if folded:
        lines += ["", *_findings(folded[:_ROWS])]
    if len(folded) > _ROWS:
        lines += ["", f"and {len(folded) - _ROWS} more"]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _findings(found: Sequence[CheckedCase]) -> Iterator[str]:
    columns = Columns.for_page([finding.pair for finding in found])
    for number, part in enumerate(split_by_quantity(found, lambda finding: finding.pair)):
        rows = [[*columns.cells(finding.pair), *row_figures(finding, columns)] for finding in part]
        yield from ([""] if number else [])
        yield from table([*columns.heads, *columns.figure_heads], rows, len(columns.heads))


def history_markdown(found: Histories) -> str:
    """Return a table of changes, one of series without a change if there are any, and a legend."""
    quiet = [_quiet_row(history) for history in found.series if not history.changes]
    lines = []
    for heads, rows, who in ((_HEADS, _rows(found.series), _WHO), (_QUIET_HEADS, quiet, _QUIET_WHO)):
        lines += [*table(heads, rows, who), ""] if rows else []
    return "\n".join([*lines, *(f"{escape_markdown(text)}  " for text in _legend(found))]) + "\n"


# Reports for pull requests: failures and comparisons first, the rest folded, within the limit of a comment.

LONGEST = 65_000
"""Longest report in characters; a comment on GitHub takes 65,536."""
_CASES = 5
"""Number of cases that are named for one reason."""
_ROOM = 400
"""Characters reserved for the line about left-out parts."""
_LONGEST_TEXT = 300
"""Longest text that others wrote, in characters: a label, a reason, a fact."""
_LINE = 2000
"""Longest line that lists several of these, in characters."""
_NOWHERE = ItemAnchors(1, frozenset())
_SIGNS = (("❌", ("failed", "slower")), ("⚠️", ("undecided", "skipped")), ("✅", ("same", "faster")))
"""Signs of comparisons by their most severe verdict; a comparison without pairs has the second one."""
_FOLDS = ("failed", "slower", "faster", "undecided", "same", "skipped")
_NUMBERS = {"cases", *(column.head for column in COLUMNS if column.number)}
"""Heads of columns that are aligned to the right."""


class _LimitedText:
    """Collects lines up to a length, and counts those that do not fit."""

    def __init__(self, longest: int) -> None:
        self._left = longest - _ROOM
        self.lines: list[str] = []
        self.dropped: list[str] = []

    def add(self, lines: Iterable[str]) -> bool:
        """Add all lines or none; return whether they fit."""
        listed = list(lines)
        # GitHub counts UTF-16, in which a character outside of the basic plane counts twice.
        needed = sum(len(line.encode("utf-16-le")) // 2 + 1 for line in listed)
        if needed > self._left:
            return False
        self._left -= needed
        self.lines += listed
        return True

    def fold(self, title: str, head: Sequence[str], lines: Sequence[str]) -> None:
        """Add a folded table, with as many rows as fit."""
        frame = [f"<details><summary>{title}</summary>", "", *head, "", "</details>", ""]
        if not self.add(frame):
            self.dropped.append(title)
            return
        at = len(self.lines) - 3
        for i, line in enumerate(lines):
            if not self.add([line]):
                self.dropped.append(f"{len(lines) - i} of {count_noun(len(lines), 'row')} of “{title}”")
                break
            self.lines.insert(at + i, self.lines.pop())

    def text(self) -> str:
        if self.dropped:
            names = "; ".join(self.dropped)
            names = names if len(names) < _ROOM // 2 else f"{names[: _ROOM // 2]}..."
            self.lines.append(f"_Left out, because a comment cannot be longer: {names}. `opmark report` has them all._")
        return "\n".join(self.lines).rstrip("\n") + "\n"


def markdown_report(content: Content, longest: int = LONGEST) -> str:
    written = _LimitedText(longest)
    if content.title:
        written.add([f"## {_escape_short(content.title)}", ""])
    for versus in content.comparisons:
        _add_comparison(written, versus)
    for part in content.parts:
        _add_run(written, part)
    return written.text()


def _escape_short(text: str, most: int = _LONGEST_TEXT) -> str:
    return escape_markdown(_shorten(text, most))


def _shorten(text: str, most: int = _LONGEST_TEXT) -> str:
    """Shorten text of others, so that it leaves room for the rest."""
    return text if len(text) <= most else f"{text[:most]}..."


def _add_comparison(written: _LimitedText, versus: Versus) -> None:
    compared, pairs = versus.compared, select_pairs(versus.compared)
    found: dict[str, list[Pairing]] = {}
    for pair in pairs:
        found.setdefault(word(pair), []).append(pair)
    sign = next((sign for sign, words in _SIGNS if any(one in found for one in words)), "⚠️")
    first, *others = [_escape_short(line, _LINE) for line in header(compared)]
    heading = (
        f"### {sign} {_escape_short(compared.a)} → {_escape_short(compared.b)}: {escape_markdown(summary(compared))}"
    )
    written.add([heading, "", f"{first}  "])
    written.add([*(f"{line}  " for line in others), ""])
    for one in _FOLDS:
        for listed in split_by_quantity(found.get(one, []), lambda pair: pair):
            head, rule, *lines = pairs_table(listed, _LONGEST_TEXT)
            written.fold(count_noun(len(listed), f"case {one}", f"cases {one}"), [head, rule], lines)
    remarks = filter(None, (spread(compared), *list(footer(compared))[1:]))
    written.add([*(f"{_escape_short(line, _LINE)}  " for line in remarks), ""])


def _add_run(written: _LimitedText, part: RunSection) -> None:
    run_view = part.run_view
    failed = group_by_reason((row for row in run_view.rows if row.failed), _NOWHERE)
    doubtful = (
        describe_progress(run_view) or not any(row.usable for row in run_view.rows) or _note_preempted(run_view.rows)
    )
    sign = "❌" if failed else "⚠️" if doubtful else "✅"
    written.add([f"### {sign} {_escape_short(run_name(run_view))}: {escape_markdown(sentence(run_view))}", ""])
    for remark in filter(None, (describe_progress(run_view), _note_preempted(run_view.rows))):
        written.add([escape_markdown(remark), ""])
    _add_groups(written, failed)
    for title, heads, cells in _tables(part):
        words = {name for name in heads if name not in _NUMBERS}
        head, rule, *lines = table(heads, [[_shorten(cell) for cell in line] for line in cells], 1, words)
        written.fold(title, [head, rule], lines)


def _note_preempted(rows: Sequence[Row]) -> str:
    spoilt = sum(PREEMPTED in row.headline_cautions for row in rows)
    return (
        f"{count_noun(spoilt, 'number')} of {len(rows)} preempted: the scheduler's, not the operator's"
        if spoilt
        else ""
    )


def _add_groups(written: _LimitedText, groups: Sequence[FailureGroup]) -> None:
    missing = sum(not written.add([_group(group)]) for group in groups)
    if missing:
        written.dropped.append(count_noun(missing, "reason of failures", "reasons of failures"))
    if groups:
        written.add([""])


def _group(group: FailureGroup) -> str:
    names = "; ".join(_escape_short(f"{link.text} on {link.where}") for link in group.links[:_CASES])
    more = f"; and {group.total - _CASES} more" if group.total > _CASES else ""
    return f"- **{group.word}**: {_escape_short(group.first)} ({count_noun(group.total, 'case')}: {names}{more})"


Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _tables(part: RunSection) -> Iterator[Table]:
    run_view = part.run_view
    if found := accuracy_rows([record for row in run_view.rows for record in row.records]):
        yield "Accuracy on labelled data", HEADS, [cells for one in found for cells in accuracy_cells(one)]
    parts = split_by_headline(run_view.rows)
    for rows in parts:
        used = [column for column in COLUMNS if column.always or any(column.text(row) for row in rows)]
        lines = [[row.name, *(column.text(row) for column in used)] for row in rows]
        count = count_noun(len(rows), "case")
        title = f"{count} by {headline_name(rows)}" if len(parts) > 1 else f"All {count}"
        yield title, ("case", *(column.head for column in used)), lines
    if cautions := doubts(run_view, _NOWHERE):
        lines = [[one.code, str(one.total), one.message, "; ".join(one.hints)] for one in cautions]
        yield "Cautions", ("code", "cases", "for example", "what to do"), lines
    if skipped := group_by_reason((row for row in run_view.rows if row.status == "skipped"), _NOWHERE):
        lines = [[group.first, str(group.total)] for group in skipped]
        yield f"{sum(group.total for group in skipped)} skipped", ("reason", "cases"), lines
    yield "Run", ("", "value"), [[pair.name, pair.value] for pair in about(run_view)]
    facts = facts_of(run_view)
    if facts.rows:
        yield "Environment", ("fact", *facts.heads), [[line.name, *line.values] for line in facts.rows]
