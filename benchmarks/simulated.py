"""Sessions and nights that never were: numbers of which the truth is known. For the benchmarks and for the tests.

The unit is the process: the logarithm of its median is that of the truth, plus chance, plus what drifts meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from opmark.schema.comparison import Verdict
from opmark.stats.rank import rank_sum_p
from opmark.stats.verdict import ALPHA, STAGES, compare_groups, compare_pairs, stage_alpha

Values = NDArray[np.float64]
Shape = Callable[[np.random.Generator, int], Values]
"""What drifts, for each of so many processes in the order of time; its range is one."""


def _walk(draw: np.random.Generator, processes: int) -> Values:
    steps = np.cumsum(draw.normal(size=processes))
    return np.asarray((steps - steps.min()) / np.ptp(steps))


def _sine(draw: np.random.Generator, processes: int) -> Values:
    """One to three waves in a session, beginning anywhere."""
    waves, begin = draw.uniform(1, 3), draw.uniform(0, 2 * np.pi)
    return np.asarray(np.sin(begin + np.linspace(0, 2 * np.pi * waves, processes)) / 2)


DRIFTS: dict[str, Shape] = {
    "none": lambda draw, processes: np.zeros(processes),
    "linear": lambda draw, processes: np.linspace(0, 1, processes),
    "a step in the middle": lambda draw, processes: (np.arange(processes) >= processes // 2).astype(float),
    "a step anywhere": lambda draw, processes: (np.arange(processes) >= draw.integers(1, processes)).astype(float),
    "sine": _sine,
    "random walk": _walk,
}
_TRUTH = 1e-5
# ABBA ABBA ...: which processes are B's.
_B = np.tile([False, True, True, False], STAGES[-1] // 2)


class Session(NamedTuple):
    """What is simulated."""

    spread: float
    """Between processes that run the same code."""
    drift: str = "none"
    by: float = 0.02
    effect: float = 0.0
    """By how much B is truly slower."""
    within: float = 0.01
    """Between the iterations of a process, for tests that pool them."""

    def medians(self, draw: np.random.Generator, is_b: NDArray[np.bool_]) -> Values:
        """Of one process after the other."""
        drift = np.log1p(self.by) * DRIFTS[self.drift](draw, len(is_b)) * draw.choice([-1, 1])
        noise = draw.normal(0, self.spread, len(is_b))
        return np.asarray(_TRUTH * np.exp(np.log1p(self.effect) * is_b + noise + drift))


class Ended(NamedTuple):
    verdict: Verdict
    processes: int
    """A side."""


Rule = Callable[[Session, np.random.Generator], Ended]


def shares(rule: Rule, session: Session, trials: int, seed: int = 8) -> tuple[dict[Verdict, float], float]:
    """Of each verdict, and the mean number of processes a side."""
    draw = np.random.default_rng(seed)
    ended = [rule(session, draw) for _ in range(trials)]
    counts = Counter(one.verdict for one in ended)
    return {one: counts[one] / trials for one in get_args(Verdict)}, sum(one.processes for one in ended) / trials


def live(session: Session, draw: np.random.Generator, stages: tuple[int, ...] = STAGES) -> Ended:
    """In turns, in stages, until it is decided: as `opmark ab` does. The drift is that of the longest session."""
    is_b = _B[: 2 * stages[-1]]
    medians = session.medians(draw, is_b)
    a, b = medians[~is_b].tolist(), medians[is_b].tolist()
    for stage, pairs in enumerate(stages):
        alpha = {"alpha": stage_alpha(stage)} if len(stages) > 1 else {}
        found = compare_pairs(a[:pairs], b[:pairs], **alpha)
        if found.verdict != "undecided":
            break
    return Ended(found.verdict, pairs)


def stored(session: Session, draw: np.random.Generator, processes: int, **how: float) -> Ended:
    """All of A, then all of B: two runs of the store, as `opmark compare` has them."""
    is_b = np.arange(2 * processes) >= processes
    medians = session.medians(draw, is_b)
    return Ended(compare_groups(medians[~is_b].tolist(), medians[is_b].tolist(), **how).verdict, processes)


def pooled(session: Session, draw: np.random.Generator, processes: int = 10, iterations: int = 50) -> Ended:
    """As many others do: all iterations of a side together, in a rank-sum test. In turns, so at its best."""
    is_b = _B[: 2 * processes]
    medians = session.medians(draw, is_b)
    times = medians[:, None] * np.exp(draw.normal(0, session.within, (2 * processes, iterations)))
    a, b = times[~is_b].ravel(), times[is_b].ravel()
    different = rank_sum_p(a.tolist(), b.tolist()) < ALPHA
    return Ended(("slower" if np.median(b) > np.median(a) else "faster") if different else "undecided", processes)


def threshold(session: Session, draw: np.random.Generator, processes: int = 10, by: float = 0.07) -> Ended:
    """A fixed difference of the medians. In turns, so at its best."""
    is_b = _B[: 2 * processes]
    medians = session.medians(draw, is_b)
    ratio = np.median(medians[is_b]) / np.median(medians[~is_b])
    return Ended("slower" if ratio > 1 + by else "faster" if ratio < 1 - by else "undecided", processes)


class Nights(NamedTuple):
    """A series of medians, one a night."""

    length: int = 100
    noise: float = 0.01
    carried: float = 0.0
    """AR(1): what of a night's deviation is left in the next."""
    outliers: float = 0.0
    """Share of nights that were slower by 5 to 20 %, for reasons of their own."""

    def series(self, draw: np.random.Generator, steps: dict[int, float] | None = None) -> Values:
        """`steps`: from this night on slower by so much."""
        fresh = draw.normal(0, self.noise, self.length)
        noise = np.empty(self.length)
        noise[0] = fresh[0]
        for night in range(1, self.length):
            noise[night] = self.carried * noise[night - 1] + np.sqrt(1 - self.carried**2) * fresh[night]
        noise += (draw.random(self.length) < self.outliers) * np.log1p(draw.uniform(0.05, 0.2, self.length))
        for night, step in (steps or {}).items():
            noise[night:] += np.log1p(step)
        return np.asarray(_TRUTH * np.exp(noise))
