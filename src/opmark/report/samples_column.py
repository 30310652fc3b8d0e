"""The samples of a row's headline, drawn in a few characters: one more column of a table."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from opmark.report.rows import Row
from opmark.report.sparkline import samples_line

SAMPLES = "samples"
COUNT = "taken"
_BEHIND = "noise"
"""The column that it follows: both are about the spread."""
_CHARACTERS = 16
SAMPLES_WIDTH = _CHARACTERS + 2
"""With the gap before it."""


def with_samples(
    columns: Sequence[str],
    cells: Sequence[MutableMapping[str, Any]],
    found: Sequence[Row],
    encoding: str,
    *,
    count: bool = False,
) -> list[str]:
    """The columns with one more, which is filled in; `count`: and one that says how many samples there are."""
    for row, own in zip(found, cells, strict=True):
        taken = row.samples()
        if taken:
            own[SAMPLES] = samples_line(taken, _CHARACTERS, encoding)
            own[COUNT] = str(len(taken))
    if not any(SAMPLES in own for own in cells):  # nothing but failures
        return list(columns)
    place = columns.index(_BEHIND) + 1
    return [*columns[:place], SAMPLES, *([COUNT] if count else []), *columns[place:]]
