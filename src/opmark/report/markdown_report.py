"""A report in Markdown, for pull requests: what failed first, then comparisons, the rest folded; never too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opmark.report.comparison import chosen, footer, header, summary, word
from opmark.report.comparison_markdown import pairs_table, table
from opmark.report.formats.markdown import escaped
from opmark.report.html.cautions import doubts
from opmark.report.html.content import Content, Part, Place, Versus
from opmark.report.html.environment import facts_of
from opmark.report.html.failures import Group, failed_groups, skipped_groups
from opmark.report.html.item_table import COLUMNS
from opmark.report.html.summary import about, called, sentence, unfinished
from opmark.schema.item import Item
from opmark.units import counted

LONGEST = 65_000
"""Characters; a comment on GitHub takes 65,536."""
_CASES = 5
"""Of one reason that are named."""
_ROOM = 400
"""Kept for what is said of what was left out."""
_NOWHERE = Place(1, frozenset())


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

    def fold(self, title: str, head: Sequence[str], rows: Sequence[str]) -> None:
        """A table behind a click: as many rows as fit."""
        frame = [f"<details><summary>{title}</summary>", "", *head, "", "</details>", ""]
        if not self.add(frame):
            self.dropped.append(title)
            return
        at = len(self.lines) - 3
        for i, row in enumerate(rows):
            if not self.add([row]):
                self.dropped.append(f"{len(rows) - i} of {counted(len(rows), 'row')} of “{title}”")
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
        written.add([f"## {escaped(content.title)}", ""])
    for versus in content.comparisons:
        _add_comparison(written, versus)
    for part in content.parts:
        _add_run(written, part)
    return written.text()


def _add_comparison(written: _Written, versus: Versus) -> None:
    compared, pairs = versus.compared, chosen(versus.compared)
    first, *others = [escaped(line) for line in header(compared)]
    bad = any(word(pair) in ("slower", "failed") for pair in pairs)
    written.add([f"### {'❌' if bad else '✅'} opmark: {escaped(summary(compared))}", "", f"{first}  "])
    written.add([*(f"{line}  " for line in others), ""])
    changed = [pair for pair in pairs if word(pair) in ("slower", "faster", "failed")]
    for title, listed in (("changed", changed), ("not changed", [pair for pair in pairs if pair not in changed])):
        if listed:
            head, rule, *rows = pairs_table(listed)
            written.fold(counted(len(listed), f"case {title}", f"cases {title}"), [head, rule], rows)
    written.add([*(f"{escaped(line)}  " for line in list(footer(compared))[1:]), ""])


def _add_run(written: _Written, part: Part) -> None:
    looked = part.looked
    failed = failed_groups(looked.items, _NOWHERE)
    sign = "❌" if failed else "⚠️" if not looked.items else "✅"
    written.add([f"### {sign} {escaped(called(looked))}: {escaped(sentence(looked))}", ""])
    if told := unfinished(looked):
        written.add([escaped(told), ""])
    _add_groups(written, failed)
    for title, heads, rows in _tables(part):
        head, rule, *lines = table(heads, rows, 1)
        written.fold(title, [head, rule], lines)


def _add_groups(written: _Written, groups: Sequence[Group]) -> None:
    for i, group in enumerate(groups):
        if not written.add([_group(group)]):
            written.dropped.append(counted(len(groups) - i, "reason of failures", "reasons of failures"))
            break
    if groups:
        written.add([""])


def _group(group: Group) -> str:
    named = "; ".join(escaped(f"{link.text} on {link.where}") for link in group.links[:_CASES])
    more = f"; and {group.total - _CASES} more" if group.total > _CASES else ""
    return f"- **{group.word}**: {escaped(group.first)} ({counted(group.total, 'case')}: {named}{more})"


Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _tables(part: Part) -> Iterator[Table]:
    looked = part.looked
    if looked.items:
        yield _items(looked.items)
    if found := doubts(part, _NOWHERE):
        rows = [[one.code, str(one.total), one.message, "; ".join(one.hints)] for one in found]
        yield "Cautions", ("code", "cases", "for example", "what to do"), rows
    if skipped := skipped_groups(looked.items, _NOWHERE):
        rows = [[group.first, str(group.total)] for group in skipped]
        yield f"{sum(group.total for group in skipped)} skipped", ("reason", "cases"), rows
    yield "Run", ("", "value"), [[pair.name, pair.value] for pair in about(looked)]
    facts = facts_of(looked)
    if facts.rows:
        yield "Environment", ("fact", *facts.heads), [[row.name, *row.values] for row in facts.rows]


def _items(items: Sequence[Item]) -> Table:
    used = [column for column in COLUMNS if column.always or any(column.text(item) for item in items)]
    rows = [[item.name, *(column.text(item) for column in used)] for item in items]
    return f"All {counted(len(items), 'case')}", ("case", *(column.head for column in used)), rows
