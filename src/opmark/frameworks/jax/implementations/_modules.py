"""Parts of JAX, imported at their first use: listing the implementations does not need them."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from opmark.frameworks.implementation import computes


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


jnp = _Module("jax.numpy")
lax = _Module("jax.lax")
nn = _Module("jax.nn")
random = _Module("jax.random")
special = _Module("jax.scipy.special")
linalg = _Module("jax.scipy.linalg")

row = partial(computes, "jax")
"""Makes an implementation whose function is traced once and then compiled, so that its Python code is not timed."""


def wide(x: Any) -> Any:
    """Convert to at least float32, in which libraries on JAX compute the statistics of shorter types."""
    return x.astype(jnp.promote_types(x.dtype, "float32"))
