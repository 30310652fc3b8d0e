"""JAX's arrays out of memory that is shared with the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from opmark.frameworks.jax.backend import configure
from opmark.frameworks.numpy.shared import SharedArrays
from opmark.plugin import Function, TensorSlot


class SharedJaxArrays(SharedArrays):
    """JAX's arrays cannot change, so every call gets new ones; making them belongs to the call."""

    def __init__(self, handle: Mapping[str, Any], threads: int) -> None:
        super().__init__(handle, threads)
        configure(threads)

    def bind(self, build: Callable[..., Any], views: Mapping[str, Any]) -> Callable[[], Any]:
        slots = {name: TensorSlot(jax.numpy.array(view)) for name, view in views.items()}
        built: Function = build(**slots)
        compiled = jax.jit(built.call)

        def call() -> Any:
            for name, view in views.items():
                slots[name].value = jax.numpy.array(view)
            return compiled(*(slot.value for slot in built.arguments))

        return call

    def copy(self, output: Any, view: Any) -> None:
        np.copyto(view, np.asarray(output))

    def _dtype(self, name: str) -> Any:
        return np.dtype(getattr(jax.numpy, "bool_" if name == "bool" else name))
