"""Statistics of requests under load: percentiles, means and rates of samples that resemble their neighbours.

Latencies of neighbouring requests are correlated, because they wait in the same queue. Each interval is widened by what
that costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import fmean

from msgspec import Struct

from opmark.stats.interval import quantile
from opmark.stats.summary import exp

CONFIDENCE = 0.95
_BATCHES = 20
"""Number of batches that means are taken of: enough for Student's t, and few enough to be long."""
_FEWEST_BATCHES = 5
_ALIKE = 0.2
"""Correlation of neighbouring batches above which batches are joined: they are too short to be independent."""
_SHORTEST_BATCH = 10
_LARGE = 1.645
"""How many standard errors a correlation has to be above 0 to count, so that chance does not widen intervals."""
_MOST_CARRIED = 0.98
_PHASES = 0.9
"""Percentile that shows slow phases. Above a higher one there are too few samples to see that they come together."""
_NEGLIGIBLE = 12
"""Standard deviations beyond which a binomial distribution has nothing."""


class Estimate(Struct, frozen=True):
    """A number with its 95 % interval; None where the samples cannot support it, with the reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def fewest_samples(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the number of independent samples from which on the interval of a percentile has two ends among them."""
    rarer = min(share, 1 - share)
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-rarer))


def estimate_percentile(runs: Sequence[Sequence[float]], share: float, name: str) -> Estimate:
    """Return the percentile of all samples, with the order statistics between which it lies with a probability of
    95 %. `runs` are the samples of each process, in the order in which the requests were due.

    The number of samples below the true percentile is binomial, for any distribution. Correlated samples are worth
    fewer independent ones, and so are those of processes that differ.
    """
    ordered = sorted(value for run in runs for value in run)
    count, needed = len(ordered), fewest_samples(share)
    if count < needed:
        return Estimate(None, reason=f"{name} needs at least {needed} samples, there are {count}")
    value = ordered[max(0, math.ceil(share * count) - 1)]
    inflation = _inflation_above(runs, value, 1 - share)
    if share > _PHASES:
        phases = ordered[math.ceil(_PHASES * count) - 1]
        inflation = max(inflation, _inflation_above(runs, phases, 1 - _PHASES))
    worth = count / inflation
    if worth < needed:
        return Estimate(
            None,
            reason=f"{name} needs at least {needed} independent samples: there are {count}, and because slow requests "
            f"come together they are worth {math.floor(worth)}",
        )
    low, high = _ranks(math.floor(worth), share, CONFIDENCE)
    scale = count / math.floor(worth)
    first = max(1, math.floor(low * scale))
    last = min(count, math.ceil(high * scale))
    return Estimate(value, min(value, ordered[first - 1]), max(value, ordered[last - 1]))


@lru_cache(maxsize=256)
def _ranks(count: int, share: float, confidence: float) -> tuple[int, int]:
    """Return the ranks, counted from 1, of the order statistics around a percentile. `count` is large enough for
    both."""
    mean, deviation = count * share, math.sqrt(count * share * (1 - share))
    k = max(0, math.floor(mean - _NEGLIGIBLE * deviation) - 1)
    logs = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
    chance = math.exp(logs + k * math.log(share) + (count - k) * math.log1p(-share))
    outside, below = (1 - confidence) / 2, chance
    low = 0
    # `below` is the chance that at most k samples lie below the percentile.
    while k < count:
        if below <= outside:
            low = k + 1
        if below >= 1 - outside:
            return max(1, low), k + 1
        chance *= (count - k) / (k + 1) * share / (1 - share)
        k += 1
        below += chance
    return max(1, low), count


