"""Make implementations from one function of a framework, or from several of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opmark.plugin import Function, Implementation, Params
from opmark.plugin.registry import resolve


def calls(path: str, *inputs: str, fixed: Mapping[str, Any] | None = None, **params: str) -> Implementation:
    """Make an implementation that calls the function at `path` with these inputs and keywords from parameters.

    `calls("jax.nn.softmax", "x", axis="axis")` computes `jax.nn.softmax(x, axis=p["axis"])`; `fixed` holds
    keywords with constant values. The framework is the first word of the path.
    """
    always = dict(fixed or {})

    def build(p: Params, **tensors: Any) -> Function:
        function, keywords = resolve(path), {keyword: p[name] for keyword, name in params.items()}

        def call(*values: Any) -> Any:
            return function(*values, **keywords, **always)

        return Function(call, tuple(tensors[name] for name in inputs))

    return Implementation(path.partition(".")[0], build, path=path)


def computes(framework: str, function: Callable[..., Any], path: str = "", name: str = "") -> Implementation:
    """Make an implementation from function(p, **inputs), which takes the framework's tensors by the operator's
    names."""

    def build(p: Params, **tensors: Any) -> Function:
        names = tuple(tensors)

        def call(*values: Any) -> Any:
            return function(p, **dict(zip(names, values, strict=True)))

        return Function(call, tuple(tensors.values()))

    return Implementation(framework, build, name, path)
