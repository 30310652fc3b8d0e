"""Matrix products: matmul, batched_matmul, grouped_gemm, gemv, linear, and products with an addend."""

from __future__ import annotations

from functools import partial
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._builders import calls, formula, numpy, torch
from opmark.plugin import Launch, Operator, Param, ParamRule, Params
from opmark.plugin.operator import sum_of_products
from opmark.plugin.param import dtype, real, shape, size
from opmark.schema import Cost, TensorSpec
from opmark.schema.cost import nbytes
from opmark.schema.tensor import FLOATS, FLOATS8, STORED_AS, sizeof, storage


def _dtype(narrow: str) -> Param:
    """Return the element type; `narrow` is the operator that multiplies 8-bit numbers, which come with scales."""
    return dtype(
        *FLOATS,
        *STORED_AS,
        doc="element type; tfloat32: products of float32 that see 10 bits of its fraction",
        elsewhere=tuple(
            (name, f"products of 8-bit numbers have scales: `opmark run {narrow} -p dtype={name}`")
            for name in ("int8", *FLOATS8)
        ),
    )


MNK = (size("M", "rows of a and c"), size("N", "columns of b and c"), size("K", "columns of a, rows of b"))
FACTORS = (real("alpha", "factor of the product", 1.0), real("beta", "factor of the addend", 1.0))
TERMS = sum_of_products(lambda p: int(p["K"]))
PRESETS = {
    "small": {"M": 128, "N": 128, "K": 128},
    "typical": {"M": 1024, "N": 1024, "K": 1024},
    "large": {"M": 4096, "N": 4096, "K": 4096},
}
BATCHED_PRESETS = {
    "small": {"B": 8, "M": 64, "N": 64, "K": 64},
    "typical": {"B": 32, "M": 256, "N": 256, "K": 128},
    "large": {"B": 64, "M": 1024, "N": 1024, "K": 256},
}


def _matrices(p: Params, *batch: int) -> dict[str, TensorSpec]:
    return {
        "a": TensorSpec((*batch, p["M"], p["K"]), storage(p["dtype"])),
        "b": TensorSpec((*batch, p["K"], p["N"]), storage(p["dtype"])),
    }


def _product(p: Params, batch: int = 1) -> Cost:
    m, n, k, size = p["M"], p["N"], p["K"], batch * sizeof(p["dtype"])
    return Cost(2 * batch * m * n * k, (m * k + k * n) * size, m * n * size)


def _product_backward(p: Params, batch: int = 1) -> Cost:
    """Count two products of the same size; a, b and the gradient of c are read, the gradients of a and b written."""
    forward, flops = _product(p, batch), 2 * batch * p["M"] * p["N"] * p["K"]
    return Cost(2 * flops, forward.bytes_read + forward.bytes_written, forward.bytes_read)


MATMUL = Operator(
    name="matmul",
    summary="matrix product c[M,N] = a[M,K] b[K,N]",
    category="gemm",
    params=(*MNK, _dtype("quant_matmul")),
    inputs=_matrices,
    cost=_product,
    backward_cost=_product_backward,
    reference=lambda p, a, b: a @ b,
    tolerance=TERMS,
    presets=PRESETS,
    gradients=("a", "b"),
    implementations=(calls("numpy.matmul", "a", "b"), calls("torch.matmul", "a", "b")),
    aliases=("gemm", "mm", "dot", "Dot", "linalg_gemm2"),
)

BATCHED_MATMUL = Operator(
    name="batched_matmul",
    summary="B independent matrix products c[B,M,N] = a[B,M,K] b[B,K,N]",
    category="gemm",
    params=(size("B", "number of products"), *MNK, _dtype("quant_batched_matmul")),
    inputs=lambda p: _matrices(p, p["B"]),
    cost=lambda p: _product(p, p["B"]),
    backward_cost=lambda p: _product_backward(p, p["B"]),
    reference=lambda p, a, b: a @ b,
    tolerance=TERMS,
    presets=BATCHED_PRESETS,
    gradients=("a", "b"),
    implementations=(calls("numpy.matmul", "a", "b"), calls("torch.bmm", "a", "b")),
    aliases=("batch_gemm", "bmm", "batch_dot", "BatchDot", "batch_matmul"),
)


