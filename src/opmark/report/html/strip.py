"""Samples in a line of text: dots in the order taken, how often each value came at the right, the median across."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.stats import median

WIDTH, HEIGHT = 200, 24
_BINS = 12
_ASIDE = 36
"""Of the width, for the histogram."""
MOST = 40
"""Dots that can be told apart."""


def strip(samples: Sequence[float], most: int = MOST) -> str:
    """Empty where there is nothing to see. The numbers stand beside it, so it is not read aloud."""
    low, high = min(samples, default=0.0), max(samples, default=0.0)
    if len(samples) < 2 or not high > low:
        return ""
    drawn = thinned(samples, most)
    places = [_down(value, low, high) for value in drawn]
    middle = _down(median(samples), low, high)
    return (
        f'<svg class=strip viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden=true>'
        f'<path class=m d="M0 {middle}H{WIDTH - _ASIDE}"/><path d="{_dots(places)}"/>'
        f'<path class=h d="{_histogram(samples, low, high)}"/></svg>'
    )


def thinned(samples: Sequence[float], most: int) -> list[float]:
    """Evenly, but the fastest and the slowest stay: a reader looks for those."""
    if len(samples) <= most:
        return list(samples)
    step = len(samples) / (most - 2)
    kept = {int(i * step) for i in range(most - 2)}
    kept |= {min(range(len(samples)), key=samples.__getitem__), max(range(len(samples)), key=samples.__getitem__)}
    return [samples[i] for i in sorted(kept)]


def _down(value: float, low: float, high: float) -> int:
    return round((HEIGHT - 1) * (high - value) / (high - low))


def _dots(places: Sequence[int]) -> str:
    """Relative moves, each with a stroke of no length, which a round pen draws as a dot."""
    room = WIDTH - _ASIDE - 8
    across = [round(i * room / (len(places) - 1)) + 2 for i in range(len(places))]
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
