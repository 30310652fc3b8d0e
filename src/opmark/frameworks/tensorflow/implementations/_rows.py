"""Make implementations for TensorFlow. Functions get the module as an argument, so that they need not import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opmark.errors import Unsupported
from opmark.plugin import Function, Implementation, LaidOutSlot, Params
from opmark.plugin.registry import resolve

TRANSPOSED = "nhwc with transposes"
"""Name of an implementation whose launch moves the channels to the end and back: the catalogue has them second, for
which TensorFlow has no kernel on a CPU."""

Lay = Callable[..., Any]


def refuse_gradient(tf: Any, function: Callable[..., Any], value: Any, why: str) -> Any:
    """Return function(value) with a gradient that raises Unsupported: TensorFlow's is not that of the catalogue."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(value: Any) -> Any:
        def refuse(*gradients: Any) -> Any:
            raise Unsupported(why)

        return function(value), refuse

    return call(value)


def implement(
    function: Callable[..., Any], path: str = "", name: str = "", lay: Mapping[str, Lay] | None = None
) -> Implementation:
    """Make an implementation from function(tf, p, **inputs).

    `lay` maps an input to lay(tf, p, value), which changes its layout before the launch. The gradient has that layout
    too; the backend converts it back for the check.
    """
    laid = dict(lay or {})

    def build(p: Params, **tensors: Any) -> Function:
        tf, names = resolve("tensorflow"), tuple(tensors)
        held = {**tensors, **{name: LaidOutSlot(tensors[name], partial(one, tf, p)) for name, one in laid.items()}}

        def call(*values: Any) -> Any:
            return function(tf, p, **dict(zip(names, values, strict=True)))

        return Function(call, tuple(held.values()))

    return Implementation("tensorflow", build, name, path)
