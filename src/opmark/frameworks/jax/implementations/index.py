"""Reading, writing and adding by index; masks, searches and counts.

If the length of a result depends on the data, JAX gets the length as a parameter, which it needs to compile.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opmark.frameworks.implementation import calls
from opmark.frameworks.jax.implementations._modules import jnp, row
from opmark.plugin import Params


def _along(p: Params, index: Any, rank: int) -> tuple[Any, ...]:
    """Return the full coordinates of an index along one axis."""
    axis = p["axis"] % rank
    grid = jnp.meshgrid(*(jnp.arange(n) for n in index.shape), indexing="ij", sparse=True)
    return tuple(index if i == axis else places for i, places in enumerate(grid))


def _rows(p: Params, rank: int, index: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * (p["axis"] % rank), index)


def _gather_rows(p: Params, x: Any, index: Any) -> Any:
    """Gather with one index per row, expanded along it."""
    axis = p["axis"] % x.ndim
    shape = tuple(p["indices"] if i == axis else 1 for i in range(x.ndim))
    return jnp.take_along_axis(x, index.reshape(shape), axis=axis)


def _pick(p: Params, x: Any, index: Any) -> Any:
    found = jnp.take_along_axis(x, jnp.expand_dims(index, p["axis"]), axis=p["axis"])
    return found if p["keepdims"] else jnp.squeeze(found, p["axis"])


def _index_fill(p: Params, x: Any, index: Any) -> Any:
    return x.at[_rows(p, x.ndim, index)].set(p["value"])


def _count_selected(p: Params) -> int:
    return max(1, int(prod(p["shape"]) * p["density"]))


def _masked_select(p: Params, x: Any, mask: Any) -> Any:
    return x[jnp.nonzero(mask, size=_count_selected(p))]


def _nonzero(p: Params, x: Any) -> Any:
    return jnp.stack(jnp.nonzero(x, size=_count_selected(p)), axis=1)


def _unique(p: Params, x: Any) -> Any:
    size = max(1, x.size // p["repeats"])
    return jnp.unique(x, return_inverse=p["inverse"], return_counts=p["counts"], size=size)


def _searchsorted(p: Params, table: Any, values: Any) -> Any:
    return jnp.searchsorted(table, values, side="right" if p["right"] else "left").astype("int64")


def _histogram(p: Params, x: Any) -> Any:
    return jnp.histogram(x, p["bins"], (-1.0, 1.0))[0].astype(x.dtype)


def _sequence_mask(p: Params, x: Any, lengths: Any) -> Any:
    behind = jnp.arange(p["steps"])[:, None] >= lengths
    return jnp.where(behind[..., None], p["value"], x)


def _sequence_reverse(p: Params, x: Any, lengths: Any) -> Any:
    steps = jnp.arange(p["steps"])[:, None]
    source = jnp.where(steps < lengths, lengths - 1 - steps, steps)
    return jnp.take_along_axis(x, source[..., None], axis=0)


def _ravel(p: Params, index: Any) -> Any:
    return jnp.ravel_multi_index(tuple(index), tuple(p["shape"]), mode="clip")


IMPLEMENTATIONS = {
    "embedding": calls("jax.numpy.take", "weight", "indices", fixed={"axis": 0}),
    "hash_table": calls("jax.numpy.take", "table", "indices", fixed={"axis": 0}),
    "index_select": calls("jax.numpy.take", "x", "index", axis="axis"),
    "take": calls("jax.numpy.take", "x", "index", axis="axis"),
    "take_flat": calls("jax.numpy.take", "x", "index"),
    "gather": calls("jax.numpy.take_along_axis", "x", "index", axis="axis"),
    "take_along_axis": calls("jax.numpy.take_along_axis", "x", "index", axis="axis"),
    "gather_rows": row(_gather_rows, "jax.numpy.take_along_axis"),
    "pick": row(_pick, "jax.numpy.take_along_axis"),
    "gather_nd": row(lambda p, x, index: x[tuple(index)]),
    "ravel_multi_index": row(_ravel, "jax.numpy.ravel_multi_index"),
    "unravel_index": row(lambda p, index: jnp.unravel_index(index, tuple(p["shape"])), "jax.numpy.unravel_index"),
    "scatter": row(lambda p, x, index, src: x.at[_along(p, index, x.ndim)].set(src)),
    "scatter_add": row(lambda p, x, index, src: x.at[_along(p, index, x.ndim)].add(src)),
    "index_add": row(lambda p, x, index, src: x.at[_rows(p, x.ndim, index)].add(src)),
    "index_put": row(lambda p, x, index, src: x.at[index].set(src)),
    "index_fill": row(_index_fill),
    "masked_select": row(_masked_select),
    "nonzero": row(_nonzero, "jax.numpy.nonzero"),
    "unique": row(_unique, "jax.numpy.unique"),
    "searchsorted": row(_searchsorted, "jax.numpy.searchsorted"),
    "bincount": calls("jax.numpy.bincount", "x", minlength="bins", length="bins"),
    "histogram": row(_histogram, "jax.numpy.histogram"),
    "isin": calls("jax.numpy.isin", "x", "candidates"),
    "sequence_mask": row(_sequence_mask),
    "sequence_last": row(lambda p, x, lengths: x[lengths - 1, jnp.arange(p["batch"])]),
    "sequence_reverse": row(_sequence_reverse),
}
