"""Points, with their intervals as whiskers."""

from __future__ import annotations

from collections.abc import Iterator

from opmark.report.drawing.marks.shapes import marker
from opmark.report.drawing.panel import Drawn

_CAP = 3.0
_CAPPED = 400
"""With more of them, the ends of whiskers have no bars."""
_ALARM = 1.35
"""An alarm is this much larger."""


def draw(one: Drawn) -> Iterator[str]:
    yield from whiskers(one)
    yield from dots(one)


def dots(one: Drawn) -> Iterator[str]:
    radius = one.radius * (_ALARM if one.series.role == "alarm" else 1)
    made = marker(one.look.marker, radius)
    yield '<g class="dots">'
    for spot in one.spots:
        drawn = made(spot.x, spot.y, spot.i)
        yield drawn.replace("/>", ' class="hollow"/>') if spot.mark.unsure else drawn
    yield "</g>"


def whiskers(one: Drawn) -> Iterator[str]:
    """One path for all of a series."""
    long = [spot for spot in one.spots if spot.ends and abs(spot.ends[1] - spot.ends[0]) >= 0.5]
    if not long:
        return
    cap = _CAP if len(long) <= _CAPPED else 0.0
    whisker = _lying if one.sideways else _standing
    drawn = "".join(whisker(spot.x, spot.y, *spot.ends, cap) for spot in long if spot.ends)
    yield f'<path class="whiskers" d="{drawn}"/>'


def _standing(x: float, y: float, low: float, high: float, cap: float) -> str:
    ends = f"M{x - cap:.1f} {low:.1f}h{2 * cap:g}M{x - cap:.1f} {high:.1f}h{2 * cap:g}" if cap else ""
    return f"M{x:.1f} {low:.1f}V{high:.1f}{ends}"


def _lying(x: float, y: float, low: float, high: float, cap: float) -> str:
    ends = f"M{low:.1f} {y - cap:.1f}v{2 * cap:g}M{high:.1f} {y - cap:.1f}v{2 * cap:g}" if cap else ""
    return f"M{low:.1f} {y:.1f}H{high:.1f}{ends}"
