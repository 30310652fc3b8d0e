"""Samples in a line of text: dots in the order taken, how often each value came at the right, the median across.

Stragglers stand at the upper edge with a stroke, whatever they took: the column beside says how long the slowest was.
"""

from __future__ import annotations

from collections.abc import Sequence

from opmark.stats import far_off, median

WIDTH, HEIGHT = 200, 24
_BINS = 12
_ASIDE = 36
"""Part of the width that the histogram has."""
_TICK = 4
MOST = 40
"""Dots that can be told apart."""


def strip(samples: Sequence[float], most: int = MOST) -> str:
    """Empty where there is nothing to see. The numbers stand beside it, so it is not read aloud."""
    low, slowest = min(samples, default=0.0), max(samples, default=0.0)
    if len(samples) < 2 or not slowest > low:
        return ""
    high = _top(samples)
    drawn = thinned(samples, most)
    places = [_down(value, low, high) for value in drawn]
    middle = _down(median(samples), low, high)
    beyond = [i for i, value in enumerate(drawn) if value > high]
    return (
        f'<svg class=strip viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden=true>'
        f'<path class=m d="M0 {middle}H{WIDTH - _ASIDE}"/><path d="{_dots(places)}"/>'
        f'<path class=h d="{_histogram([value for value in samples if value <= high], low, high)}"/>'
        f"{_ticks(beyond, len(drawn))}</svg>"
    )


def _top(samples: Sequence[float]) -> float:
    """Upper end of the scale: the slowest that is no straggler, for one of these would press all others into a line."""
    limit = far_off(samples)
    usual = max(value for value in samples if value <= limit)
    return usual if usual > min(samples) else max(samples)


def _ticks(beyond: Sequence[int], count: int) -> str:
    """Stragglers stand at the upper edge, each with a stroke upwards: it lies further off than is drawn."""
    if not beyond:
        return ""
    across = [_across(i, count) for i in beyond]
    return f'<path class=far d="{"".join(f"M{x} 0v-{_TICK}" for x in across)}"/>'


def thinned(samples: Sequence[float], most: int) -> list[float]:
    """Evenly, but the fastest and the slowest stay: a reader looks for those."""
    if len(samples) <= most:
        return list(samples)
    step = len(samples) / (most - 2)
    kept = {int(i * step) for i in range(most - 2)}
    kept |= {min(range(len(samples)), key=samples.__getitem__), max(range(len(samples)), key=samples.__getitem__)}
    return [samples[i] for i in sorted(kept)]


def _down(value: float, low: float, high: float) -> int:
    """What lies beyond the scale is at its edge."""
    return max(0, round((HEIGHT - 1) * (high - value) / (high - low)))


def _across(i: int, count: int) -> int:
    return round(i * (WIDTH - _ASIDE - 8) / (count - 1)) + 2


def _dots(places: Sequence[int]) -> str:
    """Relative moves, each with a stroke of no length, which a round pen draws as a dot."""
    across = [_across(i, len(places)) for i in range(len(places))]
    moves = [f"M{across[0]} {places[0]}h0"]
    for i in range(1, len(places)):
        down = places[i] - places[i - 1]
        moves.append(f"m{across[i] - across[i - 1]}{down if down < 0 else f' {down}'}h0")
    return "".join(moves)


def _histogram(samples: Sequence[float], low: float, high: float) -> str:
    counts = [0] * _BINS
    for value in samples:
        counts[min(_BINS - 1, int(_BINS * (high - value) / (high - low)))] += 1
    most = max(counts)
    return "".join(
        f"M{WIDTH - _ASIDE + 2} {2 * i + 1}h{max(1, round((_ASIDE - 4) * count / most))}"
        for i, count in enumerate(counts)
        if count
    )
