"""Shapes in files of ByteMicroPerf's first generation: listed, given by dimension, or as the sizes of products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product
from math import prod
from typing import Any

from opmark.importers.bytemicroperf.basic import OTHER_NAMES
from opmark.importers.bytemicroperf.spread import Axis, check_point_count, path_step
from opmark.importers.bytemicroperf.values import SHAPE, Refused, check_value, quote

Shape = list[int]

_LETTERS = ("M", "K", "N")
_PAIRS = tuple("".join(pair) for pair in permutations(_LETTERS, 2))
_TRIPLES = tuple("/".join(triple) for triple in permutations(_LETTERS, 3))
PLACES = ("input_shape_groups", "input_shape_list", "inputs", *_TRIPLES, *_LETTERS, *_PAIRS)
"""Keys that hold shapes."""


def axes_of(task: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Axis | Refused]]:
    """Yield the place and the axis of each group of shapes, or the reason why it has none."""
    for place, group in _groups(data):
        try:
            yield place, Axis("", _read_group(OTHER_NAMES.get(task, task), group), place=place)
        except Refused as refused:
            yield place, refused


def _groups(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the groups of a file, and the shapes that are at its top level."""
    if "input_shape_groups" in data:
        groups, place = data["input_shape_groups"], "$.input_shape_groups"
        if isinstance(groups, list):
            yield from ((f"{place}[{index}]", group) for index, group in enumerate(groups))
        else:
            yield place, groups
    top_level = {key: value for key, value in data.items() if key in PLACES and key != "input_shape_groups"}
    rest = {key: data[key] for key in ("batch_size", "gemm_group", "batch") if key in data}
    if "input_shape_list" in top_level:
        yield "$.input_shape_list", {"input_shape_list": top_level.pop("input_shape_list")}
    if top_level:
        yield "$" + (path_step(next(iter(top_level))) if len(top_level) == 1 else ""), {**top_level, **rest}


def _read_group(task: str, group: Any) -> list[dict[str, Any]]:
    """Return the arguments of the third generation for each point of a group."""
    if not isinstance(group, dict):
        raise Refused(f"expected an object with `inputs`, or with M, K and N, got {quote(group)}")
    if "input_shape_list" in group:
        to_arguments = _READERS.get(task, _same_shape)
        found = [to_arguments(_tensors(shapes)) for shapes in _list_of(group, "input_shape_list")]
    elif "inputs" in group:
        to_arguments = _READERS.get(task, _same_shape)
        found = [to_arguments(shapes) for shapes in _combine_shapes(_list_of(group, "inputs"))]
    elif "gemm_group" in group:
        found = list(_grouped_products(group))
    else:
        found = list(_products(group))
    if not found:
        keys = ", ".join(PLACES[:4])
        raise Refused("the group expands to no case", hint=f"shapes are given by one of {keys}, M, K and N")
    return found


def _list_of(group: Mapping[str, Any], key: str) -> list[Any]:
    value = group[key]
    if isinstance(value, list):
        return value
    if isinstance(value, int):
        return [value]
    raise Refused(f"`{key}`: expected a list, got {quote(value)}", key)


def _tensors(shapes: Any) -> list[Shape]:
    """Return the shape of each tensor; a single shape is one tensor."""
    nested = isinstance(shapes, list) and bool(shapes) and all(isinstance(item, list) for item in shapes)
    return [check_value(SHAPE, "shape", shape) for shape in (shapes if nested else [shapes])]


def _combine_shapes(tensors: list[Any]) -> list[list[Shape]]:
    """Multiply the sizes of each tensor, then pair the tensors; a shorter list of shapes starts again."""
    sizes = [_dimensions(tensor) for tensor in tensors]
    counts = [prod(len(dimension) for dimension in tensor) for tensor in sizes]
    most = max(counts, default=0)
    check_point_count(most)
    if not all(counts):
        raise Refused("`inputs`: an empty list expands to no case", hint="give each dimension at least one size")
    shapes = [[list(shape) for shape in product(*tensor)] for tensor in sizes]
    return [[listed[index % len(listed)] for listed in shapes] for index in range(most)]


def _dimensions(tensor: Any) -> list[list[int]]:
    if not isinstance(tensor, list) or not tensor:
        raise Refused(f"`inputs`: expected a list of sizes for each dimension of each tensor, got {quote(tensor)}")
    dimensions = [sizes if isinstance(sizes, list) else [sizes] for sizes in tensor]
    return [[check_value("inputs", "size", size) for size in sizes] for sizes in dimensions]


