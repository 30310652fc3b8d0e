"""Operator: an entry of the catalogue. It knows parameters, data, cost and the right answer, but no framework."""

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
"""What is timed: no arguments, everything prepared."""

Result = Literal["computed", "constant", "random"]
"""
computed  other data gives another result
constant  other data may give the same result (zeros_like, all_finite)
random    drawn anew by every call; `observe` says what of it can be compared
"""

SIZES = ("small", "typical", "large")

# The error that rounding explains, relative to the magnitude of a result, by element type. Integers are exact.
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

    Rounding errors of a sum of n terms grow like the square root of n; `terms` says how many terms that is. Frameworks
    add up with more digits than they store, so that the growth is slow.
    """

    terms: Callable[[Params], int] = lambda _: 1
    magnitude: Callable[[Params], float] = lambda _: 0.0
    """How large results are on the average, where that is known: one near zero is as far off as the others."""
    factor: float = 1.0
    """For operators whose formula loses digits (cancellation); 1 where it does not."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        """(relative, typical): an error passes within relative x |expected| + typical x the magnitude of results."""
        relative = self.factor * (_RELATIVE_ERROR[dtype] if is_float(dtype) else 0.0)
        return relative, relative * growth(self.terms(params))


def sum_of_products(terms: Callable[[Params], int]) -> Tolerance:
    """For sums of so many products of inputs between -1 and 1, whose mean square is 1/3."""
    return Tolerance(terms, magnitude=lambda p: terms(p) ** 0.5 / 3)


def growth(terms: float) -> float:
    """How much larger a rounding error is than that of a single operation, where so many terms are added up."""
    return float(max(1.0, terms**0.5 / 8))


@dataclass(frozen=True)
class Rule:
    """A condition over several parameters, named after the one to blame."""

    param: str
    says: str
    """Completes "parameter `k` must ..."; may use parameters in braces."""
    holds: Callable[[Params], bool]


@dataclass(frozen=True)
class Implementation:
    """One framework's way to compute an operator."""

    framework: str
    build: Callable[..., Any]
    """build(params, **inputs) prepares everything and returns the launch; for a framework that compiles, what its
    backend makes a launch of (interfaces.Function, a graph)."""
    name: str = ""
    path: str = ""
    """The framework's function behind it (`torch.softmax`), where it is one: this is how coverage is counted."""
    source: str = "opmark"
    """The distribution that brings it; the registry fills it in."""

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
    """reference(params, **inputs) with float64 (or integer) NumPy arrays: one array, or a tuple of them."""
    presets: Mapping[str, Mapping[str, Any]]
    implementations: tuple[Implementation, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)
    result_dtype: Callable[[Params], str] = lambda p: str(p["dtype"])
    """The element type whose precision the output has."""
    gradients: tuple[str, ...] = ()
    """Inputs that have a gradient; none: the operator has no backward phase. `x*` stands for every input x0, x1, ...;
    what a case has not (a bias that is switched off) is left out."""
    backward_cost: Callable[[Params], Cost] | None = None
    rules: tuple[Rule, ...] = ()
    observe: Callable[..., Any] | None = None
    """observe(params, outputs, **inputs): what of the outputs is compared, where not simply all of them."""
    direction: Callable[..., Any] | None = None
    """direction(params, name, generator, array): a change of an input along which the reference is smooth, for
    operators that are not smooth in every direction; by default each element goes its own way."""
    observe_gradients: Callable[..., Any] | None = None
    """observe_gradients(params, gradients, seeds, **inputs): pairs of (found, expected) arrays, for operators whose
    gradient depends on what was drawn (dropout), so that no reference can tell it."""
    result: Result = "computed"
    view: bool = False
    """The output is another look at the input: nothing is moved, so there is no bandwidth to state."""
    gradient_view: bool = False
    """The same of its gradients: each is the incoming one, or a view of it."""
    mutates: tuple[str, ...] = ()
    """Inputs that a launch changes in place; the reference returns their new values. Repeating it has to keep them
    finite, for a launch is timed many times."""
    partial: bool = False
    """A call touches only a part of its tensors, as a lookup does; `cost` then says which."""
    foreign: bool = False
    """A function of a framework and no entry of the catalogue: nobody has written a reference or a cost for it. The
    backend counts what one call of it costs."""
    ranks: bool = False
    """Several processes compute it together, as many as its parameter `ranks` says, in groups of `group` (0: all of
    them). Then `reference(params, rank, inputs)` gives the outputs due on a rank of a group, from the inputs of every
    rank of it (a list of dictionaries), and `build(params, peers, **inputs)` an interfaces.Exchange."""
    device_only: bool = False
    """Means nothing where the device is the host."""
    reference_by: str = "NumPy"
    """Who computes the reference; another framework's own float64 on the CPU where NumPy would be impractical."""
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
        """Checked values plus defaults, in the order of declaration."""
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
        """That a case takes at once; 0 where it is for one worker, as most are."""
        ranks = int(params["ranks"]) if "ranks" in self.by_name and self.by_name["ranks"].kind == "rank" else 1
        return ranks if self.ranks or ranks > 1 else 0

    def phase_cost(self, params: Params, phase: Phase, wrt: tuple[str, ...] = ()) -> Cost | None:
        """None where nobody has written the formula: an unknown cost is empty, not zero. That of a backward pass
        holds for all gradients, not for some (`wrt`)."""
        if self.foreign:
            return None
        if phase == "forward":
            return None if self.view else self.cost(params)
        backward = self.backward_cost(params) if self.backward_cost and not wrt else None
        if phase == "backward" or backward is None:
            return backward
        return backward if self.view else self.cost(params) + backward

    def gradients_of(self, params: Params) -> tuple[str, ...]:
        """The inputs of this case that have a gradient."""
        inputs = self.inputs(params)
        return tuple(found for name in self.gradients for found in inputs if fnmatchcase(found, name))

    def why_no_phase(self, params: Params, phase: Phase) -> str | None:
        """Why this phase does not exist, or None if it does."""
        if phase == "forward":
            return None
        if self.foreign:
            return None  # only the framework knows
        if not self.gradients:
            return f"`{self.name}` has no gradient"
        inputs = self.inputs(params)
        dtypes = {self.result_dtype(params), *(inputs[name].dtype for name in self.gradients_of(params))}
        exact = sorted(dtype for dtype in dtypes if not is_float(dtype))
        return f"`{self.name}` has no gradient through {', '.join(exact)}" if exact else None

    def implementations_for(self, framework: str) -> tuple[Implementation, ...]:
        """Those that stand beside it; what else is registered, the registry knows."""
        return tuple(i for i in self.implementations if i.framework == framework)
