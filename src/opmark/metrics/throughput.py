"""Work over time: bytes a second, floating-point operations a second."""

from __future__ import annotations

from msgspec import Struct

from opmark.schema import Cost


class Rates(Struct, frozen=True):
    """None where the work is unknown or there is none of that kind: never a made-up zero."""

    bytes_per_second: float | None = None
    flops_per_second: float | None = None


def rates(cost: Cost | None, seconds: float) -> Rates:
    if cost is None or seconds <= 0:
        return Rates()
    return Rates(
        cost.bytes_moved / seconds if cost.bytes_moved else None,
        cost.flops / seconds if cost.flops else None,
    )
