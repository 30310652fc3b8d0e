"""Kernels written in Triton, launched on torch tensors.

They are in a module of their own (`_kernels`), which is imported when a launch is built: Triton reads a kernel from
its source, which needs `triton` and its language as names of the module and which no type checker understands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.triton import spaces
from opmark.plugin import Configuration, Implementation, Launch, Params, Space


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

# With knobs, on request: their spaces are in `frameworks/triton/spaces.py`.


def _load_kernels() -> Any:
    return import_module("opmark.frameworks.triton.implementations._kernels")


def _configured_add(p: Params, configuration: Configuration, x: Any, y: Any) -> Launch:
    if p["y"] != "same":
        raise Unsupported("the kernel with knobs adds tensors of the same shape")
    return partial(_load_kernels().configured_elements, _load_kernels().sum_kernel, (x, y), configuration)


def _configured_addcmul(p: Params, configuration: Configuration, x: Any, y: Any, z: Any) -> Launch:
    kernels = _load_kernels()
    return partial(kernels.configured_elements, kernels.addcmul_kernel, (x, y, z), configuration, VALUE=p["value"])


def _configured_activation(name: str) -> Callable[..., Launch]:
    def build(p: Params, configuration: Configuration, x: Any) -> Launch:
        if p.get("approximate", "none") != "none":
            raise Unsupported("the kernel with knobs computes the exact gelu")
        return partial(_load_kernels().configured_elements, getattr(_load_kernels(), name), (x,), configuration)

    return build


def _configured_softmax(p: Params, configuration: Configuration, x: Any) -> Launch:
    return partial(_load_kernels().configured_softmax, x, configuration)


def _configured_layer_norm(p: Params, configuration: Configuration, x: Any, weight: Any, bias: Any = None) -> Launch:
    if bias is None:
        raise Unsupported("the kernel of layer_norm here adds a bias")
    return partial(_load_kernels().configured_layer_norm, x, weight, bias, p["eps"], configuration)


def _configured_rms_norm(p: Params, configuration: Configuration, x: Any, weight: Any) -> Launch:
    return partial(_load_kernels().configured_rms_norm, x, weight, p["eps"], configuration)


def _configured_matmul(p: Params, configuration: Configuration, a: Any, b: Any) -> Launch:
    return partial(_load_kernels().configured_matmul, a, b, configuration)


def _configured_attention(p: Params, configuration: Configuration, q: Any, k: Any, v: Any) -> Launch:
    return partial(_load_kernels().configured_attention, q, k, v, p["causal"], configuration)


_CONFIGURED: Mapping[str, tuple[Callable[..., Launch], Callable[[Params], Space]]] = {
    "add": (_configured_add, spaces.elements),
    "addcmul": (_configured_addcmul, spaces.elements),
    "silu": (_configured_activation("silu_kernel"), spaces.elements),
    "gelu": (_configured_activation("gelu_kernel"), spaces.elements),
    "softmax": (_configured_softmax, spaces.rows),
    "layer_norm": (_configured_layer_norm, spaces.rows),
    "rms_norm": (_configured_rms_norm, spaces.rows),
    "matmul": (_configured_matmul, spaces.matmul),
    "scaled_dot_product_attention": (_configured_attention, spaces.attention),
}
KNOBS = "knobs"
"""Name of the implementations with knobs."""


def _implementations(name: str) -> tuple[Implementation, ...]:
    plain = (Implementation("triton", _BUILDS[name]),) if name in _BUILDS else ()
    if name not in _CONFIGURED:
        return plain
    build, space = _CONFIGURED[name]
    return (*plain, Implementation("triton", build, KNOBS, space=space, on_request=True))


IMPLEMENTATIONS = {name: _implementations(name) for name in (*_BUILDS, *_CONFIGURED)}
"""Found by the registry."""
