"""Common parts of operators with 8-bit numbers: rows with one scale each, and products as torch offers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.errors import Unsupported
from opmark.plugin import Params, Tolerance
from opmark.plugin.param import dtype
from opmark.schema.tensor import FLOATS8

FP8 = "float8_e4m3fn"
NARROW = dtype("int8", *FLOATS8, default="int8", doc="element type; weights for float8_e5m2 are float8_e4m3fn")
"""Element types of products of 8-bit numbers. Matrix units multiply no two matrices of float8_e5m2."""
QUANTIZED = dtype("int8", *FLOATS8, name="quantized_dtype", default="int8", doc="element type of the 8-bit numbers",
                  later=True)  # fmt: skip
"""Element type of what is rounded to 8 bits; stored cases of before there was a choice are of int8."""
# torch._int_mm on CUDA needs more than 16 rows; its other sizes have to be multiples of 8.
_FEWEST_ROWS, _MULTIPLE = 17, 8


class Exact8(Tolerance):
    """8-bit inputs are exact, so only the rounding of the result counts.

    Matrix units sum products of 8-bit floats with fewer bits than float32 has, but with more than float16.
    """

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        return super().bounds("float16" if dtype in FLOATS8 else dtype, params)


class Rounded8(Tolerance):
    """8-bit inputs are exact, and 8-bit outputs are compared with their neighbours, so that neither has an error."""

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        return (0.0, 0.0) if dtype in FLOATS8 else super().bounds(dtype, params)


def quantized(p: Params) -> str:
    return str(p.get(QUANTIZED.name, QUANTIZED.default))


def weight_dtype(p: Params) -> str:
    return FP8 if p["dtype"] in FLOATS8 else str(p["dtype"])


def domain(kind: str) -> tuple[float, float]:
    """Return bounds of the values. Zeros or only positive values would let a device run faster than real data."""
    return (-127, 128) if kind == "int8" else (-1.0, 1.0)


def multiply(p: Params, x: Any, weight: Any) -> Callable[..., Any]:
    """Return a function f(x, x_scale, weight, w_scale) -> x weight' in parameter `out_dtype`, for operands like these.

    Raises Unsupported if the device has no such product.
    """
    import torch

    out = getattr(torch, p["out_dtype"])
    if p["dtype"] in FLOATS8:
        return _scaled_product(x, weight, out)
    product = _integer_product(x, weight)
    return lambda x, xs, w, ws: (product(x, w) * xs.unsqueeze(1) * ws).to(out)


def _integer_product(x: Any, weight: Any) -> Callable[[Any, Any], Any]:
    import torch

    def product(x: Any, weight: Any) -> Any:
        return torch._int_mm(x, weight.t())

    if x.device.type == "cpu":
        return product
    if weight.shape[0] % _MULTIPLE or weight.shape[1] % _MULTIPLE:
        raise Unsupported(f"torch._int_mm on {x.device.type} needs sizes that are multiples of {_MULTIPLE}, got "
                          f"K={weight.shape[1]} and N={weight.shape[0]}")  # fmt: skip

    def padded(x: Any, weight: Any) -> Any:
        rows = len(x)
        if rows >= _FEWEST_ROWS:
            return product(x, weight)
        return product(torch.nn.functional.pad(x, (0, 0, 0, 2 * _MULTIPLE + _MULTIPLE - rows)), weight)[:rows]

    return padded


def _scaled_product(x: Any, weight: Any, out: Any) -> Callable[..., Any]:
    import torch

    one = torch.ones((), device=x.device)

    def by_rows(x: Any, xs: Any, w: Any, ws: Any) -> Any:
        return torch._scaled_mm(x, w.t(), scale_a=xs.unsqueeze(1), scale_b=ws.unsqueeze(0), out_dtype=out)

    def by_tensor(x: Any, xs: Any, w: Any, ws: Any) -> Any:
        product = torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
        return (product * xs.unsqueeze(1) * ws).to(out)

    scales = torch.ones(len(x), device=x.device), torch.ones(len(weight), device=x.device)
    reasons = []
    # A GPU takes one scale per row for one output type only; for others the scales are applied after the product.
    for way in (by_rows, by_tensor):
        try:
            way(x, scales[0], weight, scales[1])
        except (RuntimeError, NotImplementedError, ValueError) as error:
            reasons.append(str(error).partition("\n")[0])
        else:
            return way
    raise Unsupported(f"torch._scaled_mm does not multiply these 8-bit matrices here: {reasons[0]}")


# Values rounded to 8 bits: how rows of them are made and compared.

LARGEST = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}
"""The largest number of each type of 8 bits; of int8 the opposite of the smallest one is none."""
# With steps of these sizes, values between -1 and 1 nearly fill 8 bits and none is clipped: none is above MOST.
STEPS = (1 / 120, 1 / 100)
MOST = 120
# How far rounding in float32, before the final rounding, may move a value, as a fraction of a step.
_SLACK = 0.01


# Bits of the fraction, and the exponent of the smallest normal number.
_FORMATS8 = {"float8_e4m3fn": (3, -6), "float8_e5m2": (2, -14)}


def _step_at(values: Any, kind: str) -> Any:
    """Return the distance between neighbouring 8-bit numbers at these values."""
    if kind not in FLOATS8:
        return 1.0
    digits, smallest = _FORMATS8[kind]
    _, exponent = np.frexp(np.abs(values))
    return np.ldexp(1.0, np.maximum(exponent - 1, smallest) - digits)


def round_to(values: Any, kind: str) -> Any:
    """Round a torch tensor to 8-bit numbers; what is beyond the largest one becomes that."""
    import torch

    bounded = (values.round() if kind == "int8" else values).clamp(-LARGEST[kind], LARGEST[kind])
    return bounded.to(getattr(torch, kind))


def as_bytes(tensor: Any) -> Any:
    """Return a torch tensor of 8-bit floats, which torch cannot index, as its bytes; any other one unchanged."""
    import torch

    return tensor.view(torch.uint8) if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def accept_either_neighbour(
    reference: Callable[..., Any], *rounded: int, kind: Callable[[Params], str] = lambda _: "int8"
) -> Callable[..., Any]:
    """Return an `observe` for operators whose outputs at these indices (by default the first) are 8-bit numbers of this
    kind.

    The reference does not round. A number that is at most half a step, plus what earlier rounding explains, from the
    reference is replaced by the reference; any other stays as it is.
    """

    def observe(p: Params, outputs: Any, **inputs: Any) -> Any:
        found = list(outputs) if isinstance(outputs, tuple) else [outputs]
        exact = reference(p, **inputs)
        exact = exact if isinstance(exact, tuple) else (exact,)
        for i in rounded or (0,):
            if found[i].shape == exact[i].shape:
                within = (0.5 + _SLACK) * _step_at(exact[i], kind(p))
                found[i] = np.where(np.abs(found[i] - exact[i]) <= within, exact[i], found[i])
        return tuple(found)

    return observe


def numpy_rows(values: Any) -> tuple[Any, Any]:
    """Return integers and one scale per row, such that the largest of a row is 127."""
    numbers, scale = exact_rows(values, "int8")
    return np.rint(numbers).astype(np.int8), scale.astype(np.float32)


def exact_rows(values: Any, kind: str) -> tuple[Any, Any]:
    """Return the unrounded numbers and one scale per row, such that the largest of a row is the largest of the kind."""
    scale = np.abs(values).max(axis=-1) / LARGEST[kind]
    return values / scale[..., None], scale


def torch_rows(values: Any, kind: str) -> tuple[Any, Any]:
    import torch

    scale = values.abs().amax(-1) / LARGEST[kind]
    numbers = values / scale.unsqueeze(-1)
    return (numbers.round() if kind == "int8" else numbers).to(getattr(torch, kind)), scale


def first_in_int8(outputs: Sequence[Any], dtype: Any) -> tuple[Any, ...]:
    """Return the first output as integers with scales, by `numpy_rows`, and the other outputs in `dtype`."""
    return (*numpy_rows(outputs[0]), *(np.asarray(output).astype(dtype, copy=False) for output in outputs[1:]))
