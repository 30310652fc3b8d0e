"""Common parts of operators that only move data or return a view of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from opmark.catalogue.operators._axis import EXACT, SHAPE, elements, reference_in_numpy
from opmark.plugin import Implementation, Launch, Operator, Param, Params, Tolerance
from opmark.plugin.param import dtype, integer
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS, is_float, sizeof

ANY = (*FLOATS, *INTS, "bool")
ADDED_UP = Tolerance()
"""Nothing is rounded forwards; backwards, gradients of an element that went to several places are added up."""
PRESETS = {
    "small": {"shape": [256, 256]},
    "typical": {"shape": [2048, 2048]},
    "large": {"shape": [8192, 4096]},
}
IMAGES = {
    "small": {"shape": [2, 16, 32, 32]},
    "typical": {"shape": [8, 64, 64, 64]},
    "large": {"shape": [32, 256, 64, 64]},
}
"""Presets of shape N, C, H, W."""
AXIS = integer("axis", "axis that the operator works on; negative counts from the last", -1)
NOTHING = Cost(0, 0, 0)

Count = Callable[[Params], int]


def data(dims: Any, name: str) -> TensorSpec:
    """Return a tensor with positive and negative values, as far as the element type has them."""
    if is_float(name):
        return TensorSpec(tuple(dims), name)
    low, high = {"bool": (0, 2), "uint8": (0, 200)}.get(name, (-100, 100))
    return TensorSpec(tuple(dims), name, low, high)


def x_only(p: Params) -> dict[str, TensorSpec]:
    return {"x": data(p["shape"], p["dtype"])}


def call_with(path: str, arguments: Callable[[Params], tuple[Any, ...]] = lambda _: ()) -> Implementation:
    """Return an implementation that calls path(*inputs, *arguments(params)), for arguments that are not simply
    parameters."""

    def build(p: Params, **inputs: Any) -> Launch:
        return partial(resolve(path), *inputs.values(), *arguments(p))

    return Implementation(path.split(".", 1)[0], build, path=path)


def _move_cost(read: Count, written: Count, flops: Count) -> Callable[[Params], Cost]:
    def cost(p: Params) -> Cost:
        size = sizeof(p["dtype"])
        return Cost(flops(p), read(p) * size, written(p) * size)

    return cost


_COMMON: dict[str, Any] = {"category": "shaping", "inputs": x_only, "tolerance": EXACT, "gradients": ("x",)}


def moving_operator(
    name: str,
    summary: str,
    *,
    torch: Implementation,
    reference: Callable[..., Any],
    out: Count = elements,
    reads: Count = elements,
    backward_reads: Count | None = None,
    backward_adds: Count = lambda _: 0,
    params: tuple[Param, ...] = (),
    presets: Any = PRESETS,
    dtypes: tuple[str, ...] = ANY,
    gradient_view: bool = False,
    **more: Any,
) -> Operator:
    """Make an operator that copies the elements of x to other places.

    `out` counts the elements of the result, `reads` the elements of x that are read. Backwards, the gradient of the
    result is read (or `backward_reads` elements of it) and a gradient as large as x is written, for which
    `backward_adds` elements are added up.
    """
    backward = _move_cost(backward_reads or out, elements, backward_adds)
    settings = {**_COMMON, **more}
    return Operator(
        name=name,
        summary=summary,
        params=(SHAPE, *params, dtype(*dtypes)),
        cost=_move_cost(reads, out, lambda _: 0),
        backward_cost=backward if settings["gradients"] and not gradient_view else None,
        reference=reference,
        presets=presets,
        gradient_view=gradient_view,
        implementations=(reference_in_numpy(reference), torch),
        **settings,
    )


def view_operator(
    name: str,
    summary: str,
    *,
    torch: Implementation,
    reference: Callable[..., Any],
    params: tuple[Param, ...] = (),
    presets: Any = PRESETS,
    gradient_reads: Count | None = None,
    gradient_adds: Count = lambda _: 0,
    whole: Callable[[Params], bool] = lambda _: False,
    **more: Any,
) -> Operator:
    """Make an operator whose result is a view of x: no data moves.

    The gradient is a view too, unless `gradient_reads` is given: then that many elements of the incoming gradient are
    read for a gradient as large as x, and `gradient_adds` elements are added up. If the view is x as a `whole`, the
    gradient costs nothing either.
    """
    written = _move_cost(gradient_reads, elements, gradient_adds) if gradient_reads else None
    backward = (lambda p: NOTHING if whole(p) else written(p)) if written else None
    settings = {**_COMMON, **more}
    return Operator(
        name=name,
        summary=f"{summary} (a view)",
        params=(SHAPE, *params, dtype(*ANY)),
        cost=lambda _: NOTHING,
        backward_cost=backward,
        reference=reference,
        presets=presets,
        view=True,
        gradient_view=backward is None,
        trivial=whole,
        implementations=(reference_in_numpy(reference), torch),
        **settings,
    )
