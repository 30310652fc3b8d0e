"""Smooth: a Gaussian process over the features of calls on one chip, for the few hundred shapes that trees are too
coarse for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

_FITTED = 300
"""Number of calls that length scales are found with."""
MOST = 1500
"""Number of calls that a process keeps: its time to predict grows with it."""
_STEPS = 40
_FARTHEST = 50.0
_PASSES = 2
_OUTLIER = 10.0
"""A call that is this many times farther from what the others say than the median one is left out."""


@dataclass(frozen=True)
class Smooth:
    inputs: np.ndarray
    """Features of the calls that it was fitted to, less the origin, divided by the scales."""
    weights: np.ndarray
    origin: np.ndarray
    scales: np.ndarray
    amplitude: float
    noise: float
    centre: float

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        found = np.zeros(len(matrix))
        for start in range(0, len(matrix), 4096):
            rows = slice(start, start + 4096)
            found[rows] = (
                self.amplitude
                * _matern(_distances((matrix[rows] - self.origin) / self.scales, self.inputs))
                @ self.weights
            )
        return found + self.centre


def fit_smooth(matrix: np.ndarray, target: np.ndarray, *, seed: int, like: Smooth | None = None) -> Smooth:
    """Fit a process; its scales are found for these calls, or are those of `like`."""
    order = np.random.default_rng(seed).permutation(len(target))[:MOST]
    matrix, target = matrix[order].astype(float), target[order]
    origin, spread = matrix.mean(0), np.maximum(matrix.std(0), 1e-6)
    centre = float(target.mean())
    with _one_thread():
        if like is not None:
            return _solved(matrix, target - centre, origin, like.scales, like.amplitude, like.noise, centre)
        scales, amplitude, noise = _likeliest((matrix - origin) / spread, target - centre)
        return _solved(matrix, target - centre, origin, spread * scales, amplitude, noise, centre)


def _one_thread() -> AbstractContextManager[object]:
    """Linear algebra of a few hundred rows takes longer with several threads, and far longer on a busy machine."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def _likeliest(inputs: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return the scales, one for each feature, amplitude and noise of the highest marginal likelihood. A feature that
    tells nothing gets a long scale."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    fitted, aim = inputs[:_FITTED], rest[:_FITTED]
    squares = np.stack([(column[:, None] - column[None]) ** 2 for column in fitted.T])

    def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        scales, amplitude, noise = np.exp(free[:-2]), np.exp(2 * free[-2]), np.exp(2 * free[-1])
        distances = np.sqrt(np.tensordot(1 / scales**2, squares, 1) + 1e-12)
        smooth = _matern(distances)
        covariance = amplitude * smooth + noise * np.eye(len(aim))
        factor = cho_factor(covariance, lower=True)
        weights = cho_solve(factor, aim)
        slope = np.outer(weights, weights) - cho_solve(factor, np.eye(len(aim)))
        # The derivative of the Matern kernel by a squared distance is -1.5 exp(-sqrt(3) d).
        by_square = slope * (-1.5 * amplitude * np.exp(-np.sqrt(3) * distances))
        by_scale = np.tensordot(squares, by_square, ([1, 2], [0, 1])) * (-2 / scales**2)
        gradient = np.r_[by_scale, 2 * amplitude * (slope * smooth).sum(), 2 * noise * np.trace(slope)]
        value = 0.5 * aim @ weights + np.log(np.diag(factor[0])).sum()
        # A weak prior: scales of a few standard deviations.
        prior = ((free[:-2] - 1) ** 2).sum() / 8
        return value + prior, -0.5 * gradient + np.r_[(free[:-2] - 1) / 4, 0, 0]

    width = inputs.shape[1]
    start = np.r_[np.full(width, 1.0), np.log(rest.std() + 1e-3), np.log(0.1)]
    bounds = [(-2.0, np.log(_FARTHEST))] * width + [(-4.0, 2.0), (np.log(0.01), 0.0)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}).x
    return np.exp(found[:-2]), float(np.exp(2 * found[-2])), float(np.exp(2 * found[-1]))


def _solved(
    matrix: np.ndarray, rest: np.ndarray, origin: np.ndarray, scales: np.ndarray, amplitude: float, noise: float,
    centre: float,
) -> Smooth:  # fmt: skip
    from scipy.linalg import cho_factor, cho_solve

    scaled = (matrix - origin) / scales
    kept = np.arange(len(rest))
    for _ in range(_PASSES):
        own = scaled[kept]
        covariance = amplitude * _matern(_distances(own, own)) + (noise + 1e-6 * amplitude) * np.eye(len(own))
        factor = cho_factor(covariance, lower=True)
        weights = cho_solve(factor, rest[kept])
        # What each call would be off if it were left out; a few that other work disturbed are.
        surprise = np.abs(weights / np.diag(cho_solve(factor, np.eye(len(own)))))
        usual = surprise <= _OUTLIER * np.median(surprise)
        if usual.all():
            break
        kept = kept[usual]
    return Smooth(own.astype(np.float32), weights, origin, scales, amplitude, noise, centre)


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None] - 2 * left @ right.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


def _matern(distances: np.ndarray) -> np.ndarray:
    """Return the Matern kernel of order 3/2: smooth, with room for the bends where another limit takes over."""
    scaled = np.sqrt(3) * distances
    return np.asarray((1 + scaled) * np.exp(-scaled))
