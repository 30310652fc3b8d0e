"""Make implementations for MXNet from a function of `mxnet.nd` or `mxnet.np`, or from several of them.

Both work on the same memory. `mxnet.np` is used where the older interface lacks something: truth values, results
without axes, integers that stay integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.plugin import Function, Implementation, Params
from opmark.plugin.registry import resolve


def nd(name: str, *inputs: str, fixed: Mapping[str, Any] | None = None, **params: str) -> Implementation:
    """Make an implementation that calls `mxnet.nd.NAME` with these inputs and keywords from parameters."""
    return calls(f"mxnet.nd.{name}", *inputs, fixed=fixed, **params)


def np(name: str, *inputs: str, fixed: Mapping[str, Any] | None = None, **params: str) -> Implementation:
    """Make an implementation that calls `mxnet.np.NAME` with these inputs and keywords from parameters."""
    made, path = calls(f"mxnet.np.{name}", *inputs, fixed=fixed, **params), f"mxnet.np.{name}"

    def build(p: Params, **tensors: Any) -> Function:
        built: Function = made.build(p, **{key: face(tensor) for key, tensor in tensors.items()})
        return built

    return Implementation("mxnet", build, path=path)


def row(function: Callable[..., Any], path: str = "", *, faces: bool = False) -> Implementation:
    """Make an implementation from `function(mxnet, p, **inputs)`. With `faces`, inputs are arrays of `mxnet.np`."""

    def build(p: Params, **tensors: Any) -> Function:
        mxnet, names = resolve("mxnet"), tuple(tensors)

        def call(*values: Any) -> Any:
            return function(mxnet, p, **dict(zip(names, values, strict=True)))

        return Function(call, tuple(map(face, tensors.values()) if faces else tensors.values()))

    return Implementation("mxnet", build, path=path)


def np_row(function: Callable[..., Any], path: str = "") -> Implementation:
    """Make an implementation from `function(mxnet, p, **inputs)`, which takes arrays of `mxnet.np`."""
    return row(function, path, faces=True)


def refuse_float64(made: Implementation, what: str = "its parameters") -> Implementation:
    """Refuse float64, for which MXNet keeps something in float32, so that half of the digits would be wrong."""

    def build(p: Params, **tensors: Any) -> Any:
        if p["dtype"] == "float64":
            raise Unsupported(f"MXNet keeps {what} in float32")
        return made.build(p, **tensors)

    return replace(made, build=build)


def face(tensor: Any) -> Any:
    """Return the array of `mxnet.np` over the memory of a tensor; the backend differentiates with respect to it."""
    other = tensor.as_np_ndarray()
    other.face_of = tensor
    return other


def to_integers(value: Any) -> Any:
    """Convert indices to integers: `mxnet.nd` returns them as floats."""
    return value.astype("int64")


def write_call(function: Callable[..., Any], path: str = "") -> Implementation:
    """Make an implementation that writes to existing memory: `function(mxnet, p, **inputs)` returns the call."""

    def build(p: Params, **tensors: Any) -> Function:
        return Function(function(resolve("mxnet"), p, **tensors), ())

    return Implementation("mxnet", build, path=path)
