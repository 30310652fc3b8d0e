"""One operator or one chip: `opmark describe`."""

from __future__ import annotations

import re
from typing import Any

from opmark.api.keywords import typed
from opmark.hardware.datasheets import brief, datasheet, datasheets, names
from opmark.plugin import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Peaks


@typed
def describe(op: str) -> Operator:
    """Return the operator of this name; UnknownName if there is none."""
    return find_operator(op)


def find_chip(name: str) -> Peaks | None:
    """Return the datasheet of the chip that is known by this name, or the only one whose name has these words: `K80`
    is enough for a Tesla K80."""
    if (found := datasheet(name)) or not name.strip():
        return found
    words = re.compile(rf"(?<!\w){re.escape(name.strip())}(?!\w)", re.IGNORECASE)
    chips = [peaks for peaks in datasheets() if any(map(words.search, names(peaks)))]
    return chips[0] if len(chips) == 1 else None


def chip_view(chip: Peaks) -> dict[str, Any]:
    """Return a datasheet as plain data, without the fields that it leaves empty."""
    return brief(chip)
