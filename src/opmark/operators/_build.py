"""The common ways to make an implementation: out of a function that a framework has, or out of the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opmark.operators import _numpy as np
from opmark.registry import resolve
from opmark.schema import Implementation, Launch, Params


def calls(path: str, *inputs: str, fixed: Mapping[str, Any] | None = None, **params: str) -> Implementation:
    """An implementation that calls the function at `path` with these inputs, and with keywords from parameters.

    `calls("torch.softmax", "x", dim="axis")` launches `torch.softmax(x, dim=p["axis"])`. `fixed` are keywords that
    are always the same.
    """
    framework = path.split(".", 1)[0]
    always = dict(fixed or {})

    def build(p: Params, **tensors: Any) -> Launch:
        keywords = {keyword: p[name] for keyword, name in params.items()}
        return partial(resolve(path), *(tensors[name] for name in inputs), **keywords, **always)

    return Implementation(framework, build, path=path)


def torch(build: Callable[..., Launch], path: str = "", name: str = "") -> Implementation:
    """A torch implementation of one's own; `path` is the function that it is about, if there is one."""
    return Implementation("torch", build, name, path)


def numpy(build: Callable[..., Launch], path: str = "") -> Implementation:
    return Implementation("numpy", build, path=path)


def formula(reference: Callable[..., Any], *dtypes: Callable[[Params], str]) -> Implementation:
    """A NumPy implementation out of the reference: the same formula on inputs of their own type.

    float16 is computed in float32 and rounded at the end, as frameworks do. Outputs come in the element types that
    `dtypes` say, by default all in that of parameter `dtype`.
    """

    def build(p: Params, **tensors: Any) -> Launch:
        wide = {name: _at_least_single(tensor) for name, tensor in tensors.items()}
        if any(wide[name] is not tensors[name] for name in wide):
            return lambda: _typed(p, reference(p, **{n: _at_least_single(t) for n, t in tensors.items()}), dtypes)
        return lambda: _typed(p, reference(p, **tensors), dtypes)

    return Implementation("numpy", build)


def _at_least_single(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _typed(p: Params, outputs: Any, dtypes: tuple[Callable[[Params], str], ...]) -> Any:
    if not isinstance(outputs, tuple):
        return np.asarray(outputs).astype(dtypes[0](p) if dtypes else p["dtype"], copy=False)
    named = [dtype(p) for dtype in dtypes] or [p["dtype"]] * len(outputs)
    return tuple(np.asarray(o).astype(name, copy=False) for o, name in zip(outputs, named, strict=True))
