"""Kernels written in Triton, launched on torch tensors.

They are in a module of their own (`_kernels`), which is imported when a launch is built: Triton reads a kernel from
its source, which needs `triton` and its language as names of the module and which no type checker understands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opmark.errors import Unsupported
from opmark.plugin import Implementation, Launch, Params


def _add(p: Params, x: Any, y: Any) -> Launch:
    from opmark.frameworks.triton.implementations._kernels import add

    return partial(add, x, y, p["y"])


def _softmax(p: Params, x: Any) -> Launch:
    from opmark.frameworks.triton.implementations._kernels import softmax

    return partial(softmax, x, p["axis"] % x.ndim)


def _layer_norm(p: Params, x: Any, weight: Any, bias: Any = None) -> Launch:
    if bias is None:
        raise Unsupported("the kernel of layer_norm here adds a bias")
    from opmark.frameworks.triton.implementations._kernels import layer_norm

    return partial(layer_norm, x, weight, bias, p["eps"])


def _rms_norm(p: Params, x: Any, weight: Any) -> Launch:
    from opmark.frameworks.triton.implementations._kernels import rms_norm

    return partial(rms_norm, x, weight, p["eps"])


def _matmul(p: Params, a: Any, b: Any) -> Launch:
    from opmark.frameworks.triton.implementations._kernels import matmul

    return partial(matmul, a, b)


_BUILDS: Mapping[str, Callable[..., Launch]] = {
    "add": _add,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "matmul": _matmul,
}
IMPLEMENTATIONS = {name: Implementation("triton", build) for name, build in _BUILDS.items()}
"""Found by the registry."""
