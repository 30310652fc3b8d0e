"""A report in Markdown, for pull requests: what failed first, then comparisons, the rest folded; never too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opmark.analysis.rows import Row
from opmark.report.comparison import chosen, footer, header, summary, word
from opmark.report.comparison_markdown import pairs_table, table
from opmark.report.formats.markdown import escaped
from opmark.report.html.cautions import doubts
from opmark.report.html.content import Content, Part, Place, Versus
from opmark.report.html.environment import facts_of
from opmark.report.html.failures import Group, failed_groups, skipped_groups
from opmark.report.html.item_table import COLUMNS
from opmark.report.html.summary import about, called, sentence, unfinished
from opmark.report.html.versus import spread
from opmark.schema.comparison import Pairing
from opmark.schema.measurement import PREEMPTED
from opmark.units import counted

LONGEST = 65_000
"""Characters; a comment on GitHub takes 65,536."""
_CASES = 5
"""Number of cases that are named for one reason."""
_ROOM = 400
"""Kept for what is said of what was left out."""
_SAID = 300
"""Characters of one text that others wrote: a label, a reason, a fact."""
_LINE = 2000
"""Characters of a line that lists several of these."""
_NOWHERE = Place(1, frozenset())
_SIGNS = (("❌", ("failed", "slower")), ("⚠️", ("undecided", "skipped")), ("✅", ("same", "faster")))
"""The sign of a comparison, by its gravest verdict; where nothing could be compared it is the second."""
_FOLDS = ("failed", "slower", "faster", "undecided", "same", "skipped")
_NUMBERS = {"cases", *(column.head for column in COLUMNS if column.number)}
"""Heads of columns that stand at the right."""


class _Written:
    """Lines up to a length; what no longer fits is counted."""

    def __init__(self, longest: int) -> None:
        self._left = longest - _ROOM
        self.lines: list[str] = []
        self.dropped: list[str] = []

    def add(self, lines: Iterable[str]) -> bool:
        """All of them or none."""
        listed = list(lines)
        # a character outside of the basic plane counts twice where length is that of UTF-16
        needed = sum(len(line.encode("utf-16-le")) // 2 + 1 for line in listed)
        if needed > self._left:
            return False
        self._left -= needed
        self.lines += listed
        return True

    def fold(self, title: str, head: Sequence[str], lines: Sequence[str]) -> None:
        """A table behind a click: as many rows as fit."""
        frame = [f"<details><summary>{title}</summary>", "", *head, "", "</details>", ""]
        if not self.add(frame):
            self.dropped.append(title)
            return
        at = len(self.lines) - 3
        for i, line in enumerate(lines):
            if not self.add([line]):
                self.dropped.append(f"{len(lines) - i} of {counted(len(lines), 'row')} of “{title}”")
                break
            self.lines.insert(at + i, self.lines.pop())

    def text(self) -> str:
        if self.dropped:
            told = "; ".join(self.dropped)
            told = told if len(told) < _ROOM // 2 else f"{told[: _ROOM // 2]}..."
            self.lines.append(f"_Left out, because a comment cannot be longer: {told}. `opmark report` has them all._")
        return "\n".join(self.lines).rstrip("\n") + "\n"


def markdown_report(content: Content, longest: int = LONGEST) -> str:
    written = _Written(longest)
    if content.title:
        written.add([f"## {_said(content.title)}", ""])
    for versus in content.comparisons:
        _add_comparison(written, versus)
    for part in content.parts:
        _add_run(written, part)
    return written.text()


def _said(text: str, most: int = _SAID) -> str:
    return escaped(_short(text, most))


def _short(text: str, most: int = _SAID) -> str:
    """What others wrote, so short that it leaves room for the rest."""
    return text if len(text) <= most else f"{text[:most]}..."


def _add_comparison(written: _Written, versus: Versus) -> None:
    compared, pairs = versus.compared, chosen(versus.compared)
    found: dict[str, list[Pairing]] = {}
    for pair in pairs:
        found.setdefault(word(pair), []).append(pair)
    sign = next((sign for sign, words in _SIGNS if any(one in found for one in words)), "⚠️")
    first, *others = [_said(line, _LINE) for line in header(compared)]
    heading = f"### {sign} {_said(compared.a)} → {_said(compared.b)}: {escaped(summary(compared))}"
    written.add([heading, "", f"{first}  "])
    written.add([*(f"{line}  " for line in others), ""])
    for one in _FOLDS:
        if listed := found.get(one, []):
            head, rule, *lines = pairs_table(listed, _SAID)
            written.fold(counted(len(listed), f"case {one}", f"cases {one}"), [head, rule], lines)
    told = filter(None, (spread(compared), *list(footer(compared))[1:]))
    written.add([*(f"{_said(line, _LINE)}  " for line in told), ""])


def _add_run(written: _Written, part: Part) -> None:
    run_view = part.run_view
    failed = failed_groups(run_view.rows, _NOWHERE)
    doubtful = unfinished(run_view) or not any(row.usable for row in run_view.rows) or _preempted(run_view.rows)
    sign = "❌" if failed else "⚠️" if doubtful else "✅"
    written.add([f"### {sign} {_said(called(run_view))}: {escaped(sentence(run_view))}", ""])
    for told in filter(None, (unfinished(run_view), _preempted(run_view.rows))):
        written.add([escaped(told), ""])
    _add_groups(written, failed)
    for title, heads, cells in _tables(part):
        words = {name for name in heads if name not in _NUMBERS}
        head, rule, *lines = table(heads, [[_short(cell) for cell in line] for line in cells], 1, words)
        written.fold(title, [head, rule], lines)


def _preempted(rows: Sequence[Row]) -> str:
    spoilt = sum(PREEMPTED in row.headline_cautions for row in rows)
    return (
        f"{counted(spoilt, 'number')} of {len(rows)} preempted: the scheduler's, not the operator's" if spoilt else ""
    )


def _add_groups(written: _Written, groups: Sequence[Group]) -> None:
    missing = sum(not written.add([_group(group)]) for group in groups)
    if missing:
        written.dropped.append(counted(missing, "reason of failures", "reasons of failures"))
    if groups:
        written.add([""])


def _group(group: Group) -> str:
    named = "; ".join(_said(f"{link.text} on {link.where}") for link in group.links[:_CASES])
    more = f"; and {group.total - _CASES} more" if group.total > _CASES else ""
    return f"- **{group.word}**: {_said(group.first)} ({counted(group.total, 'case')}: {named}{more})"


Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _tables(part: Part) -> Iterator[Table]:
    run_view = part.run_view
    if run_view.rows:
        used = [column for column in COLUMNS if column.always or any(column.text(row) for row in run_view.rows)]
        lines = [[row.name, *(column.text(row) for column in used)] for row in run_view.rows]
        yield f"All {counted(len(run_view.rows), 'case')}", ("case", *(column.head for column in used)), lines
    if found := doubts(run_view, _NOWHERE):
        lines = [[one.code, str(one.total), one.message, "; ".join(one.hints)] for one in found]
        yield "Cautions", ("code", "cases", "for example", "what to do"), lines
    if skipped := skipped_groups(run_view.rows, _NOWHERE):
        lines = [[group.first, str(group.total)] for group in skipped]
        yield f"{sum(group.total for group in skipped)} skipped", ("reason", "cases"), lines
    yield "Run", ("", "value"), [[pair.name, pair.value] for pair in about(run_view)]
    facts = facts_of(run_view)
    if facts.rows:
        yield "Environment", ("fact", *facts.heads), [[line.name, *line.values] for line in facts.rows]