def _products(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the points of every set of keys (M, K, N, their pairs and triples) that gives all three sizes."""
    first = {"batch_size": _list_of(group, "batch_size")} if "batch_size" in group else {}
    pairs = [(pair, *set(_LETTERS).difference(pair)) for pair in _PAIRS]
    for keys in (_LETTERS, *pairs, *((triple,) for triple in _TRIPLES)):
        if all(key in group for key in keys):
            ordered = sorted(keys, key=lambda key: _LETTERS.index(key[0]))
            axes = {**first, **{key: _list_of(group, key) for key in ordered}}
            check_point_count(prod(len(axis) for axis in axes.values()))
            for values in product(*axes.values()):
                yield _split_keys(axes, values)


def _split_keys(keys: Iterable[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return the value of each letter of the keys: `MK: [2, 4]` is M=2, K=4."""
    found: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        letters = [key] if key == "batch_size" else list(key.replace("/", ""))
        if len(letters) == 1:
            found[letters[0]] = value
        elif isinstance(value, list) and len(value) == len(letters):
            found.update(zip(letters, value, strict=True))
        else:
            raise Refused(f"`{key}`: expected [{', '.join(letters)}], got {quote(value)}", key)
    return found


def _grouped_products(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield grouped products, whose numbers of rows are multiples of a batch."""
    times = [check_value("gemm_group", "size", n) for n in _list_of(group, "gemm_group")]
    batches = [check_value("batch", "size", n) for n in _list_of(group, "batch")] if "batch" in group else [1]
    sides = [_split_keys(["KN"], [pair]) for pair in _list_of(group, "KN")] if "KN" in group else []
    if "K" in group and "N" in group:
        sides += [{"K": k, "N": n} for k, n in product(_list_of(group, "K"), _list_of(group, "N"))]
    check_point_count(len(batches) * len(sides) * len(times))
    for batch, side in product(batches, sides):
        yield {"M": [n * batch for n in times], **side}


def _same_shape(shapes: list[Shape]) -> dict[str, Any]:
    if any(shape != shapes[0] for shape in shapes):
        raise Refused(f"expected tensors of one shape, got {quote(shapes)}")
    return {SHAPE: shapes[0]}


def _norm(shapes: list[Shape]) -> dict[str, Any]:
    if any(shape != shapes[0][-1:] for shape in shapes[1:]):
        raise Refused(f"expected weights as long as a row, got {quote(shapes)}")
    return {SHAPE: shapes[0]}


def _read_sizes(shapes: list[Shape], *ranks: int) -> list[int]:
    """Return the sizes of all tensors; refuse tensors with other numbers of dimensions than these."""
    if [len(shape) for shape in shapes] != list(ranks):
        expected = " and ".join(str(rank) for rank in ranks)
        raise Refused(f"expected tensors with {expected} dimensions, got {quote(shapes)}")
    return [size for shape in shapes for size in shape]


def _check_equal(shapes: list[Shape], first: int, second: int) -> None:
    if first != second:
        raise Refused(f"the tensors do not fit each other: {quote(shapes)}")


def _gemm(shapes: list[Shape]) -> dict[str, Any]:
    m, k, inner, n = _read_sizes(shapes, 2, 2)
    _check_equal(shapes, k, inner)
    return {"M": m, "K": k, "N": n}


def _batch_gemm(shapes: list[Shape]) -> dict[str, Any]:
    batch, m, k, other, inner, n = _read_sizes(shapes, 3, 3)
    _check_equal(shapes, k, inner)
    _check_equal(shapes, batch, other)
    return {"batch_size": batch, "M": m, "K": k, "N": n}


def _topk(shapes: list[Shape]) -> dict[str, Any]:
    """Read the input and the result, which is the second tensor."""
    rows, width, found, k = _read_sizes(shapes, 2, 2)
    _check_equal(shapes, rows, found)
    return {SHAPE: [rows, width], "k": k}


def _scatter(shapes: list[Shape]) -> dict[str, Any]:
    """Read the table and the rows that are written into it; a single tensor is both."""
    rows, width, written, written_width = _read_sizes(shapes * 2 if len(shapes) == 1 else shapes, 2, 2)
    _check_equal(shapes, width, written_width)
    return {"dst_batch_size": rows, "src_batch_size": written, "dim_size": width}


def _gather(shapes: list[Shape]) -> dict[str, Any]:
    """Read the table and the rows that are read from it; a single tensor is both."""
    found = _scatter(shapes)
    return {**found, "src_batch_size": found["dst_batch_size"], "dst_batch_size": found["src_batch_size"]}


def _lookup(shapes: list[Shape]) -> dict[str, Any]:
    entries, dim, batch, lookups = _read_sizes(shapes, 2, 2)
    return {"entries": entries, "dim": dim, "batch": batch, "lookups": lookups}


_READERS: dict[str, Callable[[list[Shape]], dict[str, Any]]] = {
    "gemm": _gemm,
    "gemv": _gemm,
    "batch_gemm": _batch_gemm,
    "topk": _topk,
    "layer_norm": _norm,
    "rms_norm": _norm,
    "index_add": _scatter,
    "scatter": _scatter,
    "gather": _gather,
    "hash_table": _lookup,
}
