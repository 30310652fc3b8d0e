"""Common parts of all pools, which compute one value from each window of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from opmark.operators import _numpy as np
from opmark.operators._axis import INDEX_BYTES
from opmark.operators._build import formula
from opmark.operators._windows import AXES, has_axes
from opmark.schema import Cost, Implementation, Operator, Param, Params, Rule, TensorSpec, Tolerance
from opmark.schema.dtype import FLOATS, sizeof
from opmark.schema.param import dtype, shape, size

_IMAGES: dict[str, dict[int, tuple[int, int, list[int]]]] = {
    "small": {1: (2, 16, [256]), 2: (1, 16, [32, 32]), 3: (1, 4, [8, 16, 16])},
    "typical": {1: (16, 64, [2048]), 2: (8, 64, [56, 56]), 3: (2, 32, [16, 28, 28])},
    "large": {1: (64, 256, [4096]), 2: (64, 64, [112, 112]), 3: (8, 64, [16, 56, 56])},
}
"""Batch, channels and image by preset and number of axes."""


def presets(dims: int, **more: Any) -> dict[str, dict[str, Any]]:
    keys = ("batch", "channels", "image")
    return {name: {**dict(zip(keys, images[dims], strict=True)), **more} for name, images in _IMAGES.items()}


def image_params(dims: int) -> tuple[Param, ...]:
    return (size("batch", "images"), size("channels", "channels"), shape("image", f"{AXES[dims]} of the input"))


def planes(p: Params) -> int:
    return int(p["batch"] * p["channels"])


def order_preserving(p: Params, name: str, generator: Any, x: Any) -> Any:
    """Return a direction in which larger elements of a channel move further and equal ones together: their order
    stays."""
    plane = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return generator.choice((-1.0, 1.0), size=plane) * np.exp(generator.uniform(0.5, 2.0, size=plane) * x)


def spans(image: int, out: int) -> list[slice]:
    """Return windows along one axis that are as equal as integers allow, overlapping where necessary."""
    return [slice(i * image // out, -(-(i + 1) * image // out)) for i in range(out)]


Windows = Callable[[float, Callable[..., Any]], Any]
"""windows(padding, function) applies `function` to each window of an image that is padded with this value."""


@dataclass(frozen=True)
class Kind:
    """How the values in a window are pooled."""

    says: str
    pooled: Callable[[Params, Windows], Any]
    flops: tuple[int, int]
    """Flops per value in a window, and per window."""
    backward_flops: tuple[int, int]
    backward_reads: Callable[[int, int, int], int]
    """Bytes read backwards, from elements of the input, elements of the output, and bytes per element."""
    domain: tuple[float, float] = (-1.0, 1.0)
    smooth: bool = True
    exact: bool = False


def _norm(p: Params, windows: Windows) -> Any:
    power = p["norm_type"]
    return windows(0.0, lambda values, axis: np.sum(values**power, axis=axis) ** (1 / power))


# Backwards, the incoming gradient goes to the largest value, whose index frameworks keep.
MAX = Kind("largest value", lambda p, windows: windows(-np.inf, np.max), (0, 0), (0, 1),
           lambda x, out, nbytes: out * (nbytes + INDEX_BYTES), smooth=False, exact=True)  # fmt: skip
# Backwards, the (for the mean: divided) gradient is added to each value of the window.
AVG = Kind("mean", lambda p, windows: windows(0.0, np.mean), (1, 0), (1, 1), lambda x, out, nbytes: out * nbytes)
SUM = Kind("sum", lambda p, windows: windows(0.0, np.sum), (1, -1), (1, 0), lambda x, out, nbytes: out * nbytes)
# Backwards, (value / norm) to the power p - 1, times the incoming gradient, is added to each value.
NORM = Kind("p-norm", _norm, (2, 0), (4, 0), lambda x, out, nbytes: (x + 2 * out) * nbytes, domain=(0.125, 2.0))


def pool(
    name: str,
    summary: str,
    kind: Kind,
    dims: int,
    *,
    out: Callable[[Params], Sequence[int]],
    values: Callable[[Params], int],
    reference: Callable[..., Any],
    implementations: Sequence[Implementation],
    params: Sequence[Param] = (),
    rules: Sequence[Rule] = (),
    preset: Mapping[str, Any] | None = None,
    dtypes: Sequence[str] = FLOATS,
    aliases: Sequence[str] = (),
) -> Operator:
    """Make a pool. `out` returns the sizes of the output image, `values` the number of values in all windows of an
    image."""

    def flops(p: Params, each: tuple[int, int]) -> int:
        return int(planes(p) * (each[0] * values(p) + each[1] * prod(out(p))))

    def sizes(p: Params) -> tuple[int, int, int]:
        return planes(p) * prod(p["image"]), planes(p) * prod(out(p)), sizeof(p["dtype"])

    def cost(p: Params) -> Cost:
        read, written, nbytes = sizes(p)
        return Cost(flops(p, kind.flops), read * nbytes, written * nbytes)

    def backward_cost(p: Params) -> Cost:
        return Cost(flops(p, kind.backward_flops), kind.backward_reads(*sizes(p)), cost(p).bytes_read)

    return Operator(
        name=name,
        summary=summary,
        category="pooling",
        params=(*image_params(dims), *params, dtype(*dtypes)),
        inputs=lambda p: {"x": TensorSpec((p["batch"], p["channels"], *p["image"]), p["dtype"], *kind.domain)},
        cost=cost,
        backward_cost=backward_cost,
        reference=reference,
        tolerance=Tolerance() if kind.exact else Tolerance(terms=lambda p: -(-values(p) // prod(out(p)))),
        presets=presets(dims, **(preset or {})),
        rules=(has_axes("image", dims), *rules),
        gradients=("x",),
        direction=None if kind.smooth else order_preserving,
        implementations=(formula(reference), *implementations),
        aliases=tuple(aliases),
    )