def _inflation_above(runs: Sequence[Sequence[float]], limit: float, share: float) -> float:
    """Return how much larger the variance of the number of samples above a limit is than that of independent samples;
    `share` of them are expected there."""
    above = [[value > limit for value in run] for run in runs]
    total = sum(map(len, above))
    counted = sum(map(sum, above)) / total
    if not 0 < counted < 1:
        return 1.0
    pairs = sum(len(run) - 1 for run in above)
    together = sum(a and b for run in above for a, b in pairwise(run)) / pairs if pairs else 0.0
    carried = (together - counted**2) / (counted * (1 - counted))
    found = 1.0
    if carried > _LARGE / math.sqrt(total):
        carried = min(carried, _MOST_CARRIED)
        found = (1 + carried) / (1 - carried)
    return max(found, _dispersion(above, share))


def _dispersion(above: Sequence[Sequence[bool]], share: float) -> float:
    """Return how much more the counts of batches differ than those of independent samples would; 1 if chance may be
    why. It finds what a correlation of neighbours does not show: slow phases, and processes that differ."""
    batches = [batch for run in above for batch in _batches(run, max(2, _BATCHES // len(above)))]
    if len(batches) < 2:
        return 1.0
    counted = sum(map(sum, batches)) / sum(map(len, batches))
    variance = counted * (1 - counted)
    if not variance:
        return 1.0
    freedom = len(batches) - 1
    ratio = sum((sum(one) - len(one) * counted) ** 2 / len(one) for one in batches) / variance / freedom
    # The standard deviation of a ratio that is 1 on average.
    return ratio if ratio > 1 + 2 * math.sqrt(2 / freedom) else 1.0


def _batches(values: Sequence[bool], count: int) -> list[Sequence[bool]]:
    count = max(1, min(count, len(values) // _SHORTEST_BATCH))
    ends = [round(i * len(values) / count) for i in range(count + 1)]
    return [values[a:b] for a, b in pairwise(ends) if b > a]


def estimate_mean(runs: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean. `runs` are the samples of each process, in their order.

    With several processes the process is the unit: another one would have another mean. With one, means of batches are,
    because they are nearly independent even if neighbours are not.
    """
    means = [fmean(run) for run in runs if run]
    value = fmean([sample for run in runs for sample in run])
    if len(means) == 1:
        (run,) = (run for run in runs if run)
        count = min(_BATCHES, len(run) // _SHORTEST_BATCH)
        if count < 2:
            need = 2 * _SHORTEST_BATCH
            return Estimate(value, reason=f"an interval needs at least {need} samples, there are {len(run)}")
        means = _batch_means(run, count)
        while count >= 2 * _FEWEST_BATCHES and _carried(means) > _ALIKE:
            count //= 2
            means = _batch_means(run, count)
    centre = fmean(means)
    deviation = math.sqrt(sum((mean - centre) ** 2 for mean in means) / (len(means) - 1))
    half = quantile((1 + CONFIDENCE) / 2, len(means) - 1) * deviation / math.sqrt(len(means))
    # On a logarithmic scale, where no end of an interval is below 0.
    factor = exp(half / value) if value > 0 else 1.0
    return Estimate(value, value / factor, value * factor)


def _batch_means(values: Sequence[float], count: int) -> list[float]:
    ends = [round(i * len(values) / count) for i in range(count + 1)]
    return [fmean(values[a:b]) for a, b in pairwise(ends)]


def _carried(values: Sequence[float]) -> float:
    """Return the correlation of neighbours."""
    centre = fmean(values)
    spread = sum((value - centre) ** 2 for value in values)
    return sum((a - centre) * (b - centre) for a, b in pairwise(values)) / spread if spread else 0.0


def estimate_rate(answers: Sequence[Sequence[float]]) -> Estimate:
    """Return answers per second. `answers` are the seconds after the start at which each answer came, by process, in
    any order."""
    gaps = []
    for run in answers:
        ordered = sorted(run)
        gaps.append([b - a for a, b in pairwise([0.0, *ordered])])
    found = estimate_mean(gaps)
    assert found.value is not None
    value = 1 / found.value if found.value > 0 else None
    if not found.low or not found.high:
        return Estimate(value, reason=found.reason)
    return Estimate(value, 1 / found.high, 1 / found.low)
