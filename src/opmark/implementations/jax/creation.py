"""New tensors whose values do not depend on data."""

from __future__ import annotations

from typing import Any

from opmark.implementations._rows import calls
from opmark.implementations.jax._modules import jnp, row
from opmark.schema import Params
from opmark.schema.dtype import is_float


def _full(p: Params) -> Any:
    return jnp.full(p["shape"], p["value"], p["dtype"])


def _arange(p: Params) -> Any:
    """End half a step after the last element, so that rounding cannot add or drop an element."""
    start, step = p["start"], p["step"]
    if not is_float(p["dtype"]):
        start, step = int(start), int(step)
    stop = start + step * (p["elements"] - 1) + (step / 2 if is_float(p["dtype"]) else (1 if step > 0 else -1))
    return jnp.arange(start, stop, step, dtype=p["dtype"])


def _logspace(p: Params) -> Any:
    """Compute in at least float32: 16-bit exponents would lose most digits of the powers."""
    wide = jnp.promote_types(p["dtype"], "float32")
    return jnp.logspace(p["start"], p["stop"], p["elements"], dtype=wide).astype(p["dtype"])


IMPLEMENTATIONS = {
    "zeros": calls("jax.numpy.zeros", shape="shape", dtype="dtype"),
    "ones": calls("jax.numpy.ones", shape="shape", dtype="dtype"),
    "full": row(_full, "jax.numpy.full"),
    "arange": row(_arange, "jax.numpy.arange"),
    "linspace": calls("jax.numpy.linspace", start="start", stop="stop", num="elements", dtype="dtype"),
    "logspace": row(_logspace, "jax.numpy.logspace"),
    "eye": calls("jax.numpy.eye", N="rows", M="columns", dtype="dtype"),
}
