"""Calls with indices: which argument holds them, and how large the numbers may be. No framework is imported here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True)
class IndexArgument:
    """The place of indices among the arguments of a call, and what they point into."""

    place: int
    table: int
    """Place of the tensor that the indices point into, or of the number of its rows."""
    axis: int | None = 0
    """Axis of the table; None for all elements below `from_axis`."""
    axis_at: int | None = None
    """Place of the argument that names the axis, for calls that have one."""
    from_axis: int = 0


_ALONG = IndexArgument(2, 0, axis_at=1)
_CLASSES = IndexArgument(1, 0, axis=1)
_EACH = IndexArgument(1, 0)
"""A list of indices, one tensor for each axis."""

INDEXED: dict[str, tuple[IndexArgument, ...]] = {
    "embedding": (IndexArgument(1, 0),),
    "embedding_bag": (IndexArgument(1, 0),),
    "_embedding_bag": (IndexArgument(1, 0),),
    "_embedding_bag_forward_only": (IndexArgument(1, 0),),
    "embedding_dense_backward": (IndexArgument(1, 2),),
    "embedding_backward": (IndexArgument(1, 2),),
    "_embedding_bag_dense_backward": (IndexArgument(1, 5), IndexArgument(2, 3)),
    **dict.fromkeys(
        ("index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce",
         "scatter_reduce_", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_",
         "index_reduce", "index_reduce_"),
        (_ALONG,),
    ),
    "index_select_backward": (IndexArgument(3, 1, axis_at=2),),
    "gather_backward": (IndexArgument(3, 1, axis_at=2),),
    "take": (IndexArgument(1, 0, axis=None),),
    "take_along_dim": (IndexArgument(1, 0, axis_at=2),),
    **dict.fromkeys(("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"), (_EACH,)),
    **dict.fromkeys(
        ("nll_loss", "nll_loss2d", "nll_loss_nd", "nll_loss_forward", "nll_loss2d_forward", "cross_entropy_loss",
         "multi_margin_loss"),
        (_CLASSES,),
    ),
    "nll_loss_backward": (IndexArgument(2, 1, axis=1),),
    "nll_loss2d_backward": (IndexArgument(2, 1, axis=1),),
    "one_hot": (IndexArgument(0, 1),),
    "max_pool2d_with_indices_backward": (IndexArgument(7, 1, axis=None, from_axis=-2),),
    "max_pool3d_with_indices_backward": (IndexArgument(7, 1, axis=None, from_axis=-3),),
    "max_unpool2d": (IndexArgument(1, 2, axis=None),),
}  # fmt: skip
"""The calls of torch with indices, by name without namespace and overload."""


def index_limits(name: str, args: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Yield (indices, limit) of a call: every index has to be below the limit. `args`: objects with a `shape`, lists of
    these, and plain numbers."""
    for rule in INDEXED.get(name, ()):
        if max(rule.place, rule.table) >= len(args):
            continue
        indices, table = args[rule.place], args[rule.table]
        if isinstance(indices, list):
            if (shape := _shape(table)) is not None:
                yield from _each_axis(indices, shape)
        elif indices is not None and (limit := _limit(rule, table, args)) is not None:
            yield indices, limit


def _limit(rule: IndexArgument, table: Any, args: Sequence[Any]) -> int | None:
    shape = _shape(table)
    if shape is None:  # a number of rows, or a list of sizes
        if isinstance(table, list) and table and all(isinstance(size, int) for size in table):
            shape = tuple(table)
        else:
            return table if isinstance(table, int) and table > 0 else None
    if rule.axis is None:
        return prod(shape[rule.from_axis :])
    axis = args[rule.axis_at] if rule.axis_at is not None and rule.axis_at < len(args) else rule.axis
    if not shape:
        return 1
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        axis = len(shape) - 1 if rule.axis == 1 else 0  # the classes of a single sample are its only axis
    return int(shape[axis])


def _each_axis(indices: list[Any], shape: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
    axis = 0
    for one in indices:
        mask = getattr(one, "dtype", "") in ("bool", "uint8")
        if one is not None and not mask and axis < len(shape):
            yield one, shape[axis]
        axis += len(one.shape) if mask else 1


def _shape(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(shape)


OFFSETS: dict[str, tuple[tuple[int, int], ...]] = {
    "embedding_bag": ((2, 1),),
    "_embedding_bag": ((2, 1),),
    "_embedding_bag_forward_only": ((2, 1),),
    "_flash_attention_forward": ((3, 0), (4, 1)),
    "_efficient_attention_forward": ((4, 0), (5, 1)),
}
"""Calls with ascending offsets: places of the offsets and of the tensor whose rows they divide."""
