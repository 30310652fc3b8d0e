"""Make element-wise operators on two tensors, of which the second may be smaller and is then broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from opmark.operators._build import calls
from opmark.operators._pointwise import PRESETS, SIGNED, Domain
from opmark.registry import resolve
from opmark.schema import Cost, Implementation, Operator, Params, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, is_float, sizeof
from opmark.schema.param import choice, dtype, shape

X_SHAPE = shape("shape", "shape of x and of the result, such as 1024x1024")
Y = choice(
    "y",
    "shape of y: that of x, one row, one column or one element; a smaller y is broadcast",
    ("same", "row", "column", "scalar"),
    "same",
)


class Data(NamedTuple):
    """Values of an operand, by the kind of its element type."""

    floats: Domain = SIGNED
    integers: Domain = (0, 60)
    step: float = 0.0
    """If not 0, floats are multiples of it above the lower end, so that two operands may be equal, or never are."""

    def spec(self, size: tuple[int, ...], dtype: str) -> TensorSpec:
        if not is_float(dtype):
            return TensorSpec(size, dtype, *self.integers)
        return TensorSpec(size, dtype, *self.floats, make=self._steps(size) if self.step else None)

    def _steps(self, size: tuple[int, ...]) -> Callable[[Any], Any]:
        (low, high), step = self.floats, self.step
        count = round((high - low) / step)
        return lambda generator: low + step * generator.integers(0, count, size, "int16").astype("float32")


PLAIN = Data()


def y_shape(p: Params) -> tuple[int, ...]:
    size = tuple(p["shape"])
    return {"same": size, "row": size[-1:], "column": (*size[:-1], 1), "scalar": (1,)}[p["y"]]


def binary(
    name: str,
    summary: str,
    *,
    torch: str | Implementation,
    numpy: str | Implementation,
    reference: Callable[..., Any] | None = None,
    category: str = "element-wise",
    x: Data = PLAIN,
    y: Data = PLAIN,
    dtypes: Sequence[str] = FLOATS,
    flops: int = 1,
    result_dtype: str | None = None,
    gradients: Sequence[str] = ("x", "y"),
    gradient_view: bool = False,
    backward_flops: int = 2,
    backward_needs: str = "xy",
    tolerance: Tolerance | None = None,
    **more: Any,
) -> Operator:
    """Make an operator. `torch`, `numpy`, `reference`, `flops`, `gradients` and `result_dtype` are as in `pointwise`;
    `backward_needs` names the inputs that the backward pass reads beside the incoming gradient."""
    default = "float32" if "float32" in dtypes else dtypes[0]

    def inputs(p: Params) -> dict[str, TensorSpec]:
        return {"x": x.spec(tuple(p["shape"]), p["dtype"]), "y": y.spec(y_shape(p), p["dtype"])}

    def cost(p: Params) -> Cost:
        n, size = prod(p["shape"]), sizeof(p["dtype"])
        return Cost(flops * n, (n + prod(y_shape(p))) * size, n * sizeof(result_dtype or p["dtype"]))

    def backward_cost(p: Params) -> Cost:
        """The gradient of a broadcast operand is the sum over the elements that it was used for."""
        n, small, size = prod(p["shape"]), prod(y_shape(p)), sizeof(p["dtype"])
        read = n + n * ("x" in backward_needs) + small * ("y" in backward_needs)
        written = n * ("x" in gradients) + small * ("y" in gradients)
        return Cost(backward_flops * n + n - small, read * size, written * size)

    return Operator(
        name=name,
        summary=summary,
        category=category,
        params=(X_SHAPE, Y, dtype(*dtypes, default=default)),
        inputs=inputs,
        cost=cost,
        backward_cost=backward_cost if gradients and not gradient_view else None,
        reference=reference or _by_path(str(numpy)),
        presets=PRESETS,
        implementations=tuple(calls(way, "x", "y") if isinstance(way, str) else way for way in (numpy, torch)),
        tolerance=tolerance or Tolerance(),
        result_dtype=lambda p: result_dtype or str(p["dtype"]),
        gradients=tuple(gradients),
        gradient_view=gradient_view,
        **more,
    )


def _by_path(path: str) -> Callable[..., Any]:
    return lambda p, x, y: resolve(path)(x, y)
