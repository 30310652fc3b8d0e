"""Operator: an entry of the catalogue. It knows parameters, inputs, cost and reference, but no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

from opmark.errors import InvalidParameter, UnknownName, nearest
from opmark.schema.cost import Cost
from opmark.schema.dtype import is_float
from opmark.schema.param import Param, Params
from opmark.schema.tensor import TensorSpec

Phase = Literal["forward", "backward", "both"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "both")
"""`both`: forward and backward in one step, as in training."""

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
    """Above 1 for operators whose formula loses digits by cancellation."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        """Return (relative, typical): an error may be at most relative x |expected| + typical x magnitude of
        results."""
        relative = self.factor * (_RELATIVE_ERROR[dtype] if is_float(dtype) else 0.0)
        return relative, relative * growth(self.terms(params))


def sum_of_products(terms: Callable[[Params], int]) -> Tolerance:
    """Tolerance for sums of `terms` products of inputs between -1 and 1, whose mean square is 1/3."""
    return Tolerance(terms, magnitude=lambda p: terms(p) ** 0.5 / 3)


def growth(terms: float) -> float:
    """Return the rounding error of a sum of so many terms, relative to that of a single operation."""
    return float(max(1.0, terms**0.5 / 8))


@dataclass(frozen=True)
class Rule:
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
    what the backend compiles into a launch (interfaces.Function, a graph)."""
    name: str = ""
    path: str = ""
    """The framework's function behind it (`torch.softmax`), if it is a single one; coverage counts these."""
    source: str = "opmark"
    """The distribution that provides it; the registry fills this in."""

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
    result_dtype: Callable[[Params], str] = lambda p: str(p["dtype"])
    """The element type whose precision the output has."""
    gradients: tuple[str, ...] = ()
    """Inputs that have a gradient; if empty, there is no backward phase. `x*` stands for every input x0, x1, ...;
    inputs that a case does not have (a bias that is switched off) are left out."""
    backward_cost: Callable[[Params], Cost] | None = None
    rules: tuple[Rule, ...] = ()
    observe: Callable[..., Any] | None = None
    """observe(params, outputs, **inputs) returns what is compared, if that is not simply all outputs."""
    direction: Callable[..., Any] | None = None
    """direction(params, name, generator, array) returns a change of an input along which the reference is smooth, for
    operators that are not smooth in every direction; by default every element changes independently."""
    observe_gradients: Callable[..., Any] | None = None
    """observe_gradients(params, gradients, seeds, **inputs) returns pairs of (found, expected) arrays, for operators
    whose gradient depends on random values (dropout), so that a reference cannot compute it."""
    result: Result = "computed"
    view: bool = False
    """The output is a view of the input: no data moves, so there is no bandwidth."""
    gradient_view: bool = False
    """Each gradient is the incoming gradient, or a view of it."""
    mutates: tuple[str, ...] = ()
    """Inputs that a launch changes in place; the reference returns their new values. Repeating it has to keep them
    finite, because a launch is timed many times."""
    partial: bool = False
    """A call touches only a part of its tensors, as a lookup does; `cost` counts that part."""
    foreign: bool = False
    """A function of a framework and not an entry of the catalogue: it has no reference and no cost formula. The backend
    counts the cost of one call."""
    ranks: bool = False
    """Several processes compute it together, as many as its parameter `ranks` says, in groups of `group` (0: all of
    them). Then `reference(params, rank, inputs)` returns the outputs of one rank of a group, from the inputs of all
    its ranks (a list of dictionaries), and `build(params, peers, **inputs)` returns an interfaces.Exchange."""
    device_only: bool = False
    """The operator makes no sense if the device is the host."""
    reference_by: str = "NumPy"
    """The library that computes the reference; where NumPy is impractical, another framework in float64 on the CPU."""
    aliases: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Param]:
        return {param.name: param for param in self.params}

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
        missing = [name for name in self._required if name not in given]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise InvalidParameter(
                f"operator `{self.name}` needs {names}",
                f"give {' '.join(f'-p {name}=...' for name in missing)}, or a size such as `typical` "
                f"that supplies what is not given",
            )
        return {name: given.get(name, default) for name, default in self._defaults}

    @cached_property
    def _required(self) -> tuple[str, ...]:
        return tuple(param.name for param in self.params if param.required)

    @cached_property
    def _defaults(self) -> tuple[tuple[str, Any], ...]:
        return tuple((param.name, param.default) for param in self.params)

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
        if self.foreign:
            return None  # only the framework knows whether there is a gradient
        if not self.gradients:
            return f"`{self.name}` has no gradient"
        inputs = self.inputs(params)
        dtypes = {self.result_dtype(params), *(inputs[name].dtype for name in self.gradients_of(params))}
        exact = sorted(dtype for dtype in dtypes if not is_float(dtype))
        return f"`{self.name}` has no gradient through {', '.join(exact)}" if exact else None

    def implementations_for(self, framework: str) -> tuple[Implementation, ...]:
        """Return the implementations in the operator's own file; the registry knows the other ones."""
        return tuple(i for i in self.implementations if i.framework == framework)
