"""Operator: an entry of the catalogue. It knows parameters, inputs, cost and reference, but no framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from inspect import Parameter, signature
from math import log
from typing import Any, Literal, Protocol

from opmark.errors import InvalidParameter, UnknownName, nearest
from opmark.plugin.param import REQUIRED, Param, Params
from opmark.plugin.space import Space
from opmark.schema.case import Phase
from opmark.schema.cost import Cost
from opmark.schema.tensor import DTYPES, FLOATS8, TensorSpec, is_float, sizeof, storage

Launch = Callable[[], Any]
"""The callable that is timed: it takes no arguments, everything is prepared."""

Result = Literal["computed", "constant", "random"]
"""
computed  other data gives another result
constant  other data may give the same result (zeros_like, all_finite)
random    every call draws new values; `observe` returns what can be compared
"""

SIZES = ("small", "typical", "large")

# Error that rounding explains, relative to the magnitude of a result, by element type. Integers are exact.
_RELATIVE_ERROR = {
    "float64": 1e-12,
    "float32": 1e-5,
    "tfloat32": 2e-3,  # a fraction of 10 bits, as float16 has
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
    "float8_e4m3fn": 1.3e-1,
    "float8_e5m2": 2.5e-1,
}


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from the float64 reference.

    Rounding errors of a sum of n terms grow like the square root of n; `terms` returns n. Frameworks accumulate with
    more digits than they store, so the growth is slow.
    """

    terms: Callable[[Params], int] = lambda _: 1
    magnitude: Callable[[Params], float] = lambda _: 0.0
    """Average magnitude of the results, if known: a result near zero has the same absolute error as the others."""
    factor: float = 1.0
    """Above 1 for operators whose formula loses digits by cancellation; 0 for those that only move values."""
    gradient_factor: float = 1.0
    """Above 1 for operators whose gradient loses more digits than their result."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        """Return (relative, typical): an error may be at most relative x |expected| + typical x magnitude of
        results."""
        relative = self.factor * _RELATIVE_ERROR.get(dtype, 0.0)  # integers have no error
        return relative, relative * growth(self.terms(params))

    def output_bounds(self, dtype: str, params: Params) -> tuple[float, ...] | None:
        """Return the typical bound of each output, where outputs differ in it; None where all have that of `bounds`."""
        return None

    def why_blind(self, dtype: str, params: Params) -> str:
        """Return why a comparison in this element type cannot tell right from wrong; empty where it can."""
        return ""

    def gradient_bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        """Return (relative, factor) for gradients: the rounding of one element, and how many times more is allowed."""
        rounding = _RELATIVE_ERROR[dtype]
        return rounding, max(1.0, self.bounds(dtype, params)[0] / rounding) * self.gradient_factor


@dataclass(frozen=True)
class CoarserTolerance(Tolerance):
    """The tolerance of an operator on a backend that computes in a coarser type than the case asks for, and says so."""

    inner: Tolerance = field(default_factory=Tolerance)
    dtype: str = "float32"

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        return self.inner.bounds(self._coarser(dtype), params)

    def output_bounds(self, dtype: str, params: Params) -> tuple[float, ...] | None:
        return self.inner.output_bounds(self._coarser(dtype), params)

    def why_blind(self, dtype: str, params: Params) -> str:
        return self.inner.why_blind(self._coarser(dtype), params)

    def _coarser(self, dtype: str) -> str:
        return self.dtype if is_float(dtype) and sizeof(dtype) > sizeof(self.dtype) else dtype


def sum_of_products(terms: Callable[[Params], int]) -> Tolerance:
    """Tolerance for sums of `terms` products of inputs between -1 and 1, whose mean square is 1/3."""
    return Tolerance(terms, magnitude=lambda p: terms(p) ** 0.5 / 3)


def growth(terms: float) -> float:
    """Return the rounding error of a sum of so many terms, relative to that of a single operation."""
    return float(max(1.0, terms**0.5 / 8))


@dataclass(frozen=True)
class ParamRule:
    """A condition over several parameters; `param` is the one that error messages name."""

    param: str
    says: str
    """Completes "parameter `k` must ..."; may use parameters in braces."""
    holds: Callable[[Params], bool]


@dataclass(frozen=True)
class Implementation:
    """One framework's way to compute an operator."""

    framework: str
    build: Callable[..., Any]
    """build(params, **inputs) prepares everything and returns the launch; for a framework that compiles, it returns
    what the backend compiles into a launch (plugin.Function, a graph)."""
    name: str = ""
    path: str = ""
    """The framework's function behind it (`torch.softmax`), if it is a single one; coverage counts these."""
    source: str = "opmark"
    """The distribution that provides it; the registry fills this in."""
    space: Callable[[Params], Space] | None = None
    """The knobs of this implementation for a case; `build` then takes a `configuration`, a value for every knob.
    Without tuning it gets the defaults."""
    takes: tuple[str, ...] = ()
    """Parts of a configuration that are no knobs, because nobody could list their values, as a schedule. `build` takes
    them as `configuration` too, as they are, and without those that the task does not have."""
    on_request: bool = False
    """It runs only where it is named (`--impl`) or tuned. A run without names takes the other implementations."""

    @property
    def label(self) -> str:
        return self.name or self.framework


