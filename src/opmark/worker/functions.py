"""Calls a function of the user with the inputs and parameters of an operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from opmark.errors import UserError
from opmark.plugin import Function, Implementation, Params
from opmark.plugin.registry import load_function, resolve

_SYNONYMS = {"dim": "axis", "axis": "dim", "keepdim": "keepdims", "keepdims": "keepdim"}
"""Words that frameworks use for the same parameter."""
_COMPILED_FRAMEWORKS = frozenset({"jax", "tensorflow"})
"""Frameworks whose backends compile a pure function; the others call a launch as it is."""


class ArgumentMatch(NamedTuple):
    """How a function takes the inputs and parameters of an operator."""

    positional: tuple[tuple[str, Any], ...]
    """(input, None) or ("", value), in the order of the call."""
    keywords: Mapping[str, tuple[str, Any]]

    def apply(self, tensors: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call with these tensors."""
        return (
            [tensors[name] if name else value for name, value in self.positional],
            {key: tensors[name] if name else value for key, (name, value) in self.keywords.items()},
        )


def match_arguments(
    function: Callable[..., Any], inputs: Sequence[str], params: Params, convert_dtype: Callable[[str], Any] = str
) -> ArgumentMatch:
    """Match a function's own arguments with an operator: inputs by name, or else in their order; parameters by name.

    A parameter of the operator that the function does not name is not given to it. `dtype` becomes the framework's own.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # functions in C without a signature
        return ArgumentMatch(tuple((name, None) for name in inputs), {})
    named = {one.name for one in parameters}
    unnamed = [name for name in inputs if name not in named]
    positional: list[tuple[str, Any]] = []
    keywords: dict[str, tuple[str, Any]] = {}
    gap = False
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            positional += [(name, None) for name in unnamed]
            unnamed, gap = [], True
            continue
        if one.kind is one.VAR_KEYWORD:
            continue
        known = next((name for name in (one.name, _SYNONYMS.get(one.name, "")) if name in params), None)
        if one.name in inputs:
            given: tuple[str, Any] = (one.name, None)
        elif known is not None:
            given = ("", convert_dtype(params[known]) if known == "dtype" else params[known])
        elif unnamed and one.kind is not one.KEYWORD_ONLY:
            given = (unnamed.pop(0), None)
        elif one.default is not one.empty:
            gap = True
            continue
        else:
            raise _cannot_call(function, one.name, inputs, params)
        if gap or one.kind is one.KEYWORD_ONLY:
            keywords[one.name] = given
        else:
            positional.append(given)
    if unnamed:
        raise _cannot_call(function, "", inputs, params)
    return ArgumentMatch(tuple(positional), keywords)


def _cannot_call(function: Callable[..., Any], argument: str, inputs: Sequence[str], params: Params) -> UserError:
    what = f"needs `{argument}`" if argument else f"takes fewer than {len(inputs)} inputs"
    return UserError(
        f"`{getattr(function, '__name__', function)}` {what}, expected the inputs {', '.join(inputs)}",
        f"it may also take these parameters by name: {', '.join(params)}",
    )


def implementation_of(name: str, framework: str) -> Implementation:
    """Make an implementation from a function of the user. It is imported when the launch is built, in the worker."""

    def build(p: Params, **tensors: Any) -> Any:
        function = load_function(name)
        module = {"jax": "jax.numpy"}.get(framework, framework)
        match = match_arguments(function, list(tensors), p, lambda dtype: resolve(f"{module}.{dtype}"))

        def call(*values: Any) -> Any:
            args, kwargs = match.apply(dict(zip(tensors, values, strict=True)))
            return function(*args, **kwargs)

        if framework in _COMPILED_FRAMEWORKS:
            return Function(call, tuple(tensors.values()))
        args, kwargs = match.apply(tensors)
        return partial(function, *args, **kwargs)

    return Implementation(framework, build, name)
