"""The datasheets that ship, and the one of a given chip."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml
from msgspec import Struct

from opmark.schema.codec import convert
from opmark.schema.peaks import Peaks

VERSION = 1


class Sheet(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    chips: list[Peaks]


def datasheet(chip: str) -> Peaks | None:
    """By the exact name that the driver tells, or one of its other names."""
    return next((peaks for peaks in datasheets() if chip in (peaks.chip, *peaks.aliases)), None)


@cache
def datasheets() -> tuple[Peaks, ...]:
    found: list[Peaks] = []
    for file in sorted((files("opmark.hardware") / "zoo").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            found += convert(yaml.safe_load(file.read_text(encoding="utf-8")), Sheet, file.name).chips
    return tuple(found)