@dataclass(frozen=True)
class Operator:
    name: str
    summary: str
    category: str
    params: tuple[Param, ...]
    inputs: Callable[[Params], dict[str, TensorSpec]]
    cost: Callable[[Params], Cost]
    reference: Callable[..., Any]
    """reference(params, **inputs) takes float64 (or integer) NumPy arrays and returns one array, or a tuple of them."""
    presets: Mapping[str, Mapping[str, Any]]
    implementations: tuple[Implementation, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)
    result_dtype: Callable[[Params], str] = lambda p: storage(str(p["dtype"]))
    """The element type of the first output, whose precision it has."""
    further_dtypes: Callable[[Params], tuple[str, ...]] = lambda _: ()
    """Element types of the outputs after the first, if they are not that of the first one; the last stands for all that
    follow. An int64 is a place of an element, for which some backends use another type (Backend.index_dtypes)."""
    gradients: tuple[str, ...] = ()
    """Inputs that have a gradient; if empty, there is no backward phase. `x*` stands for every input x0, x1, ...;
    inputs that a case does not have (a bias that is switched off) are left out."""
    backward_cost: Callable[[Params], Cost] | None = None
    rules: tuple[ParamRule, ...] = ()
    observe: Callable[..., Any] | None = None
    """observe(params, outputs, **inputs) returns what is compared, if that is not simply all outputs. It is given the
    inputs that it names; large ones that it does not need should not be copied for it."""
    draws: Callable[..., Any] | None = None
    """draws(params, outputs, **inputs) returns what a call of a random operator drew: numbers between 0 and 1, whose
    expected value is the same everywhere. They must be independent of each other and of those of the next call."""
    direction: Callable[..., Any] | None = None
    """direction(params, name, generator, array) returns a change of an input along which the reference is smooth, for
    operators that are not smooth in every direction; by default every element changes independently by -1 or 1. Where
    all elements of a direction are -1, 0 or 1, each of them may have either sign."""
    smooth: Callable[..., Any] | None = None
    """smooth(params, **inputs) returns which elements of the first output lie so far from a kink (that of a relu behind
    a product) that neither a small change of the inputs nor rounding gets there. Only through these are gradients
    checked."""
    observe_gradients: Callable[..., Any] | None = None
    """observe_gradients(params, gradients, seeds, **inputs) returns pairs of (found, expected) arrays, for operators
    whose gradient depends on random values (dropout), so that a reference cannot compute it."""
    result: Result = "computed"
    view: bool = False
    """The output is a view of the input: no data moves, so there is no bandwidth."""
    gradient_view: bool = False
    """Gradients, or some of them, are the incoming gradient or views of it. `backward_cost` counts only the others."""
    trivial: Callable[[Params], bool] = lambda _: False
    """Whether a case leaves nothing to compute, so that an implementation may return its input, or the incoming
    gradient (a dropout that drops nothing)."""
    mutates: tuple[str, ...] = ()
    """Inputs that a launch changes in place; the reference returns their new values. Repeating it has to keep them
    finite, because a launch is timed many times."""
    partial: bool = False
    """A call touches only a part of its tensors, as a lookup does; `cost` counts that part."""
    foreign: bool = False
    """A function of a framework and not an entry of the catalogue: it has no reference and no cost formula. The backend
    counts the cost of one call."""
    recorded: bool = False
    """A program that is replayed as it was recorded: nothing compiles or differentiates it."""
    sample: tuple[str, ...] = ()
    """A large case is verified by a part of it. Along which sizes it can be cut is found with the reference. This names
    sizes where that fails because outputs depend on their positions, as the queries of a causal attention do: then the
    inputs are cut to some positions, `NAME_at` is an array of these, and reference and observe take it from `params`,
    where the size itself is still that of the whole case."""
    row_axes: Callable[[Params], Mapping[str | int, int]] | None = None
    """For an operator whose rows are independent by definition, as the samples in the batch of a model: the axis of
    `batch` by the name of the input or the number of the output. A large batch is verified by some of its rows; a case
    without such axes is verified as a whole."""
    held: Callable[[Params], int] = lambda _: 0
    """Bytes that a case holds besides inputs and outputs: the weights of a model."""
    output_names: Callable[[Params], tuple[str, ...]] = lambda _: ()
    """Names of the outputs, where they have any."""
    items: Callable[[Params], tuple[int, str]] | None = None
    """(number, noun): what one call processes, as in (8, "samples"), so that tables show a rate."""
    token_cache: Callable[[Params], int] = lambda _: 0
    """Bytes of keys and values that a language model keeps for its next token."""
    ranks: bool = False
    """Several processes compute it together, as many as its parameter `ranks` says, in groups of `group` (0: all of
    them). Then `reference(params, rank, inputs)` returns the outputs of one rank of a group, from the inputs of all
    its ranks (a list of dictionaries), and `build(params, peers, **inputs)` returns a plugin.Exchange."""
    device_only: bool = False
    """The operator makes no sense if the device is the host."""
    reference_by: str = "NumPy"
    """The library that computes the reference; where NumPy is impractical, another framework in float64 on the CPU."""
    aliases: tuple[str, ...] = ()
    program: str = ""
    """A file of the user that workers execute: a workload file may name it only if it lies beside it or is allowed."""

    @property
    def why_unverified(self) -> str:
        """Why a foreign operator has nothing to compare its results with."""
        if self.recorded:
            return "a recorded program has no reference; only shapes and types of its results were recorded"
        return "a callable has no reference in the catalogue"

    @cached_property
    def by_name(self) -> dict[str, Param]:
        return {param.name: param for param in self.params}

    def observed_inputs(self, names: Iterable[str]) -> list[str]:
        """Return which of these inputs `observe` takes."""
        assert self.observe is not None
        taken = signature(self.observe).parameters
        takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in taken.values())
        return [name for name in names if takes_all or name in taken]

    def param(self, name: str) -> Param:
        known = self.by_name
        if name not in known:
            near = nearest(name, known)
            raise InvalidParameter(
                f"operator `{self.name}` has no parameter `{name}`",
                f"did you mean `{near}`?" if near else f"it has {', '.join(known)}",
            )
        return known[name]

    def preset(self, size: str) -> Mapping[str, Any]:
        if size not in self.presets:
            raise UnknownName(f"size of `{self.name}`", size, self.presets)
        return self.presets[size]

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given values plus defaults, in the order of declaration; InvalidParameter if one is missing."""
        found = {param.name: given.get(param.name, param.default) for param in self.params}
        missing = [name for name, value in found.items() if value is REQUIRED]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise InvalidParameter(
                f"operator `{self.name}` needs {names}",
                f"give {' '.join(f'-p {name}=...' for name in missing)}, or a size such as `typical` "
                f"that supplies what is not given",
            )
        later = [param.name for param in self.params if param.later and found[param.name] == param.default]
        return {name: value for name, value in found.items() if name not in later} if later else found

    def check_rules(self, params: Params) -> None:
        for rule in self.rules:
            if not rule.holds(params):
                raise InvalidParameter(
                    f"operator `{self.name}`: parameter `{rule.param}` must {rule.says.format(**params)}",
                    f"`opmark describe {self.name}` lists its rules",
                )

    def processes(self, params: Params) -> int:
        """Return the number of ranks that a case needs; 0 for an ordinary case in one worker."""
        ranks = int(params["ranks"]) if "ranks" in self.by_name and self.by_name["ranks"].kind == "rank" else 1
        return ranks if self.ranks or ranks > 1 else 0

    def phase_cost(self, params: Params, phase: Phase, wrt: tuple[str, ...] = ()) -> Cost | None:
        """Return the cost of a phase; None if there is no formula for it. The formula of a backward pass covers all
        gradients, so the cost of some of them (`wrt`) is unknown."""
        if self.foreign:
            return None
        if phase == "forward":
            return None if self.view else self.cost(params)
        backward = self.backward_cost(params) if self.backward_cost and not wrt else None
        if phase == "backward" or backward is None:
            return backward
        return backward if self.view else self.cost(params) + backward

    def gradients_of(self, params: Params) -> tuple[str, ...]:
        """Return the inputs of this case that have a gradient."""
        inputs = self.inputs(params)
        return tuple(found for name in self.gradients for found in inputs if fnmatchcase(found, name))

    def why_no_phase(self, params: Params, phase: Phase) -> str | None:
        """Return why this phase does not exist, or None if it does."""
        if phase == "forward":
            return None
        if self.recorded:
            return f"`{self.name}` is replayed as it was recorded, with its backward pass if it has one"
        if self.foreign:
            return None  # only the framework knows whether there is a gradient
        if not self.gradients:
            return f"`{self.name}` has no gradient"
        inputs = self.inputs(params)
        dtypes = {self.result_dtype(params), *(inputs[name].dtype for name in self.gradients_of(params))}
        exact = sorted(dtype for dtype in dtypes if not is_float(dtype) or dtype in FLOATS8)
        return f"`{self.name}` has no gradient through {', '.join(exact)}" if exact else None

    def implementations_for(self, framework: str) -> tuple[Implementation, ...]:
        """Return the implementations in the operator's own file; the registry knows the other ones."""
        return tuple(i for i in self.implementations if i.framework == framework)


