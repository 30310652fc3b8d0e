"""Common parts of operators: implementations from a function or from the reference, formulas, inputs and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import pi, prod, sqrt
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.plugin import Implementation, Launch, Operator, Params
from opmark.plugin.param import dtype
from opmark.plugin.registry import resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, sizeof


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


# NumPy formulas that operators of several families use.


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
    from scipy.special import ndtr

    return x * ndtr(x)


def swiglu(x: Any) -> Any:
    """Return silu of the first half of a row (gate) times the second half (value)."""
    gate, value = halves(x)
    return silu(gate) * value


def halves(x: Any) -> tuple[Any, Any]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def softmax(x: Any, axis: int = -1) -> Any:
    """Compute softmax with a sum in at least float32: NumPy would sum float16 in float16."""
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    total = shifted.sum(axis=axis, keepdims=True, dtype=np.promote_types(x.dtype, np.float32))
    return (shifted / total).astype(x.dtype, copy=False)


def attention(q: Any, k: Any, v: Any, scale: float, seen: Any = None) -> Any:
    """Return softmax(q k' scale) v of [..., head, token, element]; several heads of q may share a head of k and v.

    `seen` [query, key] says which keys a query sees, by default all.
    """
    shared = q.shape[-3] // k.shape[-3]
    if shared > 1:
        k, v = np.repeat(k, shared, axis=-3), np.repeat(v, shared, axis=-3)
    scores = q @ np.swapaxes(k, -1, -2) * q.dtype.type(scale)
    if seen is not None:
        scores = np.where(seen, scores, q.dtype.type(-np.inf))
    return softmax(scores) @ v


def rms(p: Params, x: Any) -> Any:
    """Return x with unit root mean square along the last axis."""
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + x.dtype.type(p["eps"]))


def layer_norm(p: Params, x: Any, weight: Any, bias: Any = None) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(variance + x.dtype.type(p["eps"])) * weight
    return scaled if bias is None else scaled + bias


# Keywords of new torch tensors, for launches without inputs.


def fresh(p: Params) -> dict[str, Any]:
    """Return element type and device of a new tensor: torch's default device at the time of building the launch."""
    import torch

    return {"dtype": getattr(torch, p["dtype"]), "device": torch.get_default_device()}


# Common parts of products of tensors, whose inputs are uniform and have gradients.

Shapes = Callable[[Params], dict[str, tuple[int, ...]]]
Count = Callable[[Params], int]


def product(
    name: str,
    summary: str,
    *,
    shapes: Shapes,
    out: Count,
    flops: Count,
    backward_flops: Count,
    dtypes: tuple[str, ...] = FLOATS,
    params: tuple[Any, ...],
    gradients: tuple[str, ...],
    **more: Any,
) -> Operator:
    """Make a product; `out` counts the elements of the result. `gradients` leaves out an input whose gradient is the
    incoming one, as there is nothing to compute."""

    def inputs(p: Params) -> dict[str, TensorSpec]:
        return {name: TensorSpec(tuple(dims), p["dtype"]) for name, dims in shapes(p).items()}

    def cost(p: Params) -> Cost:
        return Cost(flops(p), nbytes(inputs(p).values()), out(p) * sizeof(p["dtype"]))

    def backward(p: Params) -> Cost:
        """The inputs and the gradient of the result are read, a gradient per input is written."""
        read = nbytes(inputs(p)[name] for name in gradients)
        return Cost(backward_flops(p), read + out(p) * sizeof(p["dtype"]), read)

    return Operator(
        name=name,
        summary=summary,
        category="gemm",
        params=(*params, dtype(*dtypes)),
        inputs=inputs,
        cost=cost,
        backward_cost=backward,
        gradients=gradients,
        **more,
    )


# Fill large tensors by repeating a block of values, for inputs that make their own values.

# Drawing every value of a large tensor would take long, and several times its memory; the backends repeat blocks too.
# The length is prime, so that rows and blocks never align.
BLOCK = 1_048_573


def fill_by_block(shape: Sequence[int], draw: Callable[[int], Any]) -> Any:
    """Return an array of that shape filled with the values of `draw(count)`."""
    return np.resize(draw(min(prod(shape), BLOCK)), tuple(shape))


def repeat_block(shape: tuple[int, ...], dtype: str, draw: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Return a `make` for TensorSpec that fills that shape with the values of `draw(generator, count)`."""
    wide = "float64" if dtype == "float64" else "float32"

    def make(generator: Any) -> Any:
        return fill_by_block(shape, lambda n: draw(generator, n).astype(wide))

    return make
