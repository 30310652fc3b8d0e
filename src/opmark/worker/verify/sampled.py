"""Verifies a case that is too large for its reference at its own size, by a part of it (`slices`).

The part has the first and last positions, both sides of the last borders of tiles and vectors, and others at random,
from a seed that no implementation can know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from opmark.plugin import Operator, Params
from opmark.plugin.operator import count_elements, rules_allow
from opmark.schema.tensor import sizeof
from opmark.worker.verify.accuracy import DIRECTIONS, POINTS
from opmark.worker.verify.slices import Part, PartialSize, partial_sizes

SAMPLED_ELEMENTS = 1 << 16
"""Elements of the outputs that are compared, about."""
_TILES = (256, 128, 64, 32, 16, 8, 4)
# Seconds that references take at most: while there is something left to cut, along several directions, and before a
# case stays unchecked.
_ENOUGH, _SHORT, _MOST = 0.1, 1.0, 5.0
# Elements of inputs and outputs that are held at a time, and of a piece where the outputs add up.
_MOST_HELD, _PIECE = 1 << 27, 1 << 22
# How fast references are, in operations and elements a second; operations are fast in matrix products only, and
# elsewhere there are few for an element.
_OPERATIONS, _ELEMENTS = 1e10, 3e7


class SamplePlan(NamedTuple):
    """How a case is checked at its own size."""

    sizes: tuple[PartialSize, ...]
    counts: tuple[int, ...]
    """How many positions of each size are checked."""
    chunked: PartialSize | None = None
    """A size along which the outputs add up, so that the reference is computed piece by piece."""
    chunk: int = 0
    directions: int = 0
    """Directions along which gradients are checked; 0: as many as usual."""

    @property
    def whole(self) -> bool:
        """Whether every element is checked."""
        return not self.sizes

    def draw(self, operator: Operator, params: Params) -> Part:
        generator = np.random.default_rng()
        values = [size.value(params) for size in self.sizes]
        chosen = [choose_positions(n, count, generator) for n, count in zip(values, self.counts, strict=True)]
        return Part(self.sizes, tuple(chosen))

    def pieces(self, params: Params, part: Part) -> Iterator[Part]:
        """The part, piece by piece along the size that adds up."""
        assert self.chunked is not None
        n = self.chunked.value(params)
        for start in range(0, n, self.chunk):
            piece = np.arange(start, min(n, start + self.chunk))
            yield Part((*part.sizes, self.chunked), (*part.chosen, piece))


WHOLE = SamplePlan((), ())
"""Everything is checked."""


def choose_positions(n: int, count: int, generator: np.random.Generator) -> Any:
    """So many of n positions, in order: ends and borders of tiles first, then any."""
    if count >= n:
        return np.arange(n)
    edges = [n - 1, 0]
    for tile in _TILES:
        border = (n - 1) // tile * tile
        edges += [border, border - 1]
    edges += [n - 2, 1]
    known = [*dict.fromkeys(at for at in edges if 0 <= at < n)][: max(1, (count + 1) // 2)]
    chosen = set(known)
    while len(chosen) < count:
        chosen.update(generator.integers(0, n, count - len(chosen)).tolist())
    return np.sort(np.fromiter(chosen, np.int64))


def estimate_seconds(operator: Operator, params: Params) -> float:
    """How long the reference takes, about."""
    return (operator.cost(params).flops or 0) / _OPERATIONS + count_elements(operator, params) / _ELEMENTS


def plan_sample(operator: Operator, params: Params) -> SamplePlan | None:
    """How to check the outputs of a case at its own size; None if it would take too long."""
    sizes = partial_sizes(operator, params)
    plan, smaller = _cut(operator, params, [size for size in sizes if not size.adds], 1)
    if estimate_seconds(operator, smaller) > _MOST:
        return None
    if count_elements(operator, smaller) <= _MOST_HELD:
        return plan
    adding = next((size for size in sizes if size.adds), None)
    if adding is None:
        return None
    chunk = adding.value(smaller)
    while chunk > 1 and count_elements(operator, adding.resize(smaller, chunk)) > _PIECE:
        chunk //= 2
    return plan._replace(chunked=adding, chunk=chunk)


def plan_gradient_sample(operator: Operator, params: Params, inputs: Sequence[str]) -> SamplePlan | None:
    """How to check the gradients of these inputs of a case at its own size, along fewer directions if need be; None if
    it would take too long."""
    # Where outputs add up, a part has the gradients of what it has to itself, and a share of all others.
    sizes = [size for size in partial_sizes(operator, params) if not size.adds or set(inputs) <= size.inputs]
    for directions, most in ((DIRECTIONS, _SHORT), (2, _SHORT), (1, _MOST)):
        evaluations = POINTS * directions * len(inputs)
        plan, smaller = _cut(operator, params, sizes, evaluations)
        held = count_elements(operator, smaller)
        if evaluations * estimate_seconds(operator, smaller) <= most and held <= _MOST_HELD:
            return plan._replace(directions=directions)
    return None


def _cut(
    operator: Operator, params: Params, sizes: Sequence[PartialSize], evaluations: int
) -> tuple[SamplePlan, dict[str, Any]]:
    """(a plan that takes little time if there is enough to cut, the parameters of the part that it checks)."""
    smaller, left, fixed = dict(params), [size.value(params) for size in sizes], set[int]()

    def small_enough() -> bool:
        outputs = operator.cost(smaller).bytes_written // sizeof(operator.result_dtype(smaller))
        return outputs <= 2 * SAMPLED_ELEMENTS and evaluations * estimate_seconds(operator, smaller) <= _ENOUGH

    while not small_enough():
        free = [i for i, count in enumerate(left) if count > 1 and i not in fixed]
        if not free:
            break
        largest = max(free, key=lambda i: left[i])
        halved = sizes[largest].resize(smaller, left[largest] // 2)
        if rules_allow(operator, halved):
            smaller, left[largest] = halved, left[largest] // 2
        else:
            fixed.add(largest)
    kept = [i for i, size in enumerate(sizes) if left[i] < size.value(params)]
    return SamplePlan(tuple(sizes[i] for i in kept), tuple(left[i] for i in kept)), smaller
