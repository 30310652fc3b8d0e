"""Make operators that compute each output element from the same element of each input, of one tensor or of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula
from opmark.plugin import BLOCK, Implementation, Operator, Param, Params, Tolerance
from opmark.plugin.param import choice, dtype, shape
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import FLOATS, INTS, is_float, sizeof

PRESETS = {
    "small": {"shape": [256, 256]},
    "typical": {"shape": [2048, 2048]},
    "large": {"shape": [8192, 4096]},
}
SHAPE = shape("shape", "shape of the tensors, such as 1024x1024")

SIGNED_INTS = tuple(name for name in INTS if not name.startswith("u"))

Domain = tuple[float, float]
SIGNED: Domain = (-1.0, 1.0)
POSITIVE: Domain = (0.125, 2.0)
"""For functions that are not defined or not smooth at zero. Both ends are exact in every float type, so that rounding
does not leave the domain."""


Kinks = Sequence[float] | Callable[[Params], Sequence[float]]


def pointwise(
    name: str,
    summary: str,
    *,
    torch: str | Implementation,
    numpy: str | Implementation | None = None,
    reference: Callable[..., Any] | None = None,
    category: str = "element-wise",
    aliases: Sequence[str] = (),
    inputs: Sequence[str] = ("x",),
    domains: Sequence[Domain] = (SIGNED,),
    integers: Domain = (0, 60),
    special: Sequence[float] = (),
    dtypes: Sequence[str] = FLOATS,
    params: Sequence[Param] = (),
    flops: int = 1,
    backward_flops: int = 1,
    backward_reads: int = 2,
    gradients: Sequence[str] | None = None,
    gradient_view: bool = False,
    result_dtype: str | None = None,
    kinks: Kinks = (),
    tolerance: Tolerance | None = None,
    **more: Any,
) -> Operator:
    """Make an element-wise operator.

    `torch` and `numpy` are paths of functions that take the inputs in order, or implementations; without `numpy`, the
    reference becomes the NumPy implementation. `reference(p, **inputs)` by default calls the function at `numpy`.
    `domains` holds the domain of floats, one for all inputs or one each; `integers` is the domain of integers. Floats
    in `special`, where the function has an edge, are mixed into the random ones. The backward pass reads
    `backward_reads` tensors (the incoming gradient, and what the formula needs) and writes one gradient per input.
    `gradients` names the inputs that have one, by default all; () for none. `result_dtype` is given if it is not that
    of the inputs. `kinks` are points without a derivative, or a function of the parameters that returns them; gradients
    are not checked there.
    """
    computed = reference or _pointwise_by_path(str(numpy))
    specs = _inputs(inputs, domains if len(domains) > 1 else tuple(domains) * len(inputs), integers, special)
    named = tuple(inputs) if gradients is None else tuple(gradients)
    result = (lambda p: result_dtype or str(p["dtype"])) if result_dtype else (lambda p: str(p["dtype"]))
    backward = _cost(backward_reads, backward_flops, writes=len(named))
    return Operator(
        name=name,
        summary=summary,
        category=category,
        params=(SHAPE, dtype(*dtypes, default="float32" if "float32" in dtypes else dtypes[0]), *params),
        inputs=specs,
        cost=_cost(len(inputs), flops, result_dtype=result_dtype),
        backward_cost=backward if named and not gradient_view else None,
        reference=computed,
        presets=PRESETS,
        implementations=(_implementation(numpy or formula(computed, result), inputs), _implementation(torch, inputs)),
        tolerance=tolerance or Tolerance(),
        result_dtype=result,
        gradients=named,
        gradient_view=gradient_view,
        direction=away_from(kinks) if kinks else None,
        aliases=tuple(aliases),
        **more,
    )


# Some units in the last place, relative to the place of the kink.
_KINK_WIDTHS = {"float16": 2.0**-8, "bfloat16": 2.0**-5}


def away_from(kinks: Kinks) -> Any:
    """Return a direction that does not move elements next to a point without a derivative, where rounding may decide on
    which side of it an implementation sees them."""

    def direction(p: Params, name: str, generator: Any, array: Any) -> Any:
        at = kinks(p) if callable(kinks) else kinks
        width = _KINK_WIDTHS.get(p["dtype"], 0.0)
        near = np.any([np.abs(array - kink) < max(1e-3, width * abs(kink)) for kink in at], axis=0)
        return np.where(near, 0.0, generator.choice((-1.0, 1.0), size=array.shape))

    return direction


def _pointwise_by_path(path: str) -> Callable[..., Any]:
    def reference(p: Params, **inputs: Any) -> Any:
        return resolve(path)(*inputs.values())

    return reference


def _implementation(given: str | Implementation, inputs: Sequence[str]) -> Implementation:
    return calls(given, *inputs) if isinstance(given, str) else given


def _inputs(names: Sequence[str], domains: Sequence[Domain], integers: Domain, special: Sequence[float]) -> Any:
    def inputs(p: Params) -> dict[str, TensorSpec]:
        size, whole = tuple(p["shape"]), not is_float(p["dtype"])
        return {
            name: TensorSpec(size, p["dtype"], *integers)
            if whole
            else TensorSpec(size, p["dtype"], *domain, make=_mix(p, domain, special) if special else None)
            for name, domain in zip(names, domains, strict=True)
        }

    return inputs


def _mix(p: Params, domain: Domain, special: Sequence[float]) -> Callable[[Any], Any]:
    """Return a function that draws uniform values, of which every eighth or so is replaced by a special one. A large
    tensor repeats a block of them."""

    def make(generator: Any) -> Any:
        n = min(prod(p["shape"]), BLOCK)
        block = generator.uniform(*domain, n)
        marked = generator.random(n, "float32") < 0.125
        block[marked] = generator.choice(special, int(marked.sum()))
        return np.resize(block if p["dtype"] == "float64" else block.astype("float32"), tuple(p["shape"]))

    return make


def _cost(reads: int, flops: int, *, writes: int = 1, result_dtype: str | None = None) -> Any:
    """Return a cost function for that many tensors read and written, and that many flops per element."""

    def cost(p: Params) -> Cost:
        n, size = prod(p["shape"]), sizeof(p["dtype"])
        return Cost(flops * n, reads * n * size, writes * n * (sizeof(result_dtype) if result_dtype else size))

    return cost


# Make element-wise operators on two tensors, of which the second may be smaller and is then broadcast.

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
        reference=reference or _binary_by_path(str(numpy)),
        presets=PRESETS,
        implementations=tuple(calls(way, "x", "y") if isinstance(way, str) else way for way in (numpy, torch)),
        tolerance=tolerance or Tolerance(),
        result_dtype=lambda p: result_dtype or str(p["dtype"]),
        gradients=tuple(gradients),
        gradient_view=gradient_view,
        **more,
    )


def _binary_by_path(path: str) -> Callable[..., Any]:
    return lambda p, x, y: resolve(path)(x, y)
