"""Rows of TensorFlow's tables. The module is handed to a row, so that no row imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.interfaces import Function
from opmark.registry import resolve
from opmark.schema import Implementation, Params


def of(function: Callable[..., Any], path: str = "", name: str = "") -> Implementation:
    """function(tf, p, **inputs): a few functions of TensorFlow put together, or one whose arguments need a word."""

    def build(p: Params, **tensors: Any) -> Function:
        tf, names = resolve("tensorflow"), tuple(tensors)

        def call(*values: Any) -> Any:
            return function(tf, p, **dict(zip(names, values, strict=True)))

        return Function(call, tuple(tensors.values()))

    return Implementation("tensorflow", build, name, path)
