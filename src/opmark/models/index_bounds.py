"""The values that torch's operators accept where not every number will do: indices, classes, offsets, probabilities.

It is data and imports no framework: whoever makes inputs for a recorded call asks it, whatever tensors are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple


class ValueBounds(NamedTuple):
    """The values that a tensor among the arguments may hold."""

    low: float
    high: float
    """Values stay below this one."""
    values: str = ""
    """How they belong together, in words of `schema.tensor.VALUES`: `offsets`; empty if each is drawn by itself."""
    floats: bool = False
    """Whether this is about a tensor of floats; else about one of whole numbers."""


Place = tuple[int, ...]
"""Where a tensor is among the arguments: its number, and for a list of tensors the number in it."""
Shape = Sequence[int]
ShapeOf = Callable[[Any], Shape | None]
"""Returns the shape of an argument; None if it is no tensor."""


class _IndexRule(NamedTuple):
    """Indices point into a tensor, or below a number."""

    indices: int
    """Place of the indices among the arguments."""
    table: int
    """Place of the tensor that they point into, or of a number or a list of sizes."""
    axis: int = 0
    """The axis that they point along."""
    axis_at: int | None = None
    """Place of the argument that says the axis."""
    last: int = 0
    """Where this many last axes are taken as one: the number of them."""
    values: str = ""
    least: int = 0


_ALONG = (_IndexRule(2, 0, axis_at=1),)
_CLASSES = (_IndexRule(1, 0, axis=1),)
_CLASSES_BACKWARD = (_IndexRule(2, 1, axis=1),)
_ALL = -1
"""Value of `last`: all axes."""

_RULES: dict[str, tuple[_IndexRule, ...]] = {
    "embedding": (_IndexRule(1, 0),),
    "embedding_renorm_": (_IndexRule(1, 0),),
    "embedding_dense_backward": (_IndexRule(1, 2),),
    "embedding_sparse_backward": (_IndexRule(1, 2),),
    "embedding_backward": (_IndexRule(1, 2),),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag"),
        (_IndexRule(1, 0), _IndexRule(2, 1, last=_ALL, values="offsets")),
    ),
    "_embedding_bag_backward": (
        _IndexRule(1, 6), _IndexRule(2, 1, last=_ALL, values="offsets"), _IndexRule(3, 0), _IndexRule(4, 1, least=1),
        _IndexRule(5, 6),
    ),
    "_embedding_bag_dense_backward": (_IndexRule(1, 5), _IndexRule(2, 0), _IndexRule(3, 1, least=1), _IndexRule(4, 5)),
    "_embedding_bag_per_sample_weights_backward": (
        _IndexRule(2, 1), _IndexRule(3, 2, last=_ALL, values="offsets"), _IndexRule(4, 0),
    ),
    **dict.fromkeys(
        (
            "index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce",
            "scatter_reduce_", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_",
            "index_reduce", "index_reduce_",
        ),
        _ALONG,
    ),
    "index_select_backward": (_IndexRule(3, 1, axis_at=2),),
    "gather_backward": (_IndexRule(3, 1, axis_at=2),),
    "value_selecting_reduction_backward": (_IndexRule(2, 3, axis_at=1),),
    **dict.fromkeys(("take", "put", "put_"), (_IndexRule(1, 0, last=_ALL),)),
    "take_along_dim": (_IndexRule(1, 0, axis_at=2),),
    "one_hot": (_IndexRule(0, 1),),
    "_convert_indices_from_coo_to_csr": (_IndexRule(0, 1),),
    **dict.fromkeys(
        (
            "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward", "cross_entropy_loss",
            "multi_margin_loss", "multilabel_margin_loss", "multilabel_margin_loss_forward",
        ),
        _CLASSES,
    ),
    **dict.fromkeys(
        (
            "nll_loss_backward", "nll_loss2d_backward", "multi_margin_loss_backward", "multilabel_margin_loss_backward",
        ),
        _CLASSES_BACKWARD,
    ),
    "max_pool2d_with_indices_backward": (_IndexRule(7, 1, last=2),),
    "max_pool3d_with_indices_backward": (_IndexRule(7, 1, last=3),),
    "adaptive_max_pool2d_backward": (_IndexRule(2, 1, last=2),),
    "adaptive_max_pool3d_backward": (_IndexRule(2, 1, last=3),),
    "fractional_max_pool2d_backward": (_IndexRule(4, 1, last=2),),
    "fractional_max_pool3d_backward": (_IndexRule(4, 1, last=3),),
    **dict.fromkeys(("max_unpool2d", "max_unpool3d"), (_IndexRule(1, 2, last=_ALL),)),
}  # fmt: skip
"""Operators with indices, by their names without overload."""

_LISTS = (
    "index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put",
)  # fmt: skip
"""Operators whose argument 1 is a list of indices for one axis after the other; a mask is for all axes that it has."""

_PROBABILITIES: dict[str, tuple[int, ...]] = {
    "binary_cross_entropy": (0, 1), "binary_cross_entropy_backward": (1, 2), "bernoulli": (0,), "bernoulli_": (1,),
    "multinomial": (0,), "poisson": (0,),
}  # fmt: skip
"""Operators that accept only floats from 0 to 1, and the places of these."""


def value_bounds(
    name: str, args: Sequence[Any], shape_of: ShapeOf, is_mask: Callable[[Any], bool] = lambda _: False
) -> dict[Place, ValueBounds]:
    """Return the values that tensors of a call may hold, where not every value is accepted.

    `name` is that of the operator, with or without `aten` and overload. `is_mask` returns whether a tensor has booleans
    or bytes.
    """
    plain = name.removeprefix("aten::").removeprefix("aten.").partition(".")[0]
    found: dict[Place, ValueBounds] = {}
    for rule in _RULES.get(plain, ()):
        size = _size(rule, args, shape_of)
        if size is not None and rule.indices < len(args) and shape_of(args[rule.indices]) is not None:
            found[rule.indices,] = ValueBounds(rule.least, max(rule.least + 1, size), rule.values)
    if plain in _LISTS:
        found |= dict(_list_bounds(args, shape_of, is_mask))
    for place in _PROBABILITIES.get(plain, ()):
        if place < len(args) and shape_of(args[place]) is not None:
            found[place,] = ValueBounds(0.0, 1.0, floats=True)
    if plain == "_pack_padded_sequence" and len(args) > 2 and (shape := shape_of(args[0])):
        steps = shape[1 if args[2] else 0]
        found[1,] = ValueBounds(steps, steps + 1)  # lengths have to be sorted, and at most this
    return found


def _size(rule: _IndexRule, args: Sequence[Any], shape_of: ShapeOf) -> int | None:
    """Return the number of places that indices point to; None if the call does not say."""
    if rule.table >= len(args):
        return None
    table = args[rule.table]
    if isinstance(table, int):
        return table
    sizes = shape_of(table)
    if sizes is None and isinstance(table, list | tuple):
        sizes = list(table)
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    if rule.last:
        return prod(sizes if rule.last == _ALL else sizes[-rule.last :])
    axis = rule.axis
    if rule.axis_at is not None:
        given = args[rule.axis_at] if rule.axis_at < len(args) else None
        if not isinstance(given, int):
            return prod(sizes)
        axis = given
    if not sizes:
        return 1
    axis = min(axis, len(sizes) - 1)  # scores of one sample have classes along their only axis
    return int(sizes[axis]) if -len(sizes) <= axis else None


def _list_bounds(
    args: Sequence[Any], shape_of: ShapeOf, is_mask: Callable[[Any], bool]
) -> Iterator[tuple[Place, ValueBounds]]:
    """Yield the bounds of each tensor of indices in the list of an indexing call."""
    if len(args) < 2 or not isinstance(args[1], list | tuple):
        return
    shape, axis = shape_of(args[0]) or (), 0
    for number, index in enumerate(args[1]):
        indices = shape_of(index)
        if indices is not None and is_mask(index):
            axis += len(indices)
            continue
        if indices is not None and axis < len(shape):
            yield (1, number), ValueBounds(0, max(1, shape[axis]))
        axis += 1
