"""Sums, extrema and their indices along an axis; scans; sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmark.frameworks.implementation import calls
from opmark.frameworks.jax.implementations._modules import jnp, lax, row, wide
from opmark.plugin import Implementation, Params

_ALONG = {
    **{name: f"jax.numpy.{name}" for name in ("any", "all", "argmax", "argmin", "nansum", "nanmean", "nanprod")},
    **{name: f"jax.numpy.{name}" for name in ("amax", "amin", "prod")},
    "reduce_sum": "jax.numpy.sum",
    "reduce_mean": "jax.numpy.mean",
    "logsumexp": "jax.scipy.special.logsumexp",
}


def _with_index(extremum: str, place: str) -> Implementation:
    """Make an implementation that returns value and index by two functions, which a compiler may fuse."""

    def call(p: Params, x: Any) -> Any:
        along = {"axis": p["axis"], "keepdims": p["keepdims"]}
        return getattr(jnp, extremum)(x, **along), getattr(jnp, place)(x, **along)

    return row(call, f"jax.numpy.{extremum}")


def _at_rank(rank: Callable[[Params, int], int]) -> Implementation:
    """Make an implementation that finds the element of that rank and its index by sorting, as JAX has no selection."""

    def call(p: Params, x: Any) -> Any:
        axis, which = p["axis"], rank(p, x.shape[p["axis"]])
        values, places = _sort_with_indices(x, axis)
        found = (lax.slice_in_dim(one, which, which + 1, axis=axis % x.ndim) for one in (values, places))
        return tuple(one if p["keepdims"] else jnp.squeeze(one, axis) for one in found)

    return row(call)


def _sort_with_indices(x: Any, axis: int) -> tuple[Any, Any]:
    axis %= x.ndim
    places = lax.broadcasted_iota(jnp.int64, x.shape, axis)
    values, order = lax.sort((x, places), dimension=axis, num_keys=1)
    return values, order


def _sort(p: Params, x: Any) -> Any:
    values, places = _sort_with_indices(x, p["axis"])
    return (jnp.flip(values, p["axis"]), jnp.flip(places, p["axis"])) if p["descending"] else (values, places)


def _topk(p: Params, x: Any) -> Any:
    if p["largest"]:
        return tuple(lax.top_k(x, p["k"]))
    values, places = lax.top_k(-x, p["k"])
    return -values, places


def _norm(p: Params, x: Any) -> Any:
    return jnp.linalg.norm(wide(x), ord=p["ord"], axis=p["axis"], keepdims=p["keepdims"]).astype(x.dtype)


def _moments(p: Params, x: Any) -> Any:
    axes = tuple(range(-(p["axes"] or x.ndim), 0))
    return jnp.var(x, axis=axes), jnp.mean(x, axis=axes)


def _cumulative(better: str) -> Implementation:
    """Make an associative scan over pairs of value and index; of equal values the earlier one wins."""

    def call(p: Params, x: Any) -> Any:
        from jax.lax import associative_scan

        def later(one: Any, other: Any) -> Any:
            takes = getattr(jnp, better)(other[0], one[0])
            return jnp.where(takes, other[0], one[0]), jnp.where(takes, other[1], one[1])

        axis = p["axis"] % x.ndim
        return associative_scan(later, (x, lax.broadcasted_iota(jnp.int64, x.shape, axis)), axis=axis)

    return row(call, "jax.lax.associative_scan")


def _finite(p: Params, **tensors: Any) -> Any:
    return jnp.stack([jnp.isfinite(x).all() for x in tensors.values()]).all()


def _squares(p: Params, **tensors: Any) -> Any:
    return jnp.stack([jnp.square(wide(x)).sum() for x in tensors.values()])


IMPLEMENTATIONS = {
    **{name: calls(path, "x", axis="axis", keepdims="keepdims") for name, path in _ALONG.items()},
    **{name: calls(f"jax.numpy.{name}", "x", axis="axis", keepdims="keepdims", ddof="correction")
       for name in ("var", "std")},
    "count_nonzero": calls("jax.numpy.count_nonzero", "x", axis="axis"),
    "all_finite": row(_finite),
    "multi_all_finite": row(_finite),
    "multi_sum_sq": row(_squares),
    "reduce_max": _with_index("max", "argmax"),
    "reduce_min": _with_index("min", "argmin"),
    "median": _at_rank(lambda p, n: (n - 1) // 2),
    "kthvalue": _at_rank(lambda p, n: int(p["k"]) - 1),
    "norm": row(_norm, "jax.numpy.linalg.norm"),
    "moments": row(_moments),
    "trace": calls("jax.numpy.trace", "x"),
    "sumlogdiag": row(lambda p, x: jnp.log(jnp.diagonal(x, axis1=-2, axis2=-1)).sum(-1)),
    "cumsum": calls("jax.numpy.cumsum", "x", axis="axis"),
    "cumprod": calls("jax.numpy.cumprod", "x", axis="axis"),
    "cummax": _cumulative("greater"),
    "cummin": _cumulative("less"),
    "logcumsumexp": row(lambda p, x: lax.cumlogsumexp(x, axis=p["axis"] % x.ndim), "jax.lax.cumlogsumexp"),
    "diff": calls("jax.numpy.diff", "x", axis="axis"),
    "sort": row(_sort, "jax.lax.sort"),
    "argsort": calls("jax.numpy.argsort", "x", axis="axis", descending="descending"),
    "topk": row(_topk, "jax.lax.top_k"),
}  # fmt: skip
