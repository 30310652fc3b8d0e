"""Products of matrices of 8 bits with a scale a row of each: what torch has for them, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.errors import Unsupported
from opmark.schema import Params, Tolerance

FP8 = "float8_e4m3fn"
# torch._int_mm on CUDA: more than 16 rows, and other sizes that are multiples of 8.
_FEWEST_ROWS, _MULTIPLE = 17, 8


class Exact8(Tolerance):
    """Numbers of 8 bits are only read here, and exact: what is rounded is the result.

    Matrix units add up products of 8-bit floats with fewer bits than a float32 has, though with more than a float16.
    """

    def bounds(self, dtype: str, params: Params) -> tuple[float, float]:
        return super().bounds("float16" if dtype == FP8 else dtype, params)


def domain(dtype: str) -> tuple[float, float]:
    """Not all zeros, nor all positive: such operands let a device run faster than real ones."""
    return (-127, 128) if dtype == "int8" else (-1.0, 1.0)


def multiply(p: Params, x: Any, weight: Any) -> Callable[..., Any]:
    """A function f(x, x_scale, weight, w_scale) -> x weight' in float32 or parameter `out_dtype`; operands like these.

    Unsupported where the device has no such product.
    """
    import torch

    out = getattr(torch, p["out_dtype"])
    if p["dtype"] == FP8:
        return _of_floats(x, weight, out)
    product = _whole_product(x, weight)
    return lambda x, xs, w, ws: (product(x, w) * xs.unsqueeze(1) * ws).to(out)


def _whole_product(x: Any, weight: Any) -> Callable[[Any, Any], Any]:
    import torch

    def product(x: Any, weight: Any) -> Any:
        return torch._int_mm(x, weight.t())

    if x.device.type == "cpu":
        return product
    if weight.shape[0] % _MULTIPLE or weight.shape[1] % _MULTIPLE:
        raise Unsupported(f"torch._int_mm on {x.device.type} needs sizes that are multiples of {_MULTIPLE}, and there "
                          f"are {weight.shape[1]} products a sum and {weight.shape[0]} columns")  # fmt: skip

    def padded(x: Any, weight: Any) -> Any:
        rows = len(x)
        if rows >= _FEWEST_ROWS:
            return product(x, weight)
        return product(torch.nn.functional.pad(x, (0, 0, 0, 2 * _MULTIPLE + _MULTIPLE - rows)), weight)[:rows]

    return padded


def _of_floats(x: Any, weight: Any, out: Any) -> Callable[..., Any]:
    import torch

    one = torch.ones((), device=x.device)

    def by_rows(x: Any, xs: Any, w: Any, ws: Any) -> Any:
        return torch._scaled_mm(x, w.t(), scale_a=xs.unsqueeze(1), scale_b=ws.unsqueeze(0), out_dtype=out)

    def by_tensor(x: Any, xs: Any, w: Any, ws: Any) -> Any:
        product = torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
        return (product * xs.unsqueeze(1) * ws).to(out)

    scales = torch.ones(len(x), device=x.device), torch.ones(len(weight), device=x.device)
    reasons = []
    # A GPU has scales a row for one type of output only; for others the scales come after the product.
    for way in (by_rows, by_tensor):
        try:
            way(x, scales[0], weight, scales[1])
        except (RuntimeError, NotImplementedError, ValueError) as error:
            reasons.append(str(error).partition("\n")[0])
        else:
            return way
    raise Unsupported(f"torch._scaled_mm does not multiply these {FP8} matrices here: {reasons[0]}")