def _group_sizes(p: Params) -> list[tuple[int, int, int]]:
    """Return M, N and K of each product of a group; a single N or K is that of all of them."""
    several = (p[name] if isinstance(p[name], list) else [p[name]] * len(p["M"]) for name in "NK")
    return list(zip(p["M"], *several, strict=True))


def _grouped_inputs(p: Params) -> dict[str, TensorSpec]:
    sizes, kind = _group_sizes(p), storage(p["dtype"])
    left = {f"a{i}": TensorSpec((m, k), kind) for i, (m, _, k) in enumerate(sizes)}
    right = {f"b{i}": TensorSpec((k, n), kind) for i, (_, n, k) in enumerate(sizes)}
    return left | right


def _grouped_flops(p: Params) -> int:
    return 2 * sum(m * n * k for m, n, k in _group_sizes(p))


def _grouped_cost(p: Params) -> Cost:
    written = sum(m * n for m, n, _ in _group_sizes(p)) * sizeof(p["dtype"])
    return Cost(_grouped_flops(p), nbytes(_grouped_inputs(p).values()), written)


def _grouped_backward(p: Params) -> Cost:
    """Count two products for each forward one, of the same size."""
    forward = _grouped_cost(p)
    return Cost(2 * _grouped_flops(p), forward.bytes_read + forward.bytes_written, forward.bytes_read)


def _has_size_for_each(name: str, p: Params) -> bool:
    return len(p[name]) == len(p["M"])


def _pairs(p: Params, inputs: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(inputs[f"a{i}"], inputs[f"b{i}"]) for i in range(len(p["M"]))]


def _numpy_grouped(p: Params, **inputs: Any) -> Launch:
    pairs = _pairs(p, inputs)
    return lambda: tuple(np.matmul(a, b) for a, b in pairs)


def _torch_grouped(p: Params, **inputs: Any) -> Launch:
    from torch import mm

    pairs = _pairs(p, inputs)
    return lambda: tuple([mm(a, b) for a, b in pairs])


def _grouped() -> dict[str, Any]:
    """Return what both operators of grouped products have in common."""
    return {
        "category": "gemm",
        "inputs": _grouped_inputs,
        "cost": _grouped_cost,
        "backward_cost": _grouped_backward,
        "gradients": ("a*", "b*"),
        "reference": lambda p, **inputs: tuple(a @ b for a, b in _pairs(p, inputs)),
        "implementations": (numpy(_numpy_grouped), torch(_torch_grouped, "torch.mm")),
    }


GROUPED_GEMM = Operator(
    name="grouped_gemm",
    summary="independent products of different heights: c_i[M_i,N] = a_i[M_i,K] b_i[K,N]",
    params=(
        shape("M", "rows of each product, as in 512x256x64"),
        size("N", "columns of every b and c"),
        size("K", "columns of every a, rows of every b"),
        _dtype("quant_grouped_gemm"),
    ),
    tolerance=TERMS,
    presets={
        "small": {"M": [64, 32, 16, 8], "N": 64, "K": 64},
        "typical": {"M": [512, 256, 128, 64], "N": 512, "K": 512},
        "large": {"M": [4096, 2048, 1024, 512, 512, 256, 128, 64], "N": 4096, "K": 4096},
    },
    aliases=("group_gemm", "grouped_matmul"),
    **_grouped(),
)

GROUPED_GEMM_MIXED = Operator(
    name="grouped_gemm_mixed",
    summary="independent products of different sizes: c_i[M_i,N_i] = a_i[M_i,K_i] b_i[K_i,N_i]",
    params=(
        shape("M", "rows of each product, as in 512x256x64"),
        shape("N", "columns of each b and c"),
        shape("K", "columns of each a, rows of each b"),
        _dtype("quant_grouped_gemm"),
    ),
    tolerance=sum_of_products(lambda p: max(p["K"])),
    presets={
        "small": {"M": [64, 32, 16, 8], "N": [64, 16, 64, 32], "K": [32, 64, 64, 16]},
        "typical": {"M": [512, 256, 128, 64], "N": [512, 128, 256, 512], "K": [256, 512, 512, 128]},
        "large": {"M": [4096, 2048, 1024, 512], "N": [1024, 4096, 2048, 4096], "K": [4096, 2048, 4096, 1024]},
    },
    rules=tuple(
        ParamRule(name, f"have as many sizes as M={{M}} (got {{{name}}})", partial(_has_size_for_each, name))
        for name in "NK"
    ),
    **_grouped(),
)


