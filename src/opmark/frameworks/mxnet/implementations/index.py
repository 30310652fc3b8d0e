"""Reading and writing by index, masks, operators in place, copies."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import np, np_row, row, to_integers
from opmark.plugin import Params


def _embedding(table: str) -> Any:
    def call(mx: Any, p: Params, indices: Any, **tables: Any) -> Any:
        weight = tables[table]
        return mx.nd.Embedding(indices, weight, input_dim=weight.shape[0], output_dim=weight.shape[1])

    return row(call, "mxnet.nd.Embedding")


def _take(mx: Any, p: Params, x: Any, index: Any) -> Any:
    return mx.nd.take(x, index, axis=p["axis"])


def _places(mx: Any, p: Params, x: Any, index: Any) -> Any:
    """Return the coordinates of elements along an axis as gather_nd wants them: one row per axis of x."""
    axis = p["axis"] % x.ndim
    rows = []
    for i, n in enumerate(index.shape):
        line = mx.nd.arange(n, dtype="int64").reshape(tuple(n if j == i else 1 for j in range(x.ndim)))
        rows.append(index if i == axis else mx.nd.broadcast_to(line, shape=index.shape))
    return mx.nd.stack(*rows, axis=0)


def _gather(mx: Any, p: Params, x: Any, index: Any) -> Any:
    return mx.nd.gather_nd(x, _places(mx, p, x, index))


def _pick(mx: Any, p: Params, x: Any, index: Any) -> Any:
    return mx.nd.pick(x, index, axis=p["axis"], keepdims=p["keepdims"])


def _unravel(mx: Any, p: Params, index: Any) -> Any:
    found = to_integers(mx.nd.unravel_index(index, shape=tuple(p["shape"])))
    return mx.nd.split(found, num_outputs=len(p["shape"]), axis=0, squeeze_axis=True)


def _masked_fill(mx: Any, p: Params, x: Any, mask: Any) -> Any:
    return mx.np.where(mask, mx.np.full_like(x, p["value"]), x)


def _masked_select(mx: Any, p: Params, x: Any, mask: Any) -> Any:
    return x.reshape(-1)[mask.reshape(-1)]


def _index_put(mx: Any, p: Params, x: Any, index: Any, src: Any) -> Any:
    return mx.nd.contrib.index_copy(x, index, src)


def _index_fill(mx: Any, p: Params, x: Any, index: Any) -> Any:
    if p["axis"] % x.ndim:
        raise Unsupported("MXNet copies rows only along the first axis")
    rows = mx.nd.full((p["indices"], *x.shape[1:]), p["value"], dtype=x.dtype)
    return mx.nd.contrib.index_copy(x, index, rows)


def _write_over_x(operation: Any) -> Any:
    """Make an implementation that writes the result over x."""
    return row(lambda mx, p, x, **others: operation(mx, p, x, *others.values()))


def _assign(name: str) -> Any:
    return _write_over_x(lambda mx, p, x, y: getattr(mx.nd, name)(x, y, out=x))


def _replace(name: str) -> Any:
    return _write_over_x(lambda mx, p, x: getattr(mx.nd, name)(x, out=x))


IMPLEMENTATIONS = {
    "embedding": _embedding("weight"),
    "hash_table": _embedding("table"),
    **{name: row(_take, "mxnet.nd.take") for name in ("take", "index_select", "gather_rows")},
    "take_flat": row(lambda mx, p, x, index: mx.nd.take(x.reshape((-1,)), index), "mxnet.nd.take"),
    **{name: row(_gather, "mxnet.nd.gather_nd") for name in ("gather", "take_along_axis")},
    "gather_nd": row(lambda mx, p, x, index: mx.nd.gather_nd(x, index), "mxnet.nd.gather_nd"),
    "pick": row(_pick, "mxnet.nd.pick"),
    "one_hot": row(lambda mx, p, index: mx.nd.one_hot(index, depth=p["depth"], dtype="int64"), "mxnet.nd.one_hot"),
    "ravel_multi_index": row(lambda mx, p, index: mx.nd.ravel_multi_index(index, shape=tuple(p["shape"])),
                             "mxnet.nd.ravel_multi_index"),
    "unravel_index": row(_unravel, "mxnet.nd.unravel_index"),
    "where": np("where", "condition", "x", "y"),
    "masked_fill": np_row(_masked_fill),
    "masked_select": np_row(_masked_select),
    "index_put": row(_index_put, "mxnet.nd.contrib.index_copy"),
    "index_fill": row(_index_fill),
    "iadd": _assign("broadcast_add"),
    "isub": _assign("broadcast_sub"),
    "imul": _assign("broadcast_mul"),
    "idiv": _assign("broadcast_div"),
    "imod": _assign("broadcast_mod"),
    "ipow": _assign("broadcast_power"),
    **{f"{name}_": _replace(name) for name in ("relu", "sigmoid", "tanh", "abs", "sqrt", "cos")},
    "neg_": _replace("negative"),
    "clamp_": _write_over_x(lambda mx, p, x: mx.nd.clip(x, p["low"], p["high"], out=x)),
}  # fmt: skip
