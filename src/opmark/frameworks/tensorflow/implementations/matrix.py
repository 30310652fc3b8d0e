"""Products of matrices and tensors, linear layers, attention, linear algebra."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.implementation import calls
from opmark.frameworks.tensorflow.implementations._rows import implement, refuse_gradient
from opmark.frameworks.tensorflow.implementations.elementwise import gelu
from opmark.plugin import Params
from opmark.schema.tensor import FLOATS8


def _linear(tf: Any, x: Any, weight: Any) -> Any:
    """Multiply with weights [N,K], as the catalogue has them."""
    return tf.matmul(x, weight, transpose_b=True)


def _linear_with_bias(tf: Any, x: Any, weight: Any, bias: Any) -> Any:
    return tf.nn.bias_add(_linear(tf, x, weight), bias)


def _add_product(tf: Any, p: Params, c: Any, a: Any, b: Any) -> Any:
    product = tf.matmul(a, b)
    product = product if p["alpha"] == 1 else p["alpha"] * product
    return product + (c if p["beta"] == 1 else p["beta"] * c)


def _multi_dot(tf: Any, p: Params, a: Any, b: Any, c: Any) -> Any:
    """Multiply in the cheaper order, which TensorFlow does not choose itself."""
    i, j, k, n = p["sizes"]
    left = i * k * (j + n) <= j * n * (k + i)
    return tf.matmul(tf.matmul(a, b), c) if left else tf.matmul(a, tf.matmul(b, c))


def _kron(tf: Any, p: Params, a: Any, b: Any) -> Any:
    blocks = a[:, None, :, None] * b[None, :, None, :]
    return tf.reshape(blocks, (p["M"] * p["P"], p["N"] * p["Q"]))


def _cdist(tf: Any, p: Params, x: Any, y: Any) -> Any:
    """Compute distances from |x|² - 2 x y + |y|², as TensorFlow has no function for it."""
    squares = tf.reduce_sum(tf.square(x), -1)[:, :, None] + tf.reduce_sum(tf.square(y), -1)[:, None, :]
    return tf.sqrt(tf.nn.relu(squares - 2 * tf.matmul(x, y, transpose_b=True)))


def _einsum(tf: Any, p: Params, a: Any, b: Any) -> Any:
    first, second, out = p["equation"].split("-")
    return tf.einsum(f"{first},{second}->{out}", a, b)


def _grouped(tf: Any, p: Params, **tensors: Any) -> Any:
    return tuple(tf.matmul(tensors[f"a{i}"], tensors[f"b{i}"]) for i in range(len(tensors) // 2))


def _attend(tf: Any, q: Any, k: Any, v: Any, seen: Any = None) -> Any:
    scores = tf.matmul(q, k, transpose_b=True) * (q.shape[-1] ** -0.5)
    if seen is not None:
        scores = tf.where(seen, scores, tf.constant(float("-inf"), scores.dtype))
    return tf.matmul(tf.nn.softmax(scores), v)


def _attention(tf: Any, p: Params, q: Any, k: Any, v: Any) -> Any:
    """Compose attention, as TensorFlow has no function for it. Several query heads may share a head of keys."""
    if p["dtype"] in FLOATS8:
        raise Unsupported(f"TensorFlow has no product of {p['dtype']} matrices")
    batch, heads, length, dim = q.shape
    seen = None
    if p["causal"]:
        seen = tf.linalg.band_part(tf.ones((length, k.shape[2]), tf.bool), -1, 0)
    shared = heads // k.shape[1]
    if shared == 1:
        return _attend(tf, q, k, v, seen)
    grouped = tf.reshape(q, (batch, k.shape[1], shared, length, dim))
    return tf.reshape(_attend(tf, grouped, k[:, :, None], v[:, :, None], seen), q.shape)


def _rotary(tf: Any, p: Params, packed_qkv: Any, cos: Any, sin: Any) -> Any:
    if p["q_lens"] or p["cache_lens"]:
        raise Unsupported("TensorFlow's implementation takes only sequences of equal length")
    start, dim = p["rope_offset"], p["rope_dim"] or p["head_dim"] - p["rope_offset"]
    places = tf.tile(tf.range(p["cache_len"], p["cache_len"] + p["q_len"]), [p["batch"]])
    kept = packed_qkv[:, : p["q_heads"] + p["kv_heads"]]
    x = kept[..., start : start + dim]
    other = tf.concat([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)
    turned = x * tf.gather(cos, places)[:, None] + other * tf.gather(sin, places)[:, None]
    if dim == p["head_dim"]:
        return turned
    return tf.concat([kept[..., :start], turned, kept[..., start + dim :]], axis=-1)


def _power(tf: Any, p: Params, a: Any) -> Any:
    """Compute the power by squaring, as TensorFlow has no function for it."""
    n, square, found = p["power"], a, None
    if n < 1:
        raise Unsupported(f"TensorFlow's implementation has no power of {n}")
    while n:
        if n & 1:
            found = square if found is None else tf.matmul(found, square)
        n >>= 1
        square = tf.matmul(square, square) if n else square
    return found


def _half(tf: Any, p: Params, a: Any) -> Any:
    return tf.linalg.band_part(a, 0, -1) if p["upper"] else tf.linalg.band_part(a, -1, 0)


def _lq(tf: Any, p: Params, a: Any) -> Any:
    q, r = tf.linalg.qr(tf.linalg.matrix_transpose(a))
    return tf.linalg.matrix_transpose(q), tf.linalg.matrix_transpose(r)


_LOWER = "TensorFlow's gradient is that of the lower triangle alone"


def _cholesky_inverse(tf: Any, p: Params, a: Any) -> Any:
    def function(a: Any) -> Any:
        return tf.linalg.cholesky_solve(a, tf.eye(p["n"], batch_shape=[a.shape[0]], dtype=a.dtype))

    return refuse_gradient(tf, function, a, _LOWER)


def _eigvalsh(tf: Any, p: Params, a: Any) -> Any:
    return refuse_gradient(tf, tf.linalg.eigvalsh, a, _LOWER)


IMPLEMENTATIONS = {
    "matmul": calls("tensorflow.matmul", "a", "b"),
    "batched_matmul": calls("tensorflow.matmul", "a", "b"),
    "gemv": calls("tensorflow.linalg.matvec", "a", "x"),
    "addmv": implement(lambda tf, p, c, a, x: c + tf.linalg.matvec(a, x)),
    "addmm": implement(_add_product),
    "baddbmm": implement(_add_product),
    "linear": implement(lambda tf, p, x, weight, bias: _linear_with_bias(tf, x, weight, bias)),
    "linear_no_bias": implement(lambda tf, p, x, weight: _linear(tf, x, weight), "tensorflow.matmul"),
    "linear_relu": implement(lambda tf, p, x, weight, bias: tf.nn.relu(_linear_with_bias(tf, x, weight, bias))),
    "linear_gelu": implement(
        lambda tf, p, x, weight, bias: gelu(tf, _linear_with_bias(tf, x, weight, bias), p["approximate"] == "tanh")
    ),
    "linear_add": implement(lambda tf, p, x, weight, other: other + _linear(tf, x, weight)),
    "grouped_gemm": implement(_grouped),
    "grouped_gemm_mixed": implement(_grouped),
    "outer": implement(lambda tf, p, x, y: tf.tensordot(x, y, 0), "tensorflow.tensordot"),
    "addr": implement(lambda tf, p, c, x, y: c + tf.tensordot(x, y, 0)),
    "inner": implement(lambda tf, p, x, y: tf.reduce_sum(x * y, axis=-1)),
    "tensordot": implement(lambda tf, p, a, b: tf.tensordot(a, b, len(p["K"])), "tensorflow.tensordot"),
    "einsum": implement(_einsum, "tensorflow.einsum"),
    "cross": implement(lambda tf, p, x, y: tf.linalg.cross(x, y), "tensorflow.linalg.cross"),
    "kron": implement(_kron),
    "khatri_rao": implement(lambda tf, p, a, b: tf.reshape(a[:, None, :] * b[None, :, :], (-1, p["N"]))),
    "bilinear": implement(lambda tf, p, x, y, weight, bias: tf.einsum("bi,oij,bj->bo", x, weight, y) + bias),
    "multi_dot": implement(_multi_dot),
    "cdist": implement(_cdist),
    "scaled_dot_product_attention": implement(_attention),
    "matmul_softmax_matmul": implement(lambda tf, p, q, k, v: _attend(tf, q, k, v)),
    "rotary_embedding": implement(_rotary),
    **{name: calls(f"tensorflow.linalg.{function}", "a") for name, function in {
        "det": "det", "slogdet": "slogdet", "inverse": "inv", "cholesky": "cholesky", "qr": "qr",
    }.items()},
    "svdvals": calls("tensorflow.linalg.svd", "a", fixed={"compute_uv": False}),
    "solve": calls("tensorflow.linalg.solve", "a", "b"),
    "lstsq": calls("tensorflow.linalg.lstsq", "a", "b"),
    "triangular_solve": implement(
        lambda tf, p, a, b: tf.linalg.triangular_solve(a, b, lower=not p["upper"]), "tensorflow.linalg.triangular_solve"
    ),
    "trmm": implement(lambda tf, p, a, b: tf.matmul(_half(tf, p, a), b)),
    "syrk": implement(lambda tf, p, a: tf.matmul(a, a, transpose_b=True), "tensorflow.matmul"),
    "matrix_power": implement(_power),
    "lq": implement(_lq),
    "eigvalsh": implement(_eigvalsh, "tensorflow.linalg.eigvalsh"),
    "cholesky_inverse": implement(_cholesky_inverse),
}  # fmt: skip
