"""Rows of TensorFlow's tables. The module is handed to a row, so that no row imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opmark.errors import Unsupported
from opmark.interfaces import Function, Held
from opmark.registry import resolve
from opmark.schema import Implementation, Params

TRANSPOSED = "nhwc with transposes"
"""The name of an implementation that moves the channels to the end and back inside of what is timed: the catalogue has
them second, and this function of TensorFlow has no kernel for that on a CPU."""

Lay = Callable[..., Any]


class Laid(Held):
    """A weight in the layout that TensorFlow's users keep it in, laid out anew only when there are other data in the
    place that it comes from: not at every call."""

    __slots__ = ("_laid", "_seen", "lay", "source")

    def __init__(self, source: Held, lay: Callable[[Any], Any]) -> None:
        self.source = source
        self.lay = lay
        self._seen = source.value
        self._laid = lay(source.value)

    @property
    def value(self) -> Any:
        if self.source.value is not self._seen:
            self._seen = self.source.value
            self._laid = self.lay(self._seen)
        return self._laid


def undifferentiated(tf: Any, function: Callable[..., Any], value: Any, why: str) -> Any:
    """function(value), whose gradient is asked for in vain: TensorFlow has one, but not of the catalogue's function."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(value: Any) -> Any:
        def refuse(*gradients: Any) -> Any:
            raise Unsupported(why)

        return function(value), refuse

    return call(value)


def of(
    function: Callable[..., Any], path: str = "", name: str = "", lay: Mapping[str, Lay] | None = None
) -> Implementation:
    """function(tf, p, **inputs): a few functions of TensorFlow put together, or one whose arguments need a word.

    `lay`: by input, lay(tf, p, value) that is done beforehand. The gradient has that layout too; the
    backend goes back through it for whoever looks at it.
    """
    laid = dict(lay or {})

    def build(p: Params, **tensors: Any) -> Function:
        tf, names = resolve("tensorflow"), tuple(tensors)
        held = {**tensors, **{name: Laid(tensors[name], partial(one, tf, p)) for name, one in laid.items()}}

        def call(*values: Any) -> Any:
            return function(tf, p, **dict(zip(names, values, strict=True)))

        return Function(call, tuple(held.values()))

    return Implementation("tensorflow", build, name, path)