# Operators that are made from names.


class Family(Protocol):
    """Operators that are not listed but made from their names, such as any function of a framework.

    Entry-point group `opmark.families`.
    """

    last: bool
    """Whether it accepts almost any name, so that it is tried after all other families."""

    def operator(self, name: str) -> Operator | None:
        """Return the operator of that name; None if the name is not of this family. No framework is imported."""

    def names(self, pattern: str) -> Sequence[str] | None:
        """Return the names that match a pattern with `*` or `?`; None if the pattern is not for this family."""


# Resize a case: double or halve the sizes of its operator as far as the operator's rules allow.

Place = tuple[str, int | None]
"""A parameter, and the index within it if it is a shape."""

_MOST_FLOPS = 2 * 10**12
_STEPS = 64
# Doubling a size is worthwhile if the data grows at least this much; a kernel size or a stride makes it grow less.
_LEAST_GROWTH = 1.4


def count_elements(operator: Operator, params: Params) -> int:
    """Return the number of elements of all inputs and outputs."""
    outputs = operator.cost(params).bytes_written // DTYPES[operator.result_dtype(params)].size
    return outputs + sum(spec.elements for spec in operator.inputs(params).values())


def size_places(operator: Operator, params: Params) -> dict[Place, int]:
    """Return the value of every parameter, or part of one, that is a size."""
    found: dict[Place, int] = {}
    for param in operator.params:
        value = params.get(param.name, param.default)
        if param.kind in ("size", "bytes") or (param.kind == "count" and value > 1):
            found[param.name, None] = value
        elif param.kind in ("shape", "counts"):
            found |= {(param.name, i): n for i, n in enumerate(value)}
    return found


