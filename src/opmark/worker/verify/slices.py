"""Finds along which sizes of an operator its outputs can be checked in part, and takes such parts.

A size is independent if the reference of a part of the inputs equals that part of the reference: rows of a softmax,
both outer sizes of a matrix product, batch and output channels of a convolution, every size of an element-wise
operator. It adds up if the reference is the sum, or the mean, over the parts, as that of a loss is. Which sizes are is
found with the operator's own reference on a tiny case of the same kind. So a large case is checked at its own size,
with the reference evaluated for a part of it only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np

from opmark.plugin import Operator, Params
from opmark.plugin.backend import cast, draw_values, widen
from opmark.plugin.operator import Place, count_elements, resize, rules_allow, shrink, size_places
from opmark.schema.tensor import DTYPES

_TINY_ELEMENTS = 4096
_TINY_FLOPS = 4_000_000
_TRIALS = 2
_LEAST = 4  # positions of a size, so that a part of it is one
_TOO_MUCH_WORK = 64  # of a tiny case that rules keep from being one
_MOST_LAYOUTS, _MOST_CHOICES = 24, 6
_ROUNDING = 1e-9
_SAME = 1e-6
_MOST_OUTSIDE = 64
MOST_SECONDS = 5.0
"""Time that references take at most before a case stays unchecked."""
# How fast references are, in operations and elements a second; operations are fast in matrix products only, and
# elsewhere there are few for an element.
_OPERATIONS, _ELEMENTS = 1e10, 3e7
# An axis that grows with a size has a number of elements per unit of it: side by side, as many rounds over the size, or
# it is not cut, as the pages of a cache that a table points into.
Layout = Literal["inner", "outer", "whole"]
Tensor = str | int
"""Name of an input, or number of an output."""
Positions = Mapping[int, Any]
"""Positions along axes of a tensor; an axis that is not named is taken as a whole."""


class AxisOfSize(NamedTuple):
    tensor: Tensor
    axis: int
    layout: Layout
    repeated: bool
    """Whether the axis has several elements per unit of the size."""

    def positions(self, length: int, size: int, chosen: Any) -> Any:
        """The positions along the axis that belong to the chosen ones along the size."""
        repeat = length // size
        if self.layout == "inner":
            return (chosen[:, None] * repeat + np.arange(repeat)).ravel()
        return (np.arange(repeat)[:, None] * size + chosen).ravel()


class PartialSize(NamedTuple):
    """A size of which a part can be checked."""

    places: tuple[Place, ...]
    """Parameters that are this size, or multiples of it."""
    axes: tuple[AxisOfSize, ...]
    adds: Literal["", "sum", "mean"] = ""
    """How the outputs are made of those of the parts; empty where a part of the inputs gives a part of the outputs."""
    linear: bool = False
    """Whether weighted sums of inputs along it give the same sums of outputs, as in a product of matrices. Then one
    evaluation of the reference checks all elements at once (Freivalds)."""

    def value(self, params: Params) -> int:
        return _read(params, self.places[0])

    @property
    def outputs(self) -> set[int]:
        """The outputs that have an axis of it."""
        return {axis.tensor for axis in self.axes if isinstance(axis.tensor, int)}

    @property
    def inputs(self) -> set[str]:
        """The inputs that are cut along it."""
        return {axis.tensor for axis in self.axes if isinstance(axis.tensor, str) and axis.layout != "whole"}

    def resize(self, params: Params, count: int) -> dict[str, Any]:
        n = self.value(params)
        changed = dict(params)
        for place in self.places:
            changed = resize(changed, [place], lambda value: value // n * count)
        return changed

    def contract(self, tensor: Tensor, array: Any, weights: Any) -> Any:
        """The weighted sum of an array along this size, as an axis of length 1; all of it where it has no such axis."""
        for axis in self.axes:
            if axis.tensor == tensor:
                return np.expand_dims(np.tensordot(array, weights, (axis.axis, 0)), axis.axis)
        return array

    def weight(self, count: int, of: int) -> float:
        """The share that the outputs of a part have in those of the whole."""
        return count / of if self.adds == "mean" else 1.0


class Part(NamedTuple):
    """Chosen positions along some sizes of a case."""

    sizes: tuple[PartialSize, ...]
    chosen: tuple[Any, ...]

    def params(self, operator: Operator, params: Params) -> dict[str, Any]:
        """The parameters of the part."""
        smaller = dict(params)
        for size, chosen in zip(self.sizes, self.chosen, strict=True):
            name = size.places[0][0]
            smaller = (
                {**smaller, f"{name}_at": chosen} if name in operator.sample else size.resize(smaller, len(chosen))
            )
        return smaller

    def positions(self, params: Params, tensor: Tensor, shape: Sequence[int]) -> dict[int, Any]:
        """The positions along the axes of a tensor. ValueError where its shape does not fit the sizes."""
        found: dict[int, Any] = {}
        for size, chosen in zip(self.sizes, self.chosen, strict=True):
            n = size.value(params)
            for axis in size.axes:
                if axis.tensor != tensor or axis.layout == "whole":
                    continue
                if axis.axis >= len(shape) or shape[axis.axis] % n or (shape[axis.axis] > n and not axis.repeated):
                    raise ValueError(f"axis {axis.axis} of shape {tuple(shape)} does not fit a size of {n}")
                found[axis.axis] = axis.positions(shape[axis.axis], n, chosen)
        return found

    def weight(self, params: Params) -> float:
        pairs = zip(self.sizes, self.chosen, strict=True)
        return float(np.prod([size.weight(len(chosen), size.value(params)) for size, chosen in pairs]))

    def outside(self, params: Params, tensor: Tensor, shape: Sequence[int]) -> Iterator[dict[int, Any]]:
        """Some positions of a tensor that are not in the part: for each axis, others along it."""
        inside = self.positions(params, tensor, shape)
        for size, chosen in zip(self.sizes, self.chosen, strict=True):
            n = size.value(params)
            others = np.setdiff1d(np.arange(n), chosen)[:: max(1, (n - len(chosen)) // _MOST_OUTSIDE)]
            if size.adds or not len(others):
                continue
            for axis in size.axes:
                if axis.tensor == tensor and axis.layout != "whole":
                    yield {**inside, axis.axis: axis.positions(shape[axis.axis], n, others)}


ALL = Part((), ())
"""The whole of a case."""


def _read(params: Params, place: Place) -> int:
    value = params[place[0]]
    return int(value if place[1] is None else value[place[1]])


def take(array: Any, positions: Positions) -> Any:
    for axis, at in positions.items():
        array = np.take(array, at, axis=axis)
    return array


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


# What references raise for inputs that are no case of them; LinAlgError is a ValueError only since NumPy 1.25.
NO_CASE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError, np.linalg.LinAlgError)
_found: dict[str, tuple[PartialSize, ...]] = {}


def partial_sizes(operator: Operator, params: Params) -> tuple[PartialSize, ...]:
    """The sizes of a case of which parts can be checked together, found once per process and case. Along at most one of
    them the outputs add up."""
    if operator.row_axes:
        return (row_size(operator, params),) if operator.row_axes(params) else ()
    key = f"{operator.name} {dict(params)}"
    if key not in _found:
        with np.errstate(all="ignore"), catch_warnings():  # sums of inputs may be no inputs of it
            simplefilter("ignore")
            _found[key] = tuple(_Trial.find(operator, params))
    return _found[key]


def row_size(operator: Operator, params: Params) -> PartialSize:
    """The batch of an operator whose rows are independent by definition."""
    assert operator.row_axes is not None
    axes = operator.row_axes(params).items()
    return PartialSize((("batch", None),), tuple(AxisOfSize(tensor, axis, "inner", False) for tensor, axis in axes))


def estimate_seconds(flops: float, elements: float) -> float:
    """How long a reference of so many operations on so many elements takes, about."""
    return flops / _OPERATIONS + elements / _ELEMENTS


def forget_sizes(operator: Operator, params: Params, cut: Sequence[PartialSize], linear: PartialSize | None) -> bool:
    """Do not cut a case along these sizes again, nor take sums along that one. Return whether there was any."""
    key = f"{operator.name} {dict(params)}"
    _found[key] = tuple(
        size._replace(linear=size.linear and size is not linear) for size in _found[key] if size not in cut
    )
    return bool(cut) or linear is not None


def find_coincidences(
    operator: Operator,
    params: Params,
    part: Part,
    summed: PartialSize | None,
    read_inputs: Callable[[Part], Mapping[str, Any]],
) -> tuple[list[PartialSize], PartialSize | None]:
    """(sizes along which a part is not a part of a larger part, the size if sums along it are not sums): what holds for
    a tiny case may be a coincidence there. `read_inputs` returns the inputs of a part."""
    inputs, wrong = read_inputs(part), []
    expected = as_tuple(operator.reference(part.params(operator, params), **inputs))
    for i, (size, chosen) in enumerate(zip(part.sizes, part.chosen, strict=True)):
        n = size.value(params)
        if size.adds or size.places[0][0] in operator.sample:
            continue
        more = np.arange(n)  # all of it, or twice as much where that takes too long
        larger = Part(part.sizes, (*part.chosen[:i], more, *part.chosen[i + 1 :]))
        of_larger = larger.params(operator, params)
        flops, elements = operator.cost(of_larger).flops or 0, count_elements(operator, of_larger)
        if estimate_seconds(flops, elements) > MOST_SECONDS:
            others = np.random.default_rng().permutation(np.setdiff1d(more, chosen))[: len(chosen)]
            more = np.sort(np.concatenate([chosen, others]))
            larger = Part(part.sizes, (*part.chosen[:i], more, *part.chosen[i + 1 :]))
            of_larger = larger.params(operator, params)
        found = _reference_or_none(operator, of_larger, read_inputs(larger))
        within = Part((size,), (np.searchsorted(more, chosen),))
        try:
            due = [take(out, within.positions(of_larger, k, out.shape)) for k, out in enumerate(found or ())]
        except ValueError:
            due = []
        # What an operator observes of its outputs may have other shapes than these.
        if not _close(expected, due, _SAME) and not (operator.observe and _shapes(expected) != _shapes(due)):
            wrong.append(size)
    return wrong, summed if summed and not _sums_agree(operator, params, part, summed, inputs, expected) else None


def _sums_agree(
    operator: Operator,
    params: Params,
    part: Part,
    size: PartialSize,
    inputs: Mapping[str, Any],
    expected: Sequence[Any],
) -> bool:
    """Whether the operator is linear along a size within a part."""
    cut = part.params(operator, params)
    signs = np.random.default_rng().choice((-1.0, 1.0), size.value(cut))
    sums = {name: size.contract(name, array, signs) for name, array in inputs.items()}
    found = _reference_or_none(operator, size.resize(cut, 1), sums)
    return found is not None and _close([size.contract(i, out, signs) for i, out in enumerate(expected)], found, _SAME)


_tried: dict[tuple[Any, ...], PartialSize | None] = {}
"""What trials have shown: cases of many sizes have the same tiny case."""


def _try_size(
    operator: Operator, tiny: Params, found: tuple[PartialSize, ...], places: tuple[Place, ...], *, multiples: bool
) -> PartialSize | None:
    """The size at these places of a tiny case, if parts along it can be checked together with those found before."""
    key = (operator.name, repr(tiny), found, places, multiples)
    if key not in _tried:
        trial = _Trial.make(operator, tiny)
        size = trial.fitting(found, places, multiples=multiples) if trial else None
        _tried[key] = size._replace(linear=trial.is_linear(size)) if trial and size else None
    return _tried[key]


class _Trial:
    """A tiny case on which it is tried which sizes can be cut."""

    def __init__(self, operator: Operator, params: Params) -> None:
        self._operator = operator
        self._params = params
        self._drawn = [_draw_inputs(operator, params, seed) for seed in range(_TRIALS)]
        self._outputs = [compute_outputs(operator, params, inputs) for inputs in self._drawn]

    @classmethod
    def make(cls, operator: Operator, params: Params) -> _Trial | None:
        """A trial with these parameters, unless the operator cannot make or compute such a case."""
        try:
            return cls(operator, params)
        except NO_CASE:
            return None

    @classmethod
    def find(cls, operator: Operator, params: Params) -> Iterator[PartialSize]:
        if operator.result == "random" or operator.ranks:  # what a part of random numbers should be is not known
            return
        if operator.observe and not operator.implementations_for("numpy"):  # nothing says what its outputs look like
            return
        # NumPy has no bfloat16. What can be cut does not depend on the type.
        single = {
            param.name: "float32"
            for param in operator.params
            if param.kind == "dtype" and params.get(param.name) == "bfloat16" and "float32" in (param.choices or DTYPES)
        }
        tiny = shrink(operator, {**params, **single}, lambda p: _work(operator, p) > 1, _LEAST)
        if _work(operator, tiny) > _TOO_MUCH_WORK:
            return
        found, used = list[PartialSize](), set[Place]()
        full = size_places(operator, params)
        for place in sorted(full, key=lambda place: -full[place]):
            for places in _groups(place, full, used):
                multiples = any(_read(params, one) != _read(params, place) for one in places)
                size = _try_size(operator, tiny, tuple(found), places, multiples=multiples)
                if size is not None and _fits(operator, params, size):
                    found.append(size)
                    used.update(places)
                    yield size
                    break

    def fitting(
        self, found: tuple[PartialSize, ...], places: tuple[Place, ...], *, multiples: bool
    ) -> PartialSize | None:
        """The size at these places, if parts along it can be checked together with those found before. `multiples`:
        whether some of the places have a multiple of the first."""
        if not multiples:
            trial = self._with_multiples(places, 1)
            return trial._try(found, places) if trial else None
        # A multiple of the size has to be one in a tiny case too, or it would not show which elements are whose. That
        # it holds for another multiple shows that the first was no coincidence.
        double, triple = self._with_multiples(places, 2), self._with_multiples(places, 3)
        size = double._try(found, places) if double and triple else None
        count = max(1, _read(self._params, places[0]) // 2)
        return size if size and triple and triple._holds((*found, size), count) else None

    def _with_multiples(self, places: tuple[Place, ...], multiple: int) -> _Trial | None:
        """A trial in which all places but the first have that multiple of its value."""
        first = _read(self._params, places[0])
        params = resize(self._params, places[1:], lambda _: multiple * first)
        if params == self._params:
            return self
        if not rules_allow(self._operator, params) or _work(self._operator, params) > _TOO_MUCH_WORK:
            return None
        return self.make(self._operator, params)

    def _try(self, found: tuple[PartialSize, ...], places: tuple[Place, ...]) -> PartialSize | None:
        n = _read(self._params, places[0])
        for count in dict.fromkeys((n // 2, n - 1)):
            if count < 1:
                continue
            for axes in self._layouts(PartialSize(places, ()), count):
                size = PartialSize(places, axes)
                if any(isinstance(axis.tensor, int) for axis in axes):
                    if self._holds((*found, size), count):
                        return size
                elif not any(one.adds for one in found) and all(axis.layout != "whole" for axis in axes):
                    for adds in ("sum", "mean"):
                        if self._adds_up(size._replace(adds=adds), count):
                            return size._replace(adds=adds)
        return None

    def _layouts(self, size: PartialSize, count: int) -> list[tuple[AxisOfSize, ...]]:
        """The ways in which the axes of inputs and outputs may belong to a size, by how shapes change with it."""
        n, smaller = size.value(self._params), size.resize(self._params, count)
        if size.places[0][0] not in self._operator.sample and not rules_allow(self._operator, smaller):
            return []
        operator = self._operator
        specs, fewer = operator.inputs(self._params), operator.inputs(smaller)
        trial = self.make(operator, smaller)
        if trial is None or specs.keys() != fewer.keys() or len(trial._outputs[0]) != len(self._outputs[0]):
            return []
        outputs = trial._outputs[0]
        shapes: dict[Tensor, tuple[Sequence[int], Sequence[int]]] = {
            name: (spec.shape, fewer[name].shape) for name, spec in specs.items()
        }
        shapes |= dict(enumerate(zip(_shapes(self._outputs[0]), _shapes(outputs), strict=True)))
        choices: list[list[AxisOfSize]] = []
        for tensor, (full, less) in shapes.items():
            if len(full) != len(less):
                return []
            for axis, (long, short) in enumerate(zip(full, less, strict=True)):
                if long == short:
                    continue
                fits = long % n == 0 and long // n * count == short
                layouts: list[Layout] = [] if not fits else ["inner"] if long == n else ["inner", "outer"]
                layouts += ["whole"] if isinstance(tensor, str) else []
                if not layouts:
                    return []
                choices.append([AxisOfSize(tensor, axis, layout, long != n) for layout in layouts])
        if len(choices) > _MOST_CHOICES:  # many tensors, all alike
            return [tuple(options[min(i, len(options) - 1)] for options in choices) for i in range(2)]
        ways = sorted(product(*choices), key=lambda axes: sum(axis.layout == "whole" for axis in axes))
        return ways[:_MOST_LAYOUTS]

    def _holds(self, sizes: tuple[PartialSize, ...], count: int) -> bool:
        """Whether parts of the outputs are the outputs of parts; half of each size, and `count` of the last one."""
        sizes = tuple(size for size in sizes if not size.adds)
        for inputs, outputs in zip(self._drawn, self._outputs, strict=True):
            for part in self._parts(sizes, count):
                if not self._agrees(part, inputs, outputs):
                    return False
        return True

    def _parts(self, sizes: tuple[PartialSize, ...], count: int) -> Iterator[Part]:
        """The first positions, the last ones, and others at random; where all but one are taken, all but each in turn:
        the one that others depend on, as on the largest of them, may be any."""
        generator, last = np.random.default_rng(0), sizes[-1].value(self._params) if sizes else 0
        left_out = range(last) if count == last - 1 else ()
        for end in (slice(None), slice(None, None, -1), None, None, *left_out):
            chosen = []
            for size in sizes:
                n = size.value(self._params)
                order = np.arange(n)[end] if isinstance(end, slice) else generator.permutation(n)
                if isinstance(end, int) and size is sizes[-1]:
                    order = np.delete(np.arange(n), end)
                chosen.append(np.sort(order[: count if size is sizes[-1] else max(1, n // 2)]))
            yield Part(sizes, tuple(chosen))

    def _agrees(self, part: Part, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> bool:
        operator, params = self._operator, self._params
        try:
            taken = {name: take(a, part.positions(params, name, a.shape)) for name, a in inputs.items()}
            due = tuple(take(out, part.positions(params, i, out.shape)) for i, out in enumerate(outputs))
        except (ValueError, IndexError):
            return False
        smaller = part.params(operator, params)
        if not rules_allow(operator, smaller):
            return False
        found = _reference_or_none(operator, smaller, taken)
        if operator.observe and found is not None:
            try:
                given = {name: taken[name] for name in operator.observed_inputs(taken)}
                due = as_tuple(operator.observe(smaller, due if len(due) > 1 else due[0], **given))
            except NO_CASE:
                return False
            dtypes = {operator.result_dtype(params), *(spec.dtype for spec in operator.inputs(params).values())}
            return _close(due, found, max(_ROUNDING, *(operator.tolerance.bounds(one, params)[1] for one in dtypes)))
        return found is not None and _close(due, found, _ROUNDING)

    def is_linear(self, size: PartialSize) -> bool:
        operator, params, n = self._operator, self._params, size.value(self._params)
        plain = all(axis.layout != "whole" and not axis.repeated for axis in size.axes)
        once = size.resize(params, 1)
        if size.adds or operator.observe or not plain or not size.inputs or not rules_allow(operator, once):
            return False
        for seed, (inputs, outputs) in enumerate(zip(self._drawn, self._outputs, strict=True)):
            # Large weights show limits that sums of a few inputs would not reach.
            weights = np.random.default_rng(seed).choice((-1.0, 1.0), n) * 1000**seed
            given = {name: size.contract(name, array, weights) for name, array in inputs.items()}
            found = _reference_or_none(operator, once, given)
            due = [size.contract(i, out, weights) for i, out in enumerate(outputs)]
            if found is None or not _close(due, found, _ROUNDING):
                return False
        return True

    def _adds_up(self, size: PartialSize, count: int) -> bool:
        operator, params, n = self._operator, self._params, size.value(self._params)
        if operator.observe or operator.mutates:
            return False
        for inputs, outputs in zip(self._drawn, self._outputs, strict=True):
            order = np.random.default_rng(0).permutation(n)
            pieces = [Part((size,), (np.sort(chosen),)) for chosen in (order[:count], order[count:])]
            if any(out.dtype.kind != "f" for out in outputs):
                return False
            if not all(rules_allow(operator, piece.params(operator, params)) for piece in pieces):
                return False
            taken = [
                {name: take(array, piece.positions(params, name, array.shape)) for name, array in inputs.items()}
                for piece in pieces
            ]
            try:
                total = add_up(operator, params, zip(pieces, taken, strict=True))
            except NO_CASE:
                return False
            if not _close(outputs, total, _ROUNDING):
                return False
        return True


def _fits(operator: Operator, params: Params, size: PartialSize) -> bool:
    """Whether the inputs of a case have the axes that were found with a tiny one, and outputs that add up have the same
    number of elements for a part of it: the one window of a tiny convolution is many in a large one."""
    part = Part((size,), (np.arange(1),))
    if size.adds:
        half = size.resize(params, max(1, size.value(params) // 2))
        if operator.cost(half).bytes_written != operator.cost(params).bytes_written:
            return False
    try:
        for name, spec in operator.inputs(params).items():
            part.positions(params, name, spec.shape)
    except ValueError:
        return False
    return True


def add_up(operator: Operator, params: Params, pieces: Iterable[tuple[Part, Mapping[str, Any]]]) -> tuple[Any, ...]:
    """The outputs of a case from those of its pieces, given with their inputs."""
    total: list[Any] = []
    for piece, inputs in pieces:
        outputs = as_tuple(operator.reference(piece.params(operator, params), **inputs))
        weighted = [piece.weight(params) * np.asarray(out) for out in outputs]
        total = [a + b for a, b in zip(total, weighted, strict=True)] if total else weighted
    return tuple(total)


def _work(operator: Operator, params: Params) -> float:
    return max(count_elements(operator, params) / _TINY_ELEMENTS, (operator.cost(params).flops or 0) / _TINY_FLOPS)


def _groups(place: Place, full: Mapping[Place, int], used: set[Place]) -> Iterator[tuple[Place, ...]]:
    """Places that may be one size: this one, those of equal value, and this one with a multiple of it."""
    if place in used or full[place] < 2:
        return
    yield (place,)
    free = [other for other in full if other not in used and other != place]
    if alike := [other for other in free if full[other] == full[place]]:
        yield (place, *alike)
    for other in free:
        if full[other] > full[place] and full[other] % full[place] == 0:
            yield (place, other)


def _draw_inputs(operator: Operator, params: Params, seed: int) -> dict[str, Any]:
    specs = operator.inputs(params).items()
    return {name: widen(cast(draw_values(spec, seed + i), spec.dtype)) for i, (name, spec) in enumerate(specs)}


def compute_outputs(operator: Operator, params: Params, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Outputs as an implementation returns them: those of the reference, or of the NumPy implementation where the
    reference returns what is observed of them."""
    given = {name: np.array(array) for name, array in inputs.items()}
    if operator.observe is None:
        return as_tuple(operator.reference(params, **given))
    for implementation in operator.implementations_for("numpy"):
        specs = operator.inputs(params)
        own = {name: np.array(cast(array, specs[name].dtype)) for name, array in given.items()}
        return tuple(widen(out) for out in as_tuple(implementation.build(params, **own)()))
    raise ValueError(f"`{operator.name}` has no implementation in NumPy")


def _reference_or_none(operator: Operator, params: Params, inputs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    try:
        return tuple(map(np.asarray, as_tuple(operator.reference(params, **inputs))))
    except NO_CASE:
        return None


def _shapes(outputs: Sequence[Any]) -> list[tuple[int, ...]]:
    return [np.shape(out) for out in outputs]


def _close(some: Sequence[Any], others: Sequence[Any], relative: float) -> bool:
    if len(some) != len(others) or _shapes(some) != _shapes(others):
        return False
    with np.errstate(all="ignore"):
        return all(
            np.allclose(one, other, rtol=relative, atol=relative * float(np.abs(np.nan_to_num(other)).max(initial=0)),
                        equal_nan=True)
            for one, other in zip(some, others, strict=True)
        )  # fmt: skip