def _gemv_inputs(p: Params) -> dict[str, TensorSpec]:
    return {"a": TensorSpec((p["M"], p["K"]), p["dtype"]), "x": TensorSpec((p["K"],), p["dtype"])}


def _gemv_cost(p: Params, added: int = 0) -> Cost:
    """Return the cost; `added` is the number of vectors that are added to the result."""
    m, k, size = p["M"], p["K"], sizeof(p["dtype"])
    return Cost((2 * k + added) * m, (m * k + k + added * m) * size, m * size)


def _gemv_backward(p: Params) -> Cost:
    """Count the outer product of the incoming gradient and x for a, and a product with the matrix for x."""
    m, k, size = p["M"], p["K"], sizeof(p["dtype"])
    return Cost(3 * m * k, (m * k + k + m) * size, (m * k + k) * size)


GEMV_PARAMS = (size("M", "rows of a, elements of y"), size("K", "columns of a, elements of x"), dtype(*FLOATS))
GEMV_PRESETS = {
    "small": {"M": 256, "K": 256},
    "typical": {"M": 2048, "K": 2048},
    "large": {"M": 16384, "K": 8192},
}

GEMV = Operator(
    name="gemv",
    summary="product of a matrix and a vector: y[M] = a[M,K] x[K]",
    category="gemm",
    params=GEMV_PARAMS,
    inputs=_gemv_inputs,
    cost=_gemv_cost,
    backward_cost=_gemv_backward,
    reference=lambda p, a, x: a @ x,
    tolerance=TERMS,
    presets=GEMV_PRESETS,
    gradients=("a", "x"),
    implementations=(calls("numpy.matmul", "a", "x"), calls("torch.mv", "a", "x")),
    aliases=("mv", "matvec"),
)

ADDMV = Operator(
    name="addmv",
    summary="y[M] = c[M] + a[M,K] x[K]",
    category="gemm",
    params=GEMV_PARAMS,
    inputs=lambda p: {"c": TensorSpec((p["M"],), p["dtype"]), **_gemv_inputs(p)},
    cost=lambda p: _gemv_cost(p, added=1),
    backward_cost=_gemv_backward,
    reference=lambda p, c, a, x: c + a @ x,
    tolerance=TERMS,
    presets=GEMV_PRESETS,
    gradients=("a", "x"),
    implementations=(formula(lambda p, c, a, x: c + a @ x), calls("torch.addmv", "c", "a", "x")),
)


def _linear_inputs(p: Params) -> dict[str, TensorSpec]:
    kind = storage(p["dtype"])
    return {"x": TensorSpec((p["M"], p["K"]), kind), "weight": TensorSpec((p["N"], p["K"]), kind)}


def _with_bias(p: Params) -> dict[str, TensorSpec]:
    return {**_linear_inputs(p), "bias": TensorSpec((p["N"],), storage(p["dtype"]))}


def _linear_cost(p: Params) -> Cost:
    bias, product = p["N"] * sizeof(p["dtype"]), _product(p)
    return Cost((2 * p["K"] + 1) * p["M"] * p["N"], product.bytes_read + bias, product.bytes_written)


def _linear_backward(p: Params) -> Cost:
    """The gradient of the bias is the sum over the rows of the incoming one."""
    bias, product = p["N"] * sizeof(p["dtype"]), _product_backward(p)
    return Cost((4 * p["K"] + 1) * p["M"] * p["N"], product.bytes_read, product.bytes_written + bias)


LINEAR_PARAMS = (
    size("M", "rows of x: tokens, or images of a batch"),
    size("N", "features out"),
    size("K", "features in"),
    _dtype("quant_matmul"),
)