def resize(params: Params, at: Sequence[Place], by: Callable[[int], int]) -> dict[str, Any]:
    changed = dict(params)
    for name, index in at:
        value = changed[name]
        changed[name] = by(value) if index is None else [by(n) if i == index else n for i, n in enumerate(value)]
    return changed


def rules_allow(operator: Operator, params: Params) -> bool:
    try:
        operator.check_rules(params)
    except InvalidParameter:
        return False
    return True


def shrink(operator: Operator, params: Params, too_large: Callable[[Params], bool], least: int = 1) -> dict[str, Any]:
    """Return parameters of a smaller case: the largest size is halved again and again while the case is too large, but
    none to below `least`.

    Rules of the operator hold at every step. Where they do not let a size go alone, all sizes of the same value go
    together (queries and keys of a causal attention, channels and groups of a depthwise convolution), or it stays. So
    does what makes the work no less (a stride). Where nothing goes any more, everything goes at once.
    """
    scaled, fixed = dict(params), set[Place]()
    while too_large(scaled):
        every = {place: n for place, n in size_places(operator, scaled).items() if n >= 2 * least}
        sizes = {place: n for place, n in every.items() if place not in fixed}
        if not sizes:
            smaller = resize(scaled, list(every), lambda n: n // 2)
            if not every or not rules_allow(operator, smaller) or _work(operator, smaller) >= _work(operator, scaled):
                return scaled
            scaled = smaller
            fixed.clear()
            continue
        largest = max(sizes, key=lambda place: sizes[place])
        alike = [place for place, n in sizes.items() if n == sizes[largest]]
        for at in ([largest], alike):
            smaller = resize(scaled, at, lambda n: n // 2)
            if rules_allow(operator, smaller) and _work(operator, smaller) < _work(operator, scaled):
                scaled = smaller
                break
        else:
            fixed.add(largest)
    return scaled


def _work(operator: Operator, params: Params) -> float:
    """Return a number that grows with operations and with elements, about as fast as the time they take."""
    return (operator.cost(params).flops or 0) / 128 + count_elements(operator, params)


def resize_to_elements(operator: Operator, params: Params, target: int) -> dict[str, Any] | None:
    """Return parameters with about `target` elements in and out, or None if the operator has no such size."""
    found = dict(params)
    if not count_elements(operator, found):  # a barrier has no size
        return None
    for _ in range(_STEPS):
        ratio = target / count_elements(operator, found)
        if 2**-0.5 <= ratio <= 2**0.5:
            break
        step = _double(operator, found) if ratio > 1 else _halve(operator, found)
        # A step may change two sizes at once and overshoot: stop if it leads further away.
        if step is None or abs(log(ratio)) < abs(log(target / count_elements(operator, step))):
            break
        found = step
    reached = 0.25 <= target / count_elements(operator, found) <= 4
    return found if reached and (operator.cost(found).flops or 0) <= _MOST_FLOPS else None


def _double(operator: Operator, params: Params) -> dict[str, Any] | None:
    """Double the smallest size that makes enough difference, so that shapes stay balanced."""
    before = count_elements(operator, params)
    for at in _by_value(operator, params, largest=False):
        larger = resize(params, at, lambda n: 2 * n)
        if rules_allow(operator, larger) and count_elements(operator, larger) >= _LEAST_GROWTH * before:
            return larger
    return None


def _halve(operator: Operator, params: Params) -> dict[str, Any] | None:
    """Halve the largest size that makes enough difference."""
    before = count_elements(operator, params)
    for at in _by_value(operator, params, largest=True):
        smaller = resize(params, at, lambda n: max(1, n // 2))
        if rules_allow(operator, smaller) and count_elements(operator, smaller) * _LEAST_GROWTH <= before:
            return smaller
    return None


def _by_value(operator: Operator, params: Params, *, largest: bool) -> list[list[Place]]:
    """Return each size alone, then equal sizes together: some rules allow only to change them together."""
    found = size_places(operator, params)
    alone = [[place] for place in sorted(found, key=lambda place: found[place], reverse=largest)]
    return alone + [[p for p in found if found[p] == n] for n in sorted(set(found.values()), reverse=largest)]
