"""Products of matrices and tensors, linear algebra, triangles."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import nd, np, np_row, row
from opmark.plugin import Params


def _grouped(mx: Any, p: Params, **inputs: Any) -> Any:
    return [mx.nd.dot(inputs[f"a{i}"], inputs[f"b{i}"]) for i in range(len(p["M"]))]


def _linear(mx: Any, p: Params, x: Any, weight: Any, bias: Any = None) -> Any:
    return mx.nd.FullyConnected(x, weight, bias, num_hidden=p["N"], no_bias=bias is None)


def _gemm(mx: Any, p: Params, c: Any, a: Any, b: Any) -> Any:
    return mx.nd.linalg.gemm(a, b, c, alpha=p["alpha"], beta=p["beta"])


def _kron(mx: Any, p: Params, a: Any, b: Any) -> Any:
    blocks = mx.nd.broadcast_mul(a.reshape((p["M"], 1, p["N"], 1)), b.reshape((1, p["P"], 1, p["Q"])))
    return blocks.reshape((p["M"] * p["P"], p["N"] * p["Q"]))


def _bilinear(mx: Any, p: Params, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    """Multiply x with every matrix of the weight at once, then the result with y."""
    left = mx.nd.dot(x, weight.transpose((1, 0, 2)).reshape((p["I"], -1))).reshape((p["B"], p["O"], p["J"]))
    return mx.nd.broadcast_add(mx.nd.batch_dot(left, y.expand_dims(2)).squeeze(axis=2), bias)


def _multi_dot(mx: Any, p: Params, a: Any, b: Any, c: Any) -> Any:
    i, j, k, n = p["sizes"]
    if i * j * k + i * k * n <= j * k * n + i * j * n:
        return mx.nd.dot(mx.nd.dot(a, b), c)
    return mx.nd.dot(a, mx.nd.dot(b, c))


def _einsum(mx: Any, p: Params, a: Any, b: Any) -> Any:
    return mx.np.einsum("{},{}->{}".format(*p["equation"].split("-")), a, b)


def _cross(mx: Any, p: Params, x: Any, y: Any) -> Any:
    (x0, x1, x2), (y0, y1, y2) = (mx.nd.split(v, num_outputs=3, axis=-1) for v in (x, y))
    return mx.nd.concat(x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0, dim=-1)


def _cdist(mx: Any, p: Params, x: Any, y: Any) -> Any:
    away = mx.nd.broadcast_sub(x.expand_dims(2), y.expand_dims(1))
    return mx.nd.sqrt(mx.nd.sum(mx.nd.square(away), axis=-1))


def _matrix_power(mx: Any, p: Params, a: Any) -> Any:
    """Compute the power by squaring: MXNet's own function falls back to NumPy."""
    result, square, power = None, a, p["power"]
    while power:
        if power % 2:
            result = square if result is None else mx.nd.linalg.gemm2(result, square)
        power //= 2
        square = mx.nd.linalg.gemm2(square, square) if power else square
    return result if p["power"] > 1 else mx.nd.identity(result)


def _svdvals(mx: Any, p: Params, a: Any) -> Any:
    """Transpose tall matrices, as MXNet decomposes only wide ones."""
    return mx.np.linalg.svd(a if p["m"] <= p["n"] else mx.np.swapaxes(a, -1, -2))[1]


def _lq(mx: Any, p: Params, a: Any) -> Any:
    return mx.nd.linalg.gelqf(a)


def _diag(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.diag(x, k=p["k"]) if x.ndim == 2 else mx.nd.diag(x, k=p["k"], axis1=-2, axis2=-1)


def _triangular(name: str) -> Any:
    def call(mx: Any, p: Params, a: Any, b: Any) -> Any:
        return getattr(mx.nd.linalg, name)(a, b, lower=not p["upper"])

    return row(call, f"mxnet.nd.linalg.{name}")


def _trian(name: str) -> Any:
    def call(mx: Any, p: Params, x: Any) -> Any:
        if p["upper"]:
            raise Unsupported("MXNet packs upper triangles in the order of the lower ones")
        return getattr(mx.nd.linalg, name)(x)

    return row(call, f"mxnet.nd.linalg.{name}")


IMPLEMENTATIONS = {
    "matmul": nd("dot", "a", "b"),
    "batched_matmul": nd("batch_dot", "a", "b"),
    "grouped_gemm": row(_grouped, "mxnet.nd.dot"),
    "grouped_gemm_mixed": row(_grouped, "mxnet.nd.dot"),
    "gemv": nd("dot", "a", "x"),
    "addmv": row(lambda mx, p, c, a, x: c + mx.nd.dot(a, x)),
    "linear": row(_linear, "mxnet.nd.FullyConnected"),
    "linear_no_bias": row(_linear, "mxnet.nd.FullyConnected"),
    "addmm": row(_gemm, "mxnet.nd.linalg.gemm"),
    "baddbmm": row(_gemm, "mxnet.nd.linalg.gemm"),
    "tensordot": np_row(lambda mx, p, a, b: mx.np.tensordot(a, b, len(p["K"])), "mxnet.np.tensordot"),
    "khatri_rao": nd("khatri_rao", "a", "b"),
    "kron": row(_kron),
    "bilinear": row(_bilinear),
    "multi_dot": row(_multi_dot, "mxnet.nd.dot"),
    "einsum": np_row(_einsum, "mxnet.np.einsum"),
    "outer": np("outer", "x", "y"),
    "addr": np_row(lambda mx, p, c, x, y: c + mx.np.outer(x, y)),
    "inner": row(lambda mx, p, x, y: mx.nd.sum(x * y, axis=-1)),
    "cross": row(_cross),
    "cdist": row(_cdist),
    "det": nd("linalg.det", "a"),
    "slogdet": nd("linalg.slogdet", "a"),
    "inverse": nd("linalg.inverse", "a"),
    "solve": np("linalg.solve", "a", "b"),
    "cholesky": nd("linalg.potrf", "a"),
    "cholesky_inverse": nd("linalg.potri", "a"),
    "triangular_solve": _triangular("trsm"),
    "trmm": _triangular("trmm"),
    "syrk": nd("linalg.syrk", "a"),
    "matrix_power": row(_matrix_power),
    "svdvals": np_row(_svdvals, "mxnet.np.linalg.svd"),
    "eigvalsh": np("linalg.eigvalsh", "a"),
    "lq": row(_lq, "mxnet.nd.linalg.gelqf"),
    "sumlogdiag": nd("linalg.sumlogdiag", "x"),
    "diag": row(_diag, "mxnet.nd.diag"),
    "diag_embed": nd("linalg.makediag", "x", offset="k"),
    "tril": np("tril", "x", k="k"),
    "triu": np_row(lambda mx, p, x: x - mx.np.tril(x, p["k"] - 1)),
    "extract_triangle": _trian("extracttrian"),
    "make_triangle": _trian("maketrian"),
}
