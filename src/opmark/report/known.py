"""What is known of the chip that a row ran on."""

from __future__ import annotations

from typing import NamedTuple

from opmark.schema.noise import NoiseFloor
from opmark.schema.peaks import Peaks


class Known(NamedTuple):
    """Of a chip; None for what nobody has measured or written down."""

    measured: Peaks | None = None
    datasheet: Peaks | None = None
    noise: NoiseFloor | None = None
    """Of the backend that ran there."""
