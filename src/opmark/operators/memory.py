"""STREAM's copy and triad, which measure the bandwidth of memory or of a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.errors import Unsupported
from opmark.operators import _numpy as np
from opmark.schema import Cost, Implementation, Launch, Operator, Params, TensorSpec
from opmark.schema.dtype import is_float, sizeof
from opmark.schema.param import dtype, size

SCALAR = 3.0
PARAMS = (
    size("n", "elements of each vector"),
    size(
        "repeats",
        "passes over the same vectors in one call, for data that is small compared with the cost of a call",
        1,
    ),
    dtype("float32", "float64", "float16", "bfloat16"),
)
PRESETS = {name: {"n": n} for name, n in (("small", 1 << 16), ("typical", 1 << 22), ("large", 1 << 26))}


def _inputs(*names: str) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        domain = (-1.0, 1.0) if is_float(p["dtype"]) else (0, 100)
        return {name: TensorSpec((p["n"],), p["dtype"], *domain) for name in names}

    return inputs


def _move_cost(reads: int, *, computes: bool) -> Any:
    def cost(p: Params) -> Cost:
        passes, nbytes = p["repeats"] * p["n"], sizeof(p["dtype"])
        # The multiplication is done once for any number of passes.
        return Cost(passes + p["n"] if computes else 0, reads * passes * nbytes, passes * nbytes)

    return cost


def _repeat_rows(p: Params, vector: Any) -> Any:
    """Return the vector as a matrix whose rows share the same memory."""
    rows = (p["repeats"], p["n"])
    return np.lib.stride_tricks.as_strided(vector, rows, (0, vector.itemsize))


def _repeat_element(p: Params, vector: Any) -> Any:
    """Return the vector as one repeated element: NumPy would copy the rows of a matrix column by column."""
    if p["repeats"] == 1:  # an element has a maximal size, which a vector may exceed
        return vector
    return np.lib.stride_tricks.as_strided(vector.view(f"V{vector.nbytes}"), (p["repeats"],), (0,))


class _WriteLaunch:
    """A launch that writes to the same memory of its own every time and returns it."""

    def __init__(self, write: Launch, out: Any) -> None:
        self._write = write
        self._out = out

    def __call__(self) -> Any:
        self._write()
        return self._out


def _numpy_copy(p: Params, x: Any) -> Launch:
    out = np.empty_like(x)
    return _WriteLaunch(partial(np.copyto, _repeat_element(p, out), _repeat_element(p, x)), out)


def _numpy_triad(p: Params, x: Any, y: Any) -> Launch:
    """Multiply and add in two passes, as NumPy has no fused one."""
    out, scaled, factor = np.empty_like(x), np.empty_like(x), x.dtype.type(SCALAR)

    def write() -> None:
        np.multiply(y, factor, out=scaled)
        np.add(_repeat_rows(p, x), _repeat_rows(p, scaled), out=_repeat_rows(p, out))

    return _WriteLaunch(write, out)


def _torch_copy(p: Params, x: Any) -> Launch:
    import torch

    _require_one_pass(p)
    return partial(torch.empty_like(x).copy_, x)


def _torch_triad(p: Params, x: Any, y: Any) -> Launch:
    import torch

    _require_one_pass(p)
    return partial(torch.add, x, y, alpha=SCALAR, out=torch.empty_like(x))


def _require_one_pass(p: Params) -> None:
    if p["repeats"] != 1:
        raise Unsupported("torch cannot write the same memory several times in one call; numpy-cpu can")


COPY = Operator(
    name="copy",
    summary="y = x, into existing memory",
    category="memory",
    params=(*PARAMS[:2], dtype("float32", "float64", "float16", "bfloat16", "int8")),
    inputs=_inputs("x"),
    cost=_move_cost(reads=1, computes=False),
    reference=lambda p, x: x,
    presets=PRESETS,
    implementations=(Implementation("numpy", _numpy_copy), Implementation("torch", _torch_copy)),
    aliases=("device2device", "d2d", "memcpy"),
)

TRIAD = Operator(
    name="triad",
    summary="z = x + 3 y, into existing memory",
    category="memory",
    params=PARAMS,
    inputs=_inputs("x", "y"),
    cost=_move_cost(reads=2, computes=True),
    reference=lambda p, x, y: x + SCALAR * y,
    presets=PRESETS,
    implementations=(Implementation("numpy", _numpy_triad), Implementation("torch", _torch_triad)),
)

OPERATORS = (COPY, TRIAD)
