"""Operators along an axis: sums, means, extrema, scans, sorting; and searching."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import np, np_row, refuse_float64, row, to_integers
from opmark.plugin import Params
from opmark.schema.tensor import is_float


def _along(p: Params) -> dict[str, Any]:
    return {"axis": p["axis"], "keepdims": p["keepdims"]}


def _drop_axis(p: Params, result: Any) -> Any:
    """Drop the axis of length 1 that `mxnet.nd` leaves if no axis remains."""
    return result if p["keepdims"] or len(p["shape"]) > 1 else result.reshape(())


def _sum(mx: Any, p: Params, x: Any) -> Any:
    """Sum integers in 64 bits, which `mxnet.np` needs as an argument."""
    return mx.np.sum(x, **_along(p), dtype=None if is_float(p["dtype"]) else "int64")


def _without_nan(mx: Any, x: Any, instead: float) -> Any:
    return mx.np.where(mx.np.isnan(x), mx.np.full_like(x, instead), x)


def _nanmean(mx: Any, p: Params, x: Any) -> Any:
    there = mx.np.logical_not(mx.np.isnan(x)).astype(x.dtype)
    return mx.np.sum(_without_nan(mx, x, 0.0), **_along(p)) / mx.np.sum(there, **_along(p))


def _logsumexp(mx: Any, p: Params, x: Any) -> Any:
    top = mx.np.max(x, axis=p["axis"], keepdims=True)
    total = mx.np.log(mx.np.sum(mx.np.exp(x - top), axis=p["axis"], keepdims=True)) + top
    return total if p["keepdims"] else mx.np.squeeze(total, p["axis"])


def _norm(mx: Any, p: Params, x: Any) -> Any:
    return _drop_axis(p, mx.nd.norm(x, ord=p["ord"], **_along(p)))


def _moments(mx: Any, p: Params, x: Any) -> Any:
    last = p["axes"] or len(p["shape"])
    mean, var = mx.nd.moments(x, axes=tuple(range(-last, 0)))
    return (var, mean) if last < len(p["shape"]) else (var.reshape(()), mean.reshape(()))


def _var(mx: Any, p: Params, x: Any) -> Any:
    """Compute the variance from moments: the gradient of `mxnet.np.var` is zero."""
    n = p["shape"][p["axis"]]
    var = mx.nd.moments(x, axes=(p["axis"],), keepdims=p["keepdims"])[1]
    var = var if p["correction"] == 0 else var * (n / (n - p["correction"]))
    return _drop_axis(p, var)


def _index_of(name: str) -> Any:
    """Make an implementation that finds an index; MXNet returns floats, which cannot hold every index."""

    def call(mx: Any, p: Params, x: Any) -> Any:
        return to_integers(_drop_axis(p, getattr(mx.nd, name)(x, **_along(p))))

    return row(call, f"mxnet.nd.{name}")


def _extreme(name: str) -> Any:
    """Make an implementation that returns value and index in two passes, as MXNet has no function for both."""

    def call(mx: Any, p: Params, x: Any) -> Any:
        value, place = (_drop_axis(p, getattr(mx.nd, kind)(x, **_along(p))) for kind in (name, f"arg{name}"))
        return value, to_integers(place)

    return row(call)


def _truth(reduce: str) -> Any:
    def call(mx: Any, p: Params, x: Any) -> Any:
        return getattr(mx.np, reduce)(x, **_along(p))

    return np_row(call, f"mxnet.np.{reduce}")


def _count_nonzero(mx: Any, p: Params, x: Any) -> Any:
    return mx.np.sum(x != 0, axis=p["axis"], dtype="int64")


def _finite(mx: Any, p: Params, **tensors: Any) -> Any:
    several = list(tensors.values())
    found = mx.nd.all_finite(several[0]) if len(several) == 1 else mx.nd.multi_all_finite(
        *several, num_arrays=len(several)
    )  # fmt: skip
    return found.reshape(()).astype("bool")


def _sum_sq(mx: Any, p: Params, **tensors: Any) -> Any:
    return mx.nd.multi_sum_sq(*tensors.values(), num_arrays=len(tensors))


def _sort(mx: Any, p: Params, x: Any) -> Any:
    how = {"axis": p["axis"], "is_ascend": not p["descending"]}
    return mx.nd.topk(x, k=0, ret_typ="both", dtype="int64", **how)


def _argsort(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.argsort(x, axis=p["axis"], is_ascend=not p["descending"], dtype="int64")


def _topk(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.topk(x, k=p["k"], ret_typ="both", is_ascend=not p["largest"], dtype="int64")


def _kth(mx: Any, p: Params, x: Any, k: int) -> Any:
    values, places = mx.nd.topk(x, axis=p["axis"], k=k, ret_typ="both", is_ascend=True, dtype="int64")
    found = [mx.nd.slice_axis(part, axis=p["axis"], begin=k - 1, end=k) for part in (values, places)]
    return found if p["keepdims"] else [_drop_axis(p, mx.nd.squeeze(part, axis=p["axis"])) for part in found]


def _median(mx: Any, p: Params, x: Any) -> Any:
    return _kth(mx, p, x, (p["shape"][p["axis"]] - 1) // 2 + 1)


def _unique(mx: Any, p: Params, x: Any) -> Any:
    found = mx.np.unique(x, return_inverse=p["inverse"], return_counts=p["counts"])
    if not p["inverse"]:
        return found
    values, inverse, *counts = found
    return values, inverse.reshape(x.shape), *counts


def _histogram(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.histogram(x, bins=p["bins"], range=(-1.0, 1.0))[0].astype(p["dtype"])


def _bincount(mx: Any, p: Params, x: Any) -> Any:
    return to_integers(mx.np.bincount(x, minlength=p["bins"]))


def _diff(mx: Any, p: Params, x: Any) -> Any:
    if not is_float(p["dtype"]):
        raise Unsupported("mxnet.np.diff takes floats")
    return mx.np.diff(x, axis=p["axis"])


IMPLEMENTATIONS = {
    "reduce_sum": np_row(_sum, "mxnet.np.sum"),
    "reduce_mean": np("mean", "x", axis="axis", keepdims="keepdims"),
    "prod": np("prod", "x", axis="axis", keepdims="keepdims"),
    "nansum": np_row(lambda mx, p, x: mx.np.sum(_without_nan(mx, x, 0.0), **_along(p))),
    "nanprod": np_row(lambda mx, p, x: mx.np.prod(_without_nan(mx, x, 1.0), **_along(p))),
    "nanmean": np_row(_nanmean),
    "var": row(_var, "mxnet.nd.moments"),
    "std": row(lambda mx, p, x: mx.nd.sqrt(_var(mx, p, x))),
    "norm": row(_norm, "mxnet.nd.norm"),
    "logsumexp": np_row(_logsumexp),
    "moments": row(_moments, "mxnet.nd.moments"),
    "amax": np("max", "x", axis="axis", keepdims="keepdims"),
    "amin": np("min", "x", axis="axis", keepdims="keepdims"),
    "reduce_max": _extreme("max"),
    "reduce_min": _extreme("min"),
    "argmax": _index_of("argmax"),
    "argmin": _index_of("argmin"),
    "median": row(_median, "mxnet.nd.topk"),
    "kthvalue": row(lambda mx, p, x: _kth(mx, p, x, p["k"]), "mxnet.nd.topk"),
    "any": _truth("any"),
    "all": _truth("all"),
    "count_nonzero": np_row(_count_nonzero),
    "all_finite": row(_finite, "mxnet.nd.all_finite"),
    "multi_all_finite": row(_finite, "mxnet.nd.multi_all_finite"),
    "multi_sum_sq": refuse_float64(row(_sum_sq, "mxnet.nd.multi_sum_sq"), "the sums"),
    "trace": np("trace", "x"),
    "sort": row(_sort, "mxnet.nd.topk"),
    "argsort": row(_argsort, "mxnet.nd.argsort"),
    "topk": row(_topk, "mxnet.nd.topk"),
    "unique": np_row(_unique, "mxnet.np.unique"),
    "nonzero": np_row(lambda mx, p, x: mx.npx.nonzero(x), "mxnet.npx.nonzero"),
    "histogram": row(_histogram, "mxnet.nd.histogram"),
    "bincount": np_row(_bincount, "mxnet.np.bincount"),
    "cumsum": np_row(lambda mx, p, x: mx.np.cumsum(x, axis=p["axis"] % x.ndim), "mxnet.np.cumsum"),
    "diff": np_row(_diff, "mxnet.np.diff"),
}
