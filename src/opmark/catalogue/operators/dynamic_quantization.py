"""Operators that end by rounding rows to 8 bits, with one scale per row: *_dynamic_quant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import numpy, rms, swiglu, torch
from opmark.catalogue.operators._quantization import (
    QUANTIZED,
    Rounded8,
    accept_either_neighbour,
    exact_rows,
    first_in_int8,
    quantized,
    torch_rows,
)
from opmark.catalogue.operators.activation import torch_gated
from opmark.catalogue.operators.llm_norm import ENOUGH_TOKENS, EPS, HIDDEN, TOKENS, long_enough, tokens
from opmark.plugin import Launch, Operator, Param, ParamRule, Params
from opmark.plugin.param import choice, dtype, flag, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import sizeof

Specs = dict[str, TensorSpec]
PRESETS = {
    "small": {"num_tokens": 64, "hidden_size": 256},
    "typical": {"num_tokens": 512, "hidden_size": 1024},
    "large": {"num_tokens": 8192, "hidden_size": 4096},
}


def smooth(*shape: int) -> TensorSpec:
    """Return factors that bring the elements of a row to a similar size before they share a scale."""
    return TensorSpec(shape, "float32", 0.5, 1.5)


@dataclass(frozen=True)
class RowSource:
    """How the rows that are rounded are computed."""

    inputs: Callable[[Params], Specs]
    values: Callable[..., Any]
    """values(p, **inputs) returns a tuple: the rows and any other outputs."""
    torch_values: Callable[..., Any]
    """The same in torch, from float32 inputs."""
    rows: Callable[[Params], tuple[int, int]]
    """Number of rows and their length."""
    flops: Callable[[Params], int]
    """Flops per element before the final quotient."""
    extra: Callable[[Params], int] = lambda _: 0
    """Number of further outputs, as large as the rows and in the type of the input."""
    read: Callable[[Params], int] | None = None
    """Bytes read, if not all inputs are read in full."""
    prepare: Callable[[Params, Mapping[str, Any]], Mapping[str, Any]] = lambda p, tensors: {}
    """Further arguments of `torch_values`, which are made before the launch."""

    def cost(self, p: Params) -> Cost:
        count, length = self.rows(p)
        n = count * length
        read = self.read(p) if self.read else nbytes(self.inputs(p).values())
        written = n + count * sizeof("float32") + self.extra(p) * n * sizeof(p["dtype"])
        return Cost((self.flops(p) + 1) * n, read, written)

    def reference(self, p: Params, **arrays: Any) -> Any:
        """Return the rows before rounding."""
        first, *others = self.values(p, **arrays)
        return (*exact_rows(first, quantized(p)), *others)

    def build_numpy(self, p: Params, **arrays: Any) -> Launch:
        def launch() -> Any:
            wide = {name: array.astype(np.float32, copy=False) for name, array in arrays.items()}
            return first_in_int8(self.values(p, **wide), p["dtype"])

        return launch

    def build_torch(self, p: Params, **tensors: Any) -> Launch:
        import torch

        kind, made = getattr(torch, p["dtype"]), self.prepare(p, tensors)

        def launch() -> Any:
            wide = {name: tensor.float() for name, tensor in tensors.items()}
            first, *others = self.torch_values(p, **wide, **made)
            return (*torch_rows(first, quantized(p)), *(other.to(kind) for other in others))

        return launch


def dynamic_quant(
    name: str,
    summary: str,
    params: Sequence[Param],
    recipe: RowSource,
    presets: Mapping[str, Mapping[str, Any]],
    category: str = "quantization",
    **more: Any,
) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        category=category,
        params=(*params, QUANTIZED, dtype("float32", "float16", "bfloat16")),
        inputs=recipe.inputs,
        cost=recipe.cost,
        reference=recipe.reference,
        presets=presets,
        implementations=(numpy(recipe.build_numpy), torch(recipe.build_torch)),
        result_dtype=quantized,
        further_dtypes=lambda p: ("float32", p["dtype"], p["dtype"]),
        tolerance=Rounded8(),
        observe=accept_either_neighbour(recipe.reference, kind=quantized),
        **more,
    )


def _rows(p: Params) -> tuple[int, int]:
    return tokens(p), p["hidden_size"]


def _scale_inputs(p: Params) -> Specs:
    return {"x": TensorSpec(_rows(p), p["dtype"]), "smooth": smooth(p["hidden_size"])}


SCALE = dynamic_quant(
    "scale_dynamic_quant",
    "x times a factor per element, rounded to int8 or a float8 with a scale per token",
    (*TOKENS, HIDDEN),
    RowSource(
        inputs=_scale_inputs,
        values=lambda p, x, smooth: (x * smooth,),
        torch_values=lambda p, x, smooth: (x * smooth,),
        rows=_rows,
        flops=lambda _: 1,
    ),
    PRESETS,
    rules=(ENOUGH_TOKENS,),
    aliases=("dynamic_quant", "per_token_quant_int8"),
)


def _add_inputs(p: Params) -> Specs:
    x = TensorSpec(_rows(p), p["dtype"])
    residual = {"residual": x} if p["add_residual"] else {}
    weight = TensorSpec((p["hidden_size"],), p["dtype"], 0.5, 1.5)
    return {"x": x, **residual, "weight": weight, "smooth": smooth(p["hidden_size"])}


def _also(p: Params, added: Any, normed: Any) -> tuple[Any, ...]:
    return {"none": (), "res": (added,), "norm": (normed,), "both": (added, normed)}[p["output_mode"]]


def _add_values(p: Params, x: Any, weight: Any, smooth: Any, residual: Any = None) -> Any:
    added = x if residual is None else x + residual
    normed = rms(p, added) * weight
    return (normed * smooth, *_also(p, added, normed))


def _torch_add_values(p: Params, x: Any, weight: Any, smooth: Any, residual: Any = None) -> Any:
    from torch.nn.functional import rms_norm

    added = x if residual is None else x + residual
    normed = rms_norm(added, (p["hidden_size"],), weight, p["eps"])
    return (normed * smooth, *_also(p, added, normed))


ADD_RMS_NORM = dynamic_quant(
    "add_rms_norm_dynamic_quant",
    "x + residual with unit root mean square and scaled, rounded to int8 or a float8 with a scale per token",
    (
        *TOKENS,
        HIDDEN,
        flag("add_residual", "a residual is added", default=True),
        choice("output_mode", "further outputs: none, the sum, the norm before rounding, or both",
               ("none", "res", "norm", "both"), "none"),
        EPS,
    ),
    RowSource(
        inputs=_add_inputs,
        values=_add_values,
        torch_values=_torch_add_values,
        rows=_rows,
        # Square and sum 2, quotient 1, scale 1, factor 1; and 1 for the residual.
        flops=lambda p: 5 + p["add_residual"],
        extra=lambda p: {"none": 0, "res": 1, "norm": 1, "both": 2}[p["output_mode"]],
    ),
    PRESETS,
    rules=(
        ENOUGH_TOKENS,
        long_enough("hidden_size"),
        ParamRule("output_mode", "not be {output_mode} without a residual",
             lambda p: p["output_mode"] not in ("res", "both") or p["add_residual"]),
    ),
    aliases=("rms_norm_dynamic_quant",),
)  # fmt: skip


def _head_inputs(p: Params) -> Specs:
    return {
        "x": TensorSpec((tokens(p), p["heads"], p["head_dim"]), p["dtype"]),
        "weight": TensorSpec((p["head_dim"],), p["dtype"], 0.5, 1.5),
        "smooth": smooth(p["heads"] * p["head_dim"]),
    }


def _head_values(p: Params, x: Any, weight: Any, smooth: Any) -> Any:
    return ((rms(p, x) * weight).reshape(len(x), -1) * smooth,)


def _torch_head_values(p: Params, x: Any, weight: Any, smooth: Any) -> Any:
    from torch.nn.functional import rms_norm

    return (rms_norm(x, (p["head_dim"],), weight, p["eps"]).flatten(1) * smooth,)


HEAD_RMS_NORM = dynamic_quant(
    "head_rms_norm_dynamic_quant",
    "unit root mean square of each head, scaled, rounded to int8 or a float8 with a scale per token",
    (*TOKENS, size("heads", "heads of a token"), size("head_dim", "elements of a head"), EPS),
    RowSource(
        inputs=_head_inputs,
        values=_head_values,
        torch_values=_torch_head_values,
        rows=lambda p: (tokens(p), p["heads"] * p["head_dim"]),
        flops=lambda _: 5,
    ),
    {
        "small": {"num_tokens": 32, "heads": 8, "head_dim": 64},
        "typical": {"num_tokens": 512, "heads": 16, "head_dim": 64},
        "large": {"num_tokens": 8192, "heads": 32, "head_dim": 128},
    },
    rules=(ENOUGH_TOKENS, long_enough("head_dim")),
)


GATED = size("hidden_size", "elements of a token after the gate; twice as many before")


def _swiglu_inputs(p: Params) -> Specs:
    count, hidden = _rows(p)
    return {"x": TensorSpec((count, 2 * hidden), p["dtype"]), "smooth": smooth(hidden)}


SWIGLU = dynamic_quant(
    "swiglu_dynamic_quant",
    "silu of one half of a token times the other, rounded to int8 or a float8 with a scale per token",
    (*TOKENS, GATED),
    RowSource(
        inputs=_swiglu_inputs,
        values=lambda p, x, smooth: (swiglu(x) * smooth,),
        torch_values=lambda p, x, smooth, gated: (gated(x) * smooth,),
        prepare=lambda p, tensors: {"gated": torch_gated("silu")},
        rows=_rows,
        # silu 3 (exponential, sum, quotient), product 1, factor 1.
        flops=lambda _: 5,
    ),
    PRESETS,
    rules=(ENOUGH_TOKENS,),
    aliases=("silu_and_mul_quant",),
)

OPERATORS = (SCALE, ADD_RMS_NORM, HEAD_RMS_NORM, SWIGLU)
