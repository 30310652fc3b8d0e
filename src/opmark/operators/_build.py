"""Make implementations from a function of a framework or from the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.registry import resolve
from opmark.schema import Implementation, Launch, Params


def calls(path: str, *inputs: str, fixed: Mapping[str, Any] | None = None, **params: str) -> Implementation:
    """Make an implementation that calls the function at `path` with these inputs and keywords from parameters.

    `calls("torch.softmax", "x", dim="axis")` launches `torch.softmax(x, dim=p["axis"])`. `fixed` holds
    keywords with constant values.
    """
    framework = path.split(".", 1)[0]
    always = dict(fixed or {})

    def build(p: Params, **tensors: Any) -> Launch:
        keywords = {keyword: p[name] for keyword, name in params.items()}
        return partial(resolve(path), *(tensors[name] for name in inputs), **keywords, **always)

    return Implementation(framework, build, path=path)


def torch(build: Callable[..., Launch], path: str = "", name: str = "") -> Implementation:
    """Make a torch implementation from a builder; `path` is the function that it calls, if it is a single one."""
    return Implementation("torch", build, name, path)


def numpy(build: Callable[..., Launch], path: str = "") -> Implementation:
    return Implementation("numpy", build, path=path)


def formula(reference: Callable[..., Any], *dtypes: Callable[[Params], str]) -> Implementation:
    """Make a NumPy implementation of the reference: the same formula on inputs of their own type.

    float16 is computed in float32 and rounded at the end, as frameworks do. `dtypes` gives the element types of the
    outputs; by default it is parameter `dtype` for all of them.
    """

    def build(p: Params, **tensors: Any) -> Launch:
        wide = {name: _widen_float16(tensor) for name, tensor in tensors.items()}
        if any(wide[name] is not tensors[name] for name in wide):
            return lambda: _cast_outputs(p, reference(p, **{n: _widen_float16(t) for n, t in tensors.items()}), dtypes)
        return lambda: _cast_outputs(p, reference(p, **tensors), dtypes)

    return Implementation("numpy", build)


def _widen_float16(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _cast_outputs(p: Params, outputs: Any, dtypes: tuple[Callable[[Params], str], ...]) -> Any:
    if not isinstance(outputs, tuple):
        return np.asarray(outputs).astype(dtypes[0](p) if dtypes else p["dtype"], copy=False)
    named = [dtype(p) for dtype in dtypes] or [p["dtype"]] * len(outputs)
    return tuple(np.asarray(o).astype(name, copy=False) for o, name in zip(outputs, named, strict=True))
