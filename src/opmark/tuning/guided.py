"""The default tuner: a Gaussian process over the knobs proposes what improves most, and says when nothing would.

The logarithm of the time is modelled, with one length scale per knob, so that a knob that does not matter is found out
after a few measurements. A batch is chosen one by one: each choice is taken to be as fast as predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, sqrt
from typing import Any

from opmark.plugin import TuningProblem
from opmark.tuning.features import knob_groups, scaled
from opmark.tuning.tuners import IndexTuner

_POOL = 3000
_LEARNT = 256
"""Configurations that the process learns from at most: the fastest, and some of the others."""
_STOP = 0.002
"""Nothing more is asked for when no configuration is expected to be faster by more than this share."""
_FEWEST = 12
"""Measurements before which the tuner never stops, if the space has as many."""
_BOUNDS = ((log(0.05), log(20.0)), (log(0.05), log(10.0)), (log(1e-3), log(0.5)))
"""Limits of the logarithms of length scales, of the signal's and of the noise's standard deviation."""


_FIRST_FIT, _NEXT_FIT = 40, 12
"""Steps in which hyperparameters are fitted: later fits begin with what the one before has found."""


class Guided(IndexTuner):
    def __init__(self, problem: TuningProblem) -> None:
        super().__init__(problem)
        knobs = sum(len(knob.values) > 1 for knob in self.space.knobs)
        self.first = min(max(4, 2 * knobs), max(4, self.space.size // 25))
        self._groups = knob_groups(self.space)
        self._rows: dict[int, list[float]] = {}
        self._scales: Any = None
        """Hyperparameters of the last fit, from which the next one begins."""

    def spread(self, most: int) -> Iterator[int]:
        """Yield configurations that are far from each other and from what was seen."""
        import numpy as np

        drawn = self.space.draw(self.random, max(64, 8 * most))
        known = [number for number in self.seen if number not in drawn]
        points = np.array(scaled([self._row(number) for number in [*known, *drawn]]))
        nearest = np.full(len(drawn), np.inf)
        for point in points[: len(known)]:
            nearest = np.minimum(nearest, ((points[len(known) :] - point) ** 2).sum(axis=1))
        for _ in range(len(drawn)):
            place = int(np.argmax(nearest))
            if nearest[place] < 0:
                return
            yield drawn[place]
            nearest = np.minimum(nearest, ((points[len(known) :] - points[len(known) + place]) ** 2).sum(axis=1))
            nearest[place] = -1.0

    def choose(self, most: int) -> Iterator[int]:
        import numpy as np

        timed = {number: seconds for number, seconds in self.told.items() if seconds is not None}
        pool = self.pool(_POOL)
        if not timed:
            yield from self.spread(most)
            return
        if not pool:
            return
        learnt = self.best(_LEARNT // 2)  # the fastest first
        others = [number for number in self.told if number not in set(learnt)]
        learnt += self.random.sample(others, min(len(others), _LEARNT - len(learnt)))
        slowest = max(timed.values())
        # What failed is taken to be slower than all others: its neighbourhood is avoided and not forbidden.
        values = np.array([log(timed.get(number, 2 * slowest)) for number in learnt])
        rows = np.array(scaled([self._row(number) for number in [*learnt, *pool]]))
        model = _Process(rows[: len(learnt)], values, self._widths(), self._scales)
        self._scales = model.scales
        points = rows[len(learnt) :]
        left = np.ones(len(pool), dtype=bool)
        enough = len(self.told) >= min(_FEWEST, self.space.size)
        for place_in_batch in range(min(most, len(pool))):
            gain = np.where(left, model.expected_improvement(points), -1.0)
            place = int(np.argmax(gain))
            if enough and gain[place] < _STOP:
                if place_in_batch == 0:  # the model expects nothing more: what is near to the best has the last word
                    yield from self._near_best(learnt[:3], model, dict(zip(pool, points, strict=True)))
                return
            yield pool[place]
            left[place] = False
            model.believe(points[place])

    def _near_best(self, best: list[int], model: _Process, points: dict[int, Any]) -> Iterator[int]:
        """Yield what is one step away from the fastest configurations, in the order of its predicted time."""
        import numpy as np

        near = {self.space.index(one) for number in best for one in self.space.neighbours(self.space.at(number))}
        left = sorted(number for number in near if number in points)
        if left:
            means, _ = model.predict(np.array([points[number] for number in left]))
            yield from (left[place] for place in np.argsort(means, kind="stable"))

    def _row(self, number: int) -> list[float]:
        if number not in self._rows:
            values = self.space.at(number)
            pairs = zip(self.space.knobs, self._groups, strict=True)
            self._rows[number] = [one for knob, group in pairs for one in group(values[knob.name])]
        return self._rows[number]

    def _widths(self) -> list[int]:
        """Return how many numbers each knob has become."""
        return [len(group(knob.values[0])) for knob, group in zip(self.space.knobs, self._groups, strict=True)]


class _Process:
    """A Gaussian process with a Matérn 5/2 kernel; its hyperparameters maximise the likelihood of the data, with a weak
    preference for knobs that matter little."""

    def __init__(self, points: Any, values: Any, widths: list[int], scales: Any = None) -> None:
        import numpy as np
        from scipy.optimize import minimize

        self._points, self._widths = points, widths
        self._mean, self._spread = values.mean(), values.std() or 1.0
        self._targets = (values - self._mean) / self._spread
        self._squares = self._distances(points, points)
        count = len(widths)
        start = np.array([*([log(1.0)] * count), 0.0, log(0.05)]) if scales is None else scales
        limit = _FIRST_FIT if scales is None else _NEXT_FIT
        bounds = [_BOUNDS[0]] * count + [_BOUNDS[1], _BOUNDS[2]]
        fit = minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": limit})
        self.scales = fit.x
        self._condition()

    def expected_improvement(self, points: Any) -> Any:
        """Return by how much each point is expected to be below the lowest prediction at a measured point, in the
        logarithm of seconds: about the share of the time that it saves."""
        from scipy.stats import norm

        mean, deviation = self.predict(points)
        lowest = self.predict(self._points)[0].min()
        z = (lowest - mean) / deviation
        return self._spread * deviation * (z * norm.cdf(z) + norm.pdf(z))

    def predict(self, points: Any) -> tuple[Any, Any]:
        """Return mean and standard deviation at these points, of standardised values."""
        import numpy as np
        from scipy.linalg import solve_triangular

        cross = self._kernel(self._distances(points, self._points))
        mean = cross @ self._weights
        half = solve_triangular(self._factor, cross.T, lower=True)
        variance = np.exp(2 * self.scales[-2]) - (half**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-10))

    def believe(self, point: Any) -> None:
        """Take a point to be what is predicted for it, so that the next choice of a batch lies elsewhere."""
        import numpy as np

        mean, _ = self.predict(point[None])
        self._points = np.vstack([self._points, point])
        self._targets = np.append(self._targets, mean)
        self._squares = self._distances(self._points, self._points)
        self._condition()

    def _condition(self) -> None:
        import numpy as np
        from scipy.linalg import cho_solve

        noise = np.exp(2 * self.scales[-1]) + 1e-8
        covariance = self._kernel(self._squares) + noise * np.eye(len(self._points))
        self._factor = np.linalg.cholesky(covariance)
        self._weights = cho_solve((self._factor, True), self._targets)

    def _distances(self, one: Any, other: Any) -> Any:
        """Return the squared distances of points in each knob."""
        import numpy as np

        found, begin = [], 0
        for width in self._widths:
            difference = one[:, None, begin : begin + width] - other[None, :, begin : begin + width]
            found.append((difference**2).sum(axis=2))
            begin += width
        return np.array(found)

    def _radius(self, squares: Any, scales: Any) -> Any:
        import numpy as np

        weights = np.exp(-2 * scales[: len(self._widths)])
        return np.sqrt(np.tensordot(weights, squares, 1) + 1e-12)

    def _kernel(self, squares: Any) -> Any:
        import numpy as np

        r = sqrt(5) * self._radius(squares, self.scales)
        return np.exp(2 * self.scales[-2]) * (1 + r + r**2 / 3) * np.exp(-r)

    def _loss(self, scales: Any) -> tuple[float, Any]:
        """Return the negative logarithm of the posterior of hyperparameters, and its gradient."""
        import numpy as np
        from scipy.linalg import cho_solve

        count = len(self._widths)
        r = sqrt(5) * self._radius(self._squares, scales)
        fading = np.exp(2 * scales[-2]) * np.exp(-r)
        kernel = fading * (1 + r + r**2 / 3)
        noise = np.exp(2 * scales[-1]) + 1e-8
        factor = np.linalg.cholesky(kernel + noise * np.eye(len(r)))
        inverse = cho_solve((factor, True), np.eye(len(r)))
        weights = inverse @ self._targets
        prior = (scales[:count] - log(1.0)) / 1.5
        loss = 0.5 * self._targets @ weights + np.log(np.diag(factor)).sum() + 0.5 * (prior**2).sum()
        outer = np.outer(weights, weights) - inverse
        slope = fading * (1 + r) * 5 / 3
        steepness = np.exp(-2 * scales[:count])
        gradient = [
            -0.5 * (outer * slope * self._squares[i] * steepness[i]).sum() + prior[i] / 1.5 for i in range(count)
        ]
        gradient.append(-(outer * kernel).sum())
        gradient.append(-np.trace(outer) * np.exp(2 * scales[-1]))
        return float(loss), np.array(gradient)
