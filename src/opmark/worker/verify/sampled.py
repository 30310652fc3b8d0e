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
from opmark.worker.verify.slices import MOST_SECONDS, Part, PartialSize, estimate_seconds, partial_sizes, row_size

SAMPLED_ELEMENTS = 1 << 16
"""Elements of the outputs that are compared, about."""
_TILES = (256, 128, 64, 32, 16, 8, 4)
# Seconds that references take at most: while there is something left to cut, and along several directions.
_ENOUGH, _SHORT = 0.05, 1.0
# Elements of inputs and outputs that are held at a time, and of a piece where the outputs add up.
_MOST_HELD, _PIECE = 1 << 27, 1 << 22
# Elements that are added up by random signs: each is read once.
_MOST_SUMMED = 1 << 26
# Operations of the reference of all rows that are checked.
_MOST_ROW_FLOPS = 10**12


class SamplePlan(NamedTuple):
    """How a case is checked at its own size."""

    sizes: tuple[PartialSize, ...]
    counts: tuple[int, ...]
    """How many positions of each size are checked."""
    chunked: PartialSize | None = None
    """A size along which the outputs add up, so that the reference is computed piece by piece."""
    chunk: int = 0
    summed: PartialSize | None = None
    """A size along which random sums of all elements are compared as well."""
    directions: int = 0
    """Directions along which gradients are checked; 0: as many as usual."""

    @property
    def whole(self) -> bool:
        """Whether every element is checked."""
        return not self.sizes

    def draw(self, params: Params) -> Part:
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


def plan_sample(operator: Operator, params: Params) -> SamplePlan | None:
    """How to check the outputs of a case at its own size; None if it would take too long."""
    sizes = partial_sizes(operator, params)
    cut = _Cut(operator, params, [size for size in sizes if not size.adds])
    if cut.seconds > MOST_SECONDS:
        return None
    if cut.elements <= _MOST_HELD:
        linear = [size for size in sizes if size.linear] if count_elements(operator, params) <= _MOST_SUMMED else []
        summed = max(linear, key=lambda size: (len(size.outputs), size.value(params)), default=None)
        return cut.plan()._replace(summed=summed if cut.params != params else None)
    adding = next((size for size in sizes if size.adds), None)
    if adding is None:
        return None
    chunk = adding.value(cut.params)
    while chunk > 1 and count_elements(operator, adding.resize(cut.params, chunk)) > _PIECE:
        chunk //= 2
    return cut.plan()._replace(chunked=adding, chunk=chunk)


def plan_rows(operator: Operator, params: Params) -> SamplePlan:
    """How to check an operator whose rows are independent: all rows where the reference computes them in a minute or
    so, else some of them, and at least two. A case that has no rows is checked in full."""
    assert operator.row_axes is not None
    if not operator.row_axes(params):
        return WHOLE
    size = row_size(operator, params)
    batch, alone = size.value(params), operator.cost({**params, "batch": 1}).flops or 1
    rows = max(2, _MOST_ROW_FLOPS // alone)
    return WHOLE if rows >= batch else SamplePlan((size,), (rows,))


def plan_second_sample(operator: Operator, params: Params) -> SamplePlan | None:
    """How to check the outputs of a case once more, by a smaller part; None if that takes long."""
    sizes = [size for size in partial_sizes(operator, params) if not size.adds]
    cut = _Cut(operator, params, sizes, outputs=SAMPLED_ELEMENTS // 8)
    return cut.plan() if cut.seconds <= 2 * _ENOUGH else None


def plan_gradient_sample(operator: Operator, params: Params, inputs: Sequence[str]) -> SamplePlan | None:
    """How to check the gradients of these inputs of a case at its own size, along fewer directions if need be; None if
    it would take too long."""
    # Where outputs add up, a part has the gradients of what it has to itself, and a share of all others.
    sizes = [size for size in partial_sizes(operator, params) if not size.adds or set(inputs) <= size.inputs]
    for directions, most in ((DIRECTIONS, _SHORT), (2, _SHORT), (1, MOST_SECONDS)):
        cut = _Cut(operator, params, sizes, POINTS * directions * len(inputs))
        if cut.seconds <= most and cut.elements <= _MOST_HELD:
            return cut.plan()._replace(directions=directions)
    return None


class _Cut:
    """A part of a case that takes little time to check, as far as its sizes can be cut: the largest is halved again and
    again."""

    def __init__(
        self,
        operator: Operator,
        params: Params,
        sizes: Sequence[PartialSize],
        evaluations: int = 1,
        outputs: int = 2 * SAMPLED_ELEMENTS,
    ) -> None:
        """`outputs`: elements of the outputs that may be left."""
        self.params = dict(params)
        self._most_outputs = outputs
        self._operator = operator
        self._sizes = sizes
        self._evaluations = evaluations
        self._full = [size.value(params) for size in sizes]
        self._left = [*self._full]
        self._inputs = {name: float(spec.elements) for name, spec in operator.inputs(params).items()}
        self._share = 1.0
        """How much of the outputs is left along sizes that the operator itself cuts."""
        fixed = set[int]()
        while not self._is_small():
            free = [i for i, count in enumerate(self._left) if count > 1 and i not in fixed]
            if not free:
                break
            largest = max(free, key=lambda i: self._left[i])
            if not self._halve(largest):
                fixed.add(largest)

    @property
    def seconds(self) -> float:
        flops = self._share * (self._operator.cost(self.params).flops or 0)
        return self._evaluations * estimate_seconds(flops, self.elements)

    @property
    def outputs(self) -> float:
        """Elements of the outputs that are left."""
        written = self._operator.cost(self.params).bytes_written
        return self._share * written / sizeof(self._operator.result_dtype(self.params))

    @property
    def elements(self) -> float:
        """Elements of inputs and outputs that are left; some inputs are not cut."""
        return self.outputs + sum(self._inputs.values())

    def plan(self) -> SamplePlan:
        kept = [i for i, count in enumerate(self._left) if count < self._full[i]]
        return SamplePlan(tuple(self._sizes[i] for i in kept), tuple(self._left[i] for i in kept))

    def _is_small(self) -> bool:
        return self.outputs <= self._most_outputs and self.seconds <= _ENOUGH

    def _halve(self, index: int) -> bool:
        count = self._left[index] // 2
        if self._sizes[index].places[0][0] in self._operator.sample:
            self._share *= count / self._left[index]
        else:
            smaller = self._sizes[index].resize(self.params, count)
            if not rules_allow(self._operator, smaller):
                return False
            self.params = smaller
        for name in self._sizes[index].inputs:
            self._inputs[name] *= count / self._left[index]
        self._left[index] = count
        return True
