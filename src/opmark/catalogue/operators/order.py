"""Order along an axis: sort, argsort, topk, kthvalue, and the largest, smallest or middle element."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from opmark.catalogue.operators import _numpy as np
from opmark.catalogue.operators._axis import (
    AXIS,
    AXIS_EXISTS,
    EXACT,
    INDEX_BYTES,
    KEEPDIMS,
    ORDERED,
    SHAPE,
    Work,
    axis_keywords,
    elements,
    index_dtype,
    length,
    order_preserving,
    places,
    reduction,
    reference_in_numpy,
    rows,
    same_dtype,
    signed_spec,
    values_and_places,
    values_at,
)
from opmark.catalogue.operators._builders import calls, numpy
from opmark.plugin import Implementation, Launch, Operator, ParamRule, Params, Tolerance
from opmark.plugin.param import dtype, flag, shape, size
from opmark.schema import Cost
from opmark.schema.tensor import sizeof

PRESETS = {
    "small": {"shape": [64, 256]},
    "typical": {"shape": [512, 1024]},
    "large": {"shape": [4096, 8192]},
}
DESCENDING = flag("descending", "the largest first")


def _sort_reference(p: Params, x: Any) -> Any:
    values = np.sort(x, axis=p["axis"])
    return np.flip(values, p["axis"]) if p["descending"] else values


def _sorting_indices(p: Params, x: Any) -> Any:
    order = np.argsort(x, axis=p["axis"])
    return np.flip(order, p["axis"]) if p["descending"] else order


def _observe_permutation(p: Params, x: Any, indices: Any) -> Any:
    """Return the values that indices point at; IndexError unless they name every place of the axis once."""
    found = values_at(p, x, indices)
    ordered = np.moveaxis(np.sort(indices, axis=p["axis"]), p["axis"], -1)
    if not (ordered == np.arange(length(p))).all():
        raise IndexError("an index occurs twice")
    return found


def _numpy_sort(p: Params, x: Any) -> Launch:
    def launch() -> Any:
        order = _sorting_indices(p, x)
        return np.take_along_axis(x, order, axis=p["axis"]), order

    return launch


def _sort_backward(p: Params) -> Cost:
    """Each gradient goes back to where its element came from."""
    n, nbytes = elements(p), sizeof(p["dtype"])
    return Cost(0, n * (nbytes + INDEX_BYTES), n * nbytes)


SORT = Operator(
    name="sort",
    summary="the elements along an axis in order, and their indices",
    category="sorting",
    params=(SHAPE, AXIS, DESCENDING, dtype(*ORDERED)),
    inputs=lambda p: {"x": signed_spec(p)},
    cost=lambda p: Cost(0, elements(p) * sizeof(p["dtype"]), elements(p) * (sizeof(p["dtype"]) + INDEX_BYTES)),
    backward_cost=_sort_backward,
    reference=lambda p, x: (_sort_reference(p, x),) * 2,
    observe=lambda p, outputs, x: (outputs[0], _observe_permutation(p, x, outputs[1])),
    further_dtypes=lambda _: ("int64",),
    tolerance=EXACT,
    presets=PRESETS,
    rules=(AXIS_EXISTS,),
    gradients=("x",),
    direction=order_preserving(),
    implementations=(numpy(_numpy_sort), calls("torch.sort", "x", dim="axis", descending="descending")),
    aliases=("Sort",),
)

ARGSORT = Operator(
    name="argsort",
    summary="the indices that put the elements along an axis in order",
    category="sorting",
    params=(SHAPE, AXIS, DESCENDING, dtype(*ORDERED)),
    inputs=lambda p: {"x": signed_spec(p)},
    cost=lambda p: Cost(0, elements(p) * sizeof(p["dtype"]), elements(p) * INDEX_BYTES),
    reference=_sort_reference,
    observe=lambda p, indices, x: _observe_permutation(p, x, indices),
    tolerance=EXACT,
    result_dtype=lambda p: "int64",
    presets=PRESETS,
    rules=(AXIS_EXISTS,),
    implementations=(
        numpy(lambda p, x: lambda: _sorting_indices(p, x)),
        calls("torch.argsort", "x", dim="axis", descending="descending"),
    ),
    aliases=("ArgSort",),
)


def _found_elements(p: Params) -> int:
    return int(prod(p["shape"][:-1]) * p["k"])


def _topk_cost(p: Params) -> Cost:
    """Comparisons are not counted; the data has to be read once."""
    nbytes = sizeof(p["dtype"])
    return Cost(0, elements(p) * nbytes, _found_elements(p) * (nbytes + INDEX_BYTES))


def _topk_backward(p: Params) -> Cost:
    nbytes = sizeof(p["dtype"])
    return Cost(0, _found_elements(p) * (nbytes + INDEX_BYTES), elements(p) * nbytes)


def _topk_reference(p: Params, x: Any) -> Any:
    values = np.sort(x, axis=-1)
    return values[..., : -p["k"] - 1 : -1] if p["largest"] else values[..., : p["k"]]


def _topk_observe(p: Params, outputs: Any, x: Any) -> Any:
    """Compare indices by the values that they point at, as equal values may come in any order."""
    values, indices = outputs
    return values, values_at(p, x, indices, axis=-1)


def _numpy_topk(p: Params, x: Any) -> Launch:
    k, n = p["k"], x.shape[-1]

    def launch() -> Any:
        if p["largest"]:
            found = np.argpartition(x, n - k, axis=-1)[..., n - k :]
        else:
            found = np.argpartition(x, k - 1, axis=-1)[..., :k]
        values = np.take_along_axis(x, found, axis=-1)
        order = np.argsort(values, axis=-1)
        order = order[..., ::-1] if p["largest"] else order
        return np.take_along_axis(values, order, axis=-1), np.take_along_axis(found, order, axis=-1)

    return launch


TOPK = Operator(
    name="topk",
    summary="the k largest (or smallest) elements of each row, sorted, and their indices",
    category="sorting",
    params=(
        shape("shape", "shape of x; the last axis is searched"),
        size("k", "number of elements to find"),
        flag("largest", "the largest ones; false for the smallest", default=True),
        dtype(*ORDERED),
    ),
    inputs=lambda p: {"x": signed_spec(p)},
    cost=_topk_cost,
    backward_cost=_topk_backward,
    reference=lambda p, x: (_topk_reference(p, x),) * 2,
    observe=_topk_observe,
    further_dtypes=lambda _: ("int64",),
    tolerance=EXACT,
    presets={
        "small": {"shape": [64, 256], "k": 8},
        "typical": {"shape": [1024, 1024], "k": 16},
        "large": {"shape": [4096, 8192], "k": 64},
    },
    rules=(ParamRule("k", "be at most the length of the last axis of {shape} (got {k})",
                lambda p: p["k"] <= p["shape"][-1]),),
    gradients=("x",),
    direction=order_preserving(lambda p: -1),
    implementations=(numpy(_numpy_topk), calls("torch.topk", "x", k="k", largest="largest")),
    aliases=("TopK", "top_k"),
)  # fmt: skip


def _kth(p: Params, x: Any) -> Any:
    values = np.take(np.sort(x, axis=p["axis"]), [p["k"] - 1], axis=p["axis"])
    return values if p["keepdims"] else np.squeeze(values, p["axis"])


def _numpy_kth(p: Params, x: Any) -> Launch:
    axis, at = p["axis"], p["k"] - 1

    def launch() -> Any:
        index = np.take(np.argpartition(x, at, axis=axis), [at], axis=axis)
        values = np.take_along_axis(x, index, axis=axis)
        return (values, index) if p["keepdims"] else (np.squeeze(values, axis), np.squeeze(index, axis))

    return launch


def _kth_backward(p: Params) -> Cost:
    nbytes = sizeof(p["dtype"])
    return Cost(0, rows(p) * (nbytes + INDEX_BYTES), elements(p) * nbytes)


KTHVALUE = Operator(
    name="kthvalue",
    summary="the k-th smallest element along an axis, and its index",
    category="sorting",
    params=(SHAPE, size("k", "1 for the smallest"), AXIS, KEEPDIMS, dtype(*ORDERED)),
    inputs=lambda p: {"x": signed_spec(p)},
    cost=lambda p: Cost(0, elements(p) * sizeof(p["dtype"]), rows(p) * (sizeof(p["dtype"]) + INDEX_BYTES)),
    backward_cost=_kth_backward,
    reference=lambda p, x: (_kth(p, x),) * 2,
    observe=values_and_places,
    further_dtypes=lambda _: ("int64",),
    tolerance=EXACT,
    presets={name: {**preset, "k": 16} for name, preset in PRESETS.items()},
    rules=(AXIS_EXISTS, ParamRule("k", "be at most the length of axis {axis} of {shape} (got {k})",
                             lambda p: p["k"] <= length(p))),
    gradients=("x",),
    direction=order_preserving(),
    implementations=(
        numpy(_numpy_kth),
        calls("torch.kthvalue", "x", k="k", dim="axis", keepdim="keepdims"),
    ),
)  # fmt: skip


# The largest, smallest or middle element along an axis, and where it is.


def _max(p: Params, x: Any) -> Any:
    return np.max(x, **axis_keywords(p))


def _min(p: Params, x: Any) -> Any:
    return np.min(x, **axis_keywords(p))


def _median(p: Params, x: Any) -> Any:
    """Return the lower of the two middle elements if their number is even, as torch does."""
    middle = np.take(np.sort(x, axis=p["axis"]), [(length(p) - 1) // 2], axis=p["axis"])
    return middle if p["keepdims"] else np.squeeze(middle, p["axis"])


def _value_and_index(find: Callable[[Params, Any], Any]) -> Implementation:
    """Make a NumPy implementation that finds an index and fetches the value."""

    def build(p: Params, x: Any) -> Launch:
        def launch() -> Any:
            index = find(p, x)
            values = np.take_along_axis(x, index, axis=p["axis"])
            return (values, index) if p["keepdims"] else tuple(np.squeeze(a, p["axis"]) for a in (values, index))

        return launch

    return numpy(build)


def _with_index(
    name: str, summary: str, reference: Any, torch: str, find: Any, *aliases: str, dtypes: tuple[str, ...] = ORDERED
) -> Operator:
    """Make an operator that returns value and index; the index is int64 for every type of x."""
    return reduction(
        name,
        summary,
        torch=torch,
        reference=lambda p, x: (reference(p, x),) * 2,
        in_numpy=_value_and_index(find),
        outputs=(same_dtype, index_dtype),
        dtypes=dtypes,
        work=Work(),
        # The gradient is zero but for the incoming one at the index.
        backward=Work(indices=1),
        observe=values_and_places,
        direction=order_preserving(),
        tolerance=EXACT,
        aliases=aliases,
    )


def _value(name: str, summary: str, reference: Any, torch: str, *aliases: str) -> Operator:
    return reduction(
        name,
        summary,
        torch=torch,
        reference=reference,
        in_numpy=reference_in_numpy(reference),
        dtypes=ORDERED,
        work=Work(),
        # x is compared with the result again; equal elements share the incoming gradient.
        backward=Work(row_flops=1, reads=1, row_reads=2),
        direction=order_preserving(),
        # The result is exact, but the gradient is divided among equal elements.
        tolerance=Tolerance(),
        aliases=aliases,
    )


def _index(name: str, summary: str, reference: Any, torch: str, numpy_function: str, *aliases: str) -> Operator:
    def build(p: Params, x: Any) -> Launch:
        function = getattr(np, numpy_function)
        return lambda: function(x, **axis_keywords(p))

    return reduction(
        name,
        summary,
        torch=torch,
        reference=reference,
        in_numpy=numpy(build, f"numpy.{numpy_function}"),
        outputs=(index_dtype,),
        dtypes=ORDERED,
        work=Work(),
        gradients=False,
        observe=places,
        tolerance=EXACT,
        aliases=aliases,
    )


def _argmedian(p: Params, x: Any) -> Any:
    middle = (length(p) - 1) // 2
    return np.take(np.argpartition(x, middle, axis=p["axis"]), [middle], axis=p["axis"])


REDUCE_MAX = _with_index("reduce_max", "the largest element along an axis, and where it is", _max, "torch.max",
                         lambda p, x: np.argmax(x, axis=p["axis"], keepdims=True), "max_with_index")  # fmt: skip
REDUCE_MIN = _with_index("reduce_min", "the smallest element along an axis, and where it is", _min, "torch.min",
                         lambda p, x: np.argmin(x, axis=p["axis"], keepdims=True), "min_with_index")  # fmt: skip
# Not in 16 bits: several elements may equal the median there, and on a GPU (an H200) the gradient did not always go to
# the same one.
MEDIAN = _with_index("median", "the middle element along an axis, and where it is", _median, "torch.median",
                     _argmedian, dtypes=tuple(name for name in ORDERED if sizeof(name) > 2))  # fmt: skip
AMAX = _value("amax", "the largest element along an axis", _max, "torch.amax", "max", "max_axis")
AMIN = _value("amin", "the smallest element along an axis", _min, "torch.amin", "min", "min_axis")
ARGMAX = _index("argmax", "where the largest element along an axis is", _max, "torch.argmax", "argmax",
                "argmax_channel", "ArgMax")  # fmt: skip
ARGMIN = _index("argmin", "where the smallest element along an axis is", _min, "torch.argmin", "argmin",
                "ArgMin")  # fmt: skip


OPERATORS = (
    SORT,
    ARGSORT,
    TOPK,
    KTHVALUE,
    REDUCE_MAX,
    REDUCE_MIN,
    AMAX,
    AMIN,
    ARGMAX,
    ARGMIN,
    MEDIAN,
)
