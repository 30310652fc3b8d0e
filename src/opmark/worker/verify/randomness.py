"""Judges what several calls of a random operator drew: each draw has to be independent of all others.

A right distribution is not enough: a dropout that keeps one mask, or a generator that hands out half of its numbers
twice, has it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from opmark.errors import WrongResult

_DEVIATIONS = 7.0
"""Standard deviations that chance may explain, although all shifts of thousands of draws are looked at."""
_COUNT_SPREAD = 16.0


def refuse_dependent_draws(calls: Sequence[Any]) -> None:
    """Raise WrongResult where draws repeat more often than chance allows, within a call or between two calls. Each call
    is an array of numbers between 0 and 1 whose expected value does not depend on their place."""
    draws = [np.asarray(call, np.float64).reshape(-1) for call in calls]
    centred = [drawn - drawn.mean() for drawn in draws]
    lengths = [float(np.linalg.norm(values)) for values in centred]
    if not all(lengths):  # nothing was drawn: the probability is 0
        return
    n = draws[0].size
    # Few marks among many zeros meet more often by chance than a normal distribution says.
    rarity = min(length**2 / n for length in lengths) / max(float(np.abs(values).max()) for values in centred) ** 2
    limit = _DEVIATIONS / np.sqrt(n) * (1 + 1 / (np.sqrt(n) * rarity))
    spectra = [np.fft.rfft(values) / length for values, length in zip(centred, lengths, strict=True)]
    for i, j in combinations_with_replacement(range(len(draws)), 2):
        correlation = np.fft.irfft(spectra[i].conj() * spectra[j], n)  # at all shifts at once
        if i == j:
            correlation[0] = 0.0
        shift = int(np.argmax(np.abs(correlation)))
        if abs(correlation[shift]) > limit:
            where = f"call {i + 1}" if i == j else f"calls {i + 1} and {j + 1}"
            apart = min(shift, n - shift)  # shifts go round: the last one is 1 in the other direction
            raise WrongResult(
                f"what {where} drew is not independent: draws that are {apart} elements apart have a correlation of "
                f"{correlation[shift]:.2g}, chance allows {limit:.2g}"
            )
    _refuse_repeated_values(draws[0], draws[1])


def _refuse_repeated_values(one: Any, other: Any) -> None:
    """Raise WrongResult where more values occur twice in a call than two calls have in common: element types have few
    numbers, so that some do."""
    values, counts = np.unique(one, return_counts=True)
    others, other_counts = np.unique(other, return_counts=True)
    _, at, other_at = np.intersect1d(values, others, assume_unique=True, return_indices=True)
    chance = float((counts[at] * other_counts[other_at].astype(np.float64)).sum()) / 2
    limit = chance * (1 + _COUNT_SPREAD / np.sqrt(one.size)) + _DEVIATIONS * np.sqrt(chance + 1)
    pairs = float((counts * (counts - 1.0)).sum()) / 2
    if pairs > limit:
        raise WrongResult(
            f"{pairs:.0f} pairs of the {one.size} values that a call drew are equal, chance explains {chance:.0f}"
        )
