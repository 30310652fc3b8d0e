"""A comparison in Markdown: all of it, or as short as a pull request wants it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from opmark.report.checked import news, remarks, row_figures, verdict
from opmark.report.comparison import FIGURES, Columns, chosen, figures, footer, header
from opmark.report.formats.markdown import escaped
from opmark.schema.checked import Checked, Finding
from opmark.schema.comparison import Compared, Pairing

_ROWS = 50
"""Upper bound for a table in a pull request."""
_FOLDED = ("undecided", "cleared", "mended", "missing")
"""What nobody has to act on."""


_VERDICT = ("verdict", "")


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], who: int, words: Collection[str] = _VERDICT
) -> Iterator[str]:
    """The first `who` columns are words, and those named so; figures stand at the right."""
    left = [i < who or head in words for i, head in enumerate(heads)]
    yield f"| {' | '.join(map(escaped, heads))} |"
    yield f"| {' | '.join('---' if at_left else '---:' for at_left in left)} |"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def pairs_table(pairs: Sequence[Pairing], longest: int | None = None) -> Iterator[str]:
    """`longest`: characters of a cell; None for as many as there are."""
    columns = Columns.on_a_page(pairs)
    rows = [[cell[:longest] for cell in (*columns.cells(pair), *figures(pair))] for pair in pairs]
    yield from table([*columns.heads, *FIGURES], rows, len(columns.heads))


def comparison_markdown(compared: Compared, only: Collection[str] = ()) -> str:
    shown = chosen(compared, only)
    lines = [*(f"{escaped(line)}  " for line in header(compared)), ""]
    if shown:
        lines += [*pairs_table(shown), ""]
    lines += [f"{escaped(line)}  " for line in footer(compared)]
    return "\n".join(lines) + "\n"


def summary_markdown(checked: Checked) -> str:
    """For a pull request: the verdict, what is slower or faster, and the rest folded away."""
    found = news(checked)
    told = [finding for finding in found if finding.outcome not in _FOLDED]
    folded = [finding for finding in found if finding.outcome in _FOLDED]
    sign = "❌" if checked.exit_code else "⚠️" if checked.counts()["unconfirmed"] else "✅"
    lines = [f"### {sign} opmark: {escaped(verdict(checked))}", ""]
    if told:
        lines += [*_findings(told[:_ROWS]), ""]
    if len(told) > _ROWS:
        lines += [f"and {len(told) - _ROWS} more", ""]
    lines += [f"- {escaped(line)}" for line in remarks(checked)]
    lines += ["", "<details><summary>Details and environment</summary>", ""]
    lines += [f"{escaped(line)}  " for line in (*header(checked.compared), *footer(checked.compared))]
    if folded:
        lines += ["", *_findings(folded[:_ROWS])]
    if len(folded) > _ROWS:
        lines += ["", f"and {len(folded) - _ROWS} more"]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _findings(found: Sequence[Finding]) -> Iterator[str]:
    columns = Columns.on_a_page([finding.pair for finding in found])
    rows = [[*columns.cells(finding.pair), *row_figures(finding)] for finding in found]
    yield from table([*columns.heads, *FIGURES], rows, len(columns.heads))
