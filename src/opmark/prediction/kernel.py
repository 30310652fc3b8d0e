"""How a chip may differ from what a model expects of it, as a Gaussian process over calls.

Its prior has four parts: effects that are linear in the regime of a call (floor, bandwidth, FLOP/s, their trend with
size), effects of each operator, resemblance to chips of the training data, and a smooth rest over sizes. Probes of a
chip update it; its standard deviation scales the intervals, and says which probes would teach most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_EFFECTS = np.array([0.4, 0.25, 0.25, 0.1, 0.1])
"""Prior deviations of log time: of the floor, of bandwidth-bound and compute-bound calls, of trends with size."""
_TREND = 0.1
"""The same for one standard deviation of each size."""
_OPERATOR_FLOOR = 0.15
_OPERATOR = 0.03
"""Prior deviations of an operator from the others on its chip: of its floor, and of its larger calls."""
_RESEMBLANCE = 0.3
_SMOOTH = 0.12
NOISE = 0.1
"""Relative spread of what no chip effect explains."""
_PRIOR_PROBES = 20
"""How many probes the prior deviations count as much as, when probes say how predictable a chip is: how far ten probes
surprise each other is mostly luck of the draw."""


@dataclass(frozen=True)
class Regimes:
    """What the process needs to know of each call."""

    linear: np.ndarray
    """Linear effects, times their prior deviations."""
    sizes: np.ndarray
    """Sizes in standard deviations of the training data."""
    saturation: np.ndarray
    """Share of the roofline in roofline and floor together: 0 for the smallest calls."""
    operator: np.ndarray

    def take(self, index: np.ndarray) -> Regimes:
        return Regimes(self.linear[index], self.sizes[index], self.saturation[index], self.operator[index])

    def covariance(self, other: Regimes) -> np.ndarray:
        distances = ((self.sizes[:, None, :] - other.sizes[None]) ** 2).sum(-1)
        smooth = _SMOOTH**2 * np.exp(-distances / 2) * np.outer(self.saturation, other.saturation)
        floors = _OPERATOR_FLOOR**2 * np.outer(1 - self.saturation, 1 - other.saturation)
        large = _OPERATOR**2 * np.outer(self.saturation, other.saturation)
        same = self.operator[:, None] == other.operator[None]
        return np.asarray(self.linear @ other.linear.T + smooth + same * (floors + large))

    def variance(self) -> np.ndarray:
        of_operator = (_OPERATOR_FLOOR * (1 - self.saturation)) ** 2 + (_OPERATOR * self.saturation) ** 2
        return np.asarray((self.linear**2).sum(1) + (_SMOOTH * self.saturation) ** 2 + of_operator)


def regimes(
    roofline: np.ndarray, floor: np.ndarray, balance: np.ndarray, sizes: np.ndarray, others: np.ndarray,
    operator: np.ndarray,
) -> Regimes:  # fmt: skip
    """`others` has a column for each chip of the training data: what its forest says, relative to the mean function."""
    saturation = roofline / (roofline + floor)
    computing = 1 / (1 + np.exp(1 - balance))
    growth = np.log2(np.maximum(roofline, floor) / floor) / 4
    effects = np.stack(
        [1 - saturation, saturation * (1 - computing), saturation * computing, saturation * growth,
         saturation * computing * growth], 1,
    )  # fmt: skip
    trends = saturation[:, None] * sizes / 2
    linear = np.concatenate([effects * _EFFECTS, trends * _TREND, others * _RESEMBLANCE], 1)
    return Regimes(linear, sizes, saturation, operator)


def update(calls: Regimes, probes: Regimes, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of log time, relative to the mean function, given the probes' residuals.

    Each probe is predicted by the others: where these surprise, a chip is less predictable than the prior says, and the
    deviation grows; where they agree, it shrinks."""
    inverse = np.linalg.inv(probes.covariance(probes) + NOISE**2 * np.eye(len(residuals)))
    cross = calls.covariance(probes)
    variance = np.maximum(calls.variance() - ((cross @ inverse) * cross).sum(1), 0)
    weights = inverse @ residuals
    surprises = weights**2 / np.diag(inverse)
    scale = np.sqrt((_PRIOR_PROBES + surprises.sum()) / (_PRIOR_PROBES + len(surprises)))
    return cross @ weights, np.sqrt(variance + NOISE**2) * scale


def most_informative(candidates: Regimes, count: int) -> list[int]:
    """Return the calls whose measurement would reduce the mean variance of all candidates most, the best first."""
    covariance = candidates.covariance(candidates)
    chosen: list[int] = []
    for _ in range(min(count, len(covariance))):
        gain = (covariance**2).sum(0) / (np.diag(covariance) + NOISE**2)
        gain[chosen] = -1
        best = int(np.argmax(gain))
        chosen.append(best)
        row = covariance[best]
        covariance = covariance - np.outer(row, row) / (row[best] + NOISE**2)
    return chosen
