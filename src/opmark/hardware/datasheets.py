"""The datasheets that ship, and the one of a given chip."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml
from msgspec import Struct

from opmark.errors import InvalidFile
from opmark.schema.codec import convert
from opmark.schema.peaks import Peaks

VERSION = 1


class Sheet(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    chips: list[Peaks]


def datasheet(chip: str) -> Peaks | None:
    """By the exact name that the driver tells, or one of its other names."""
    return next((peaks for peaks in datasheets() if chip in (peaks.chip, *peaks.aliases)), None)


def _sheet(data: object, where: str) -> Sheet:
    sheet = convert(data, Sheet, where)
    if sheet.schema != VERSION:
        raise InvalidFile(f"{where}: schema {sheet.schema}; this opmark reads {VERSION}")
    return sheet


@cache
def datasheets() -> tuple[Peaks, ...]:
    found: list[Peaks] = []
    for file in sorted((files("opmark.hardware") / "zoo").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            found += _sheet(yaml.safe_load(file.read_text(encoding="utf-8")), file.name).chips
    return tuple(found)
