"""Functions of JAX as compiled programs: each is compiled once, before anything is timed, and says what is in it."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from operator import methodcaller
from typing import Any

import jax

from opmark.errors import Unsupported
from opmark.interfaces import Function, Held
from opmark.schema import Compilation

# One task needs few programs at a time; those of earlier tasks only take memory.
_KEPT = 64
# Instructions of an optimised program that do no work.
_NO_WORK = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
_INSTRUCTION = re.compile(
    r'^\s*(?:ROOT )?%(?P<name>[\w.\-]+) = .*?[\]})] (?P<what>[\w\-]+)\((?:.*custom_call_target="(?P<target>[^"]+)")?',
    re.MULTILINE,
)
# Calls of functions within functions: what they hold is looked at, and not they themselves.
_WRAPPERS = frozenset({"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat"})


class Programs:
    """Compiled programs, by the text that they were compiled from: the same text is the same program."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Any, Compilation]] = OrderedDict()

    def compiled(self, function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Compilation]:
        """(what runs it, what that took when it was compiled). Inputs that it does not use stay inputs, so that the
        text shows them all."""
        start = time.perf_counter()
        traced, lowered = _lowered(function, given)
        key = sha256(f"{lowered.as_text()}\n{lowered.out_tree}".encode()).hexdigest()
        if key not in self._kept:
            run = lowered.compile()
            cold = time.perf_counter() - start
            start = time.perf_counter()
            _lowered(function, given)[1].compile()  # out of what JAX has kept
            self._kept[key] = run, _compilation(cold, time.perf_counter() - start, traced, run)
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


def _lowered(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Any]:
    traced = jax.jit(function, keep_unused=True).trace(*given)
    return traced, traced.lower()


class Program:
    """A launch of what was compiled: it takes the values anew at every call, and returns when they are computed."""

    def __init__(
        self, run: Any, places: tuple[Held, ...], finish: Callable[[Any], Any], compilation: Compilation,
        function: Function,
    ) -> None:  # fmt: skip
        self._run = run
        self._finish = finish
        self.places = places
        self.compilation = compilation
        self.function = function
        """The function that it was made of."""

    def __call__(self) -> Any:
        return self._finish(self._run(*[place.value for place in self.places]))


def waiting(run: Any) -> Callable[[Any], Any]:
    """A function that waits for the outputs of a program and returns them; a single one without a walk through a
    tree."""
    single = jax.tree_util.treedef_is_leaf(run.out_tree)
    wait: Callable[[Any], Any] = methodcaller("block_until_ready") if single else jax.block_until_ready
    return wait


def carrying(state: Sequence[Held]) -> Callable[[Any], Any]:
    """A function that waits for (result, next state), keeps the state and returns the result."""

    wait: Callable[[Any], Any] = jax.block_until_ready

    def finish(found: Any) -> Any:
        result, following = wait(found)
        for place, value in zip(state, following, strict=True):
            place.value = value
        return result

    return finish


def values(places: Sequence[Held]) -> list[Any]:
    return [place.value for place in places]


def parted(function: Function, found: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(outputs, next state) of what a function has returned."""
    result, state = found if function.state else (found, ())
    return tuple(result) if isinstance(result, list | tuple) else (result,), tuple(state)


def differentiable(value: Any) -> bool:
    return bool(jax.numpy.issubdtype(value.dtype, jax.numpy.inexact))


def pulled(function: Function, wanted: Sequence[Held]) -> Callable[..., Any]:
    """A function of the same values that returns (outputs with a gradient, pullback to what is wanted, the rest)."""
    places = [*function.arguments]
    if any(sum(place is one for place in places) != 1 for one in wanted):
        raise Unsupported("the function does not take each input whose gradient is wanted exactly once")
    positions = [next(i for i, place in enumerate(places) if place is one) for one in wanted]

    def call(*given: Any) -> Any:
        def of_wanted(*changed: Any) -> Any:
            arguments = list(given)
            for position, value in zip(positions, changed, strict=True):
                arguments[position] = value
            outputs, state = parted(function, function.call(*arguments))
            others = tuple(out for out in outputs if not differentiable(out))
            return tuple(out for out in outputs if differentiable(out)), (others, state)

        return jax.vjp(of_wanted, *(given[position] for position in positions), has_aux=True)

    return call


def _compilation(cold: float, cached: float, traced: Any, run: Any) -> Compilation:
    operators = tuple(dict.fromkeys(_primitives(traced.jaxpr.jaxpr)))
    if callbacks := [name for name in operators if "callback" in name]:
        raise Unsupported(f"JAX leaves a part of this to Python ({callbacks[0]}): it would not be XLA that is timed")
    kernels = _kernels(run.as_text())
    return Compilation(cold, cached, graphs=1, operators=operators, kernels=kernels, cache="in-memory")


def _primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        if equation.primitive.name not in _WRAPPERS:
            yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _primitives(inner)


def _kernels(text: str | None) -> tuple[str, ...]:
    """The instructions of the optimised program that do something; first `constant` where no input has a part in it."""
    if not text or "ENTRY" not in text:
        return ()
    entry = text[text.index("ENTRY") :]
    found = [*_INSTRUCTION.finditer(entry)]
    working = [one["target"] or one["name"] for one in found if one["what"] not in _NO_WORK]
    names = [re.escape(one["name"]) for one in found if one["what"] == "parameter"]
    used = any(len(re.findall(rf"%{name}(?![\w.\-])", entry)) > 1 for name in names)
    return (*(() if used else ("constant",)), *dict.fromkeys(working))