LINEAR = Operator(
    name="linear",
    summary="a fully connected layer: y[M,N] = x[M,K] weight[N,K]ᵀ + bias[N]",
    category="gemm",
    params=LINEAR_PARAMS,
    inputs=_with_bias,
    cost=_linear_cost,
    backward_cost=_linear_backward,
    reference=lambda p, x, weight, bias: x @ weight.T + bias,
    tolerance=TERMS,
    presets=PRESETS,
    gradients=("x", "weight", "bias"),
    implementations=(
        formula(lambda p, x, weight, bias: x @ weight.T + bias),
        calls("torch.nn.functional.linear", "x", "weight", "bias"),
    ),
    aliases=("FullyConnected", "fully_connected", "Dense", "dense", "Linear"),
)

LINEAR_NO_BIAS = Operator(
    name="linear_no_bias",
    summary="a fully connected layer without a bias: y[M,N] = x[M,K] weight[N,K]ᵀ",
    category="gemm",
    params=LINEAR_PARAMS,
    inputs=_linear_inputs,
    cost=_product,
    backward_cost=_product_backward,
    reference=lambda p, x, weight: x @ weight.T,
    tolerance=TERMS,
    presets=PRESETS,
    gradients=("x", "weight"),
    implementations=(
        numpy(lambda p, x, weight: lambda: x @ weight.T, "numpy.matmul"),
        calls("torch.nn.functional.linear", "x", "weight"),
    ),
)


def _with_addend(batch: str | None = None) -> dict[str, Any]:
    """Return the common fields of operators c + a b; `batch` is the parameter that counts products."""

    def batch_dims(p: Params) -> tuple[int, ...]:
        return (p[batch],) if batch else ()

    def inputs(p: Params) -> dict[str, TensorSpec]:
        added = TensorSpec((*batch_dims(p), p["M"], p["N"]), storage(p["dtype"]))
        return {"c": added, **_matrices(p, *batch_dims(p))}

    def cost(p: Params) -> Cost:
        product, results = _product(p, *batch_dims(p)), inputs(p)["c"].elements
        flops = (2 * p["K"] + 1) * results
        added = product.bytes_written if p["beta"] else 0
        return Cost(flops, product.bytes_read + added, product.bytes_written)

    def backward(p: Params) -> Cost:
        """Return the backward cost of the product: the gradient of c is the incoming one and not computed."""
        return _product_backward(p, *batch_dims(p))

    def reference(p: Params, c: Any, a: Any, b: Any) -> Any:
        return p["beta"] * c + p["alpha"] * (a @ b)

    return {
        "category": "gemm",
        "inputs": inputs,
        "cost": cost,
        "backward_cost": backward,
        "reference": reference,
        "tolerance": TERMS,
        "gradients": ("a", "b"),
    }


ADDMM = Operator(
    name="addmm",
    summary="beta c[M,N] + alpha a[M,K] b[K,N]",
    params=(*MNK, *FACTORS, _dtype("quant_matmul")),
    presets=PRESETS,
    implementations=(
        formula(_with_addend()["reference"]),
        calls("torch.addmm", "c", "a", "b", alpha="alpha", beta="beta"),
    ),
    aliases=("linalg_gemm",),
    **_with_addend(),
)

BADDBMM = Operator(
    name="baddbmm",
    summary="B independent beta c[B,M,N] + alpha a[B,M,K] b[B,K,N]",
    params=(size("B", "number of products"), *MNK, *FACTORS, _dtype("quant_batched_matmul")),
    presets=BATCHED_PRESETS,
    implementations=(
        formula(_with_addend("B")["reference"]),
        calls("torch.baddbmm", "c", "a", "b", alpha="alpha", beta="beta"),
    ),
    **_with_addend("B"),
)

OPERATORS = (
    MATMUL,
    BATCHED_MATMUL,
    GROUPED_GEMM,
    GROUPED_GEMM_MIXED,
    GEMV,
    ADDMV,
    LINEAR,
    LINEAR_NO_BIAS,
    ADDMM,
    BADDBMM,
)
