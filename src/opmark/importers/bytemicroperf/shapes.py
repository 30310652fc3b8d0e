"""The first generation: shapes of tensors, given one by one or dimension by dimension, and the sizes of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product
from math import prod
from typing import Any

from opmark.importers.bytemicroperf.basic import OTHER_NAMES
from opmark.importers.bytemicroperf.spread import Axis, not_too_many, step
from opmark.importers.bytemicroperf.values import SHAPE, Refused, checked, shown

Shape = list[int]
Rows = list[dict[str, Any]]
"""The arguments of the third generation, of each point."""

_LETTERS = ("M", "K", "N")
_PAIRS = tuple("".join(pair) for pair in permutations(_LETTERS, 2))
_TRIPLES = tuple("/".join(triple) for triple in permutations(_LETTERS, 3))
PLACES = ("input_shape_groups", "input_shape_list", "inputs", *_TRIPLES, *_LETTERS, *_PAIRS)
"""Keys that give shapes."""


def axes_of(task: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Axis | Refused]]:
    """Each group of shapes with its place, or why it has none."""
    for place, group in _groups(data):
        try:
            yield place, Axis("", _rows(OTHER_NAMES.get(task, task), group), place=place)
        except Refused as refused:
            yield place, refused


def _groups(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Its groups, and what stands beside them in the same way."""
    if "input_shape_groups" in data:
        groups, place = data["input_shape_groups"], "$.input_shape_groups"
        if isinstance(groups, list):
            yield from ((f"{place}[{index}]", group) for index, group in enumerate(groups))
        else:
            yield place, groups
    beside = {key: value for key, value in data.items() if key in PLACES and key != "input_shape_groups"}
    rest = {key: data[key] for key in ("batch_size", "gemm_group", "batch") if key in data}
    if "input_shape_list" in beside:
        yield "$.input_shape_list", {"input_shape_list": beside.pop("input_shape_list")}
    if beside:
        yield "$" + (step(next(iter(beside))) if len(beside) == 1 else ""), {**beside, **rest}


def _rows(task: str, group: Any) -> Rows:
    if not isinstance(group, dict):
        raise Refused(f"expected an object with `inputs`, or with M, K and N, got {shown(group)}")
    if "input_shape_list" in group:
        found = [_arguments(task, _tensors(shapes)) for shapes in _listed(group, "input_shape_list")]
    elif "inputs" in group:
        found = [_arguments(task, shapes) for shapes in _zipped(_listed(group, "inputs"))]
    elif "gemm_group" in group:
        found = list(_grouped(group))
    else:
        found = list(_products(group))
    if not found:
        raise Refused("expands to no case", hint=f"shapes are given by one of {', '.join(PLACES[:4])}, M, K and N")
    return found


def _listed(group: Mapping[str, Any], key: str) -> list[Any]:
    value = group[key]
    if isinstance(value, list):
        return value
    if isinstance(value, int):
        return [value]
    raise Refused(f"`{key}`: expected a list, got {shown(value)}", key)


def _tensors(shapes: Any) -> list[Shape]:
    """One shape, or one for each tensor."""
    nested = isinstance(shapes, list) and bool(shapes) and all(isinstance(item, list) for item in shapes)
    return [checked(SHAPE, "shape", shape) for shape in (shapes if nested else [shapes])]


def _zipped(tensors: list[Any]) -> list[list[Shape]]:
    """The sizes of a tensor multiply; tensors go together, a shorter list of shapes from the start again."""
    sizes = [_dimensions(tensor) for tensor in tensors]
    counts = [prod(len(dimension) for dimension in tensor) for tensor in sizes]
    most = max(counts, default=0)
    not_too_many(most)
    if not all(counts):
        raise Refused("`inputs`: an empty list expands to no case", hint="give each dimension at least one size")
    shapes = [[list(shape) for shape in product(*tensor)] for tensor in sizes]
    return [[of_one[index % len(of_one)] for of_one in shapes] for index in range(most)]


def _dimensions(tensor: Any) -> list[list[int]]:
    if not isinstance(tensor, list) or not tensor:
        raise Refused(f"`inputs`: expected for each tensor a list of sizes for each dimension, got {shown(tensor)}")
    dimensions = [sizes if isinstance(sizes, list) else [sizes] for sizes in tensor]
    return [[checked("inputs", "size", size) for size in sizes] for sizes in dimensions]


def _products(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Whatever of M, K, N, pairs and triples of them makes up all three; each way that does counts."""
    first = {"batch_size": _listed(group, "batch_size")} if "batch_size" in group else {}
    for keys in (_LETTERS, *((pair, _other(pair)) for pair in _PAIRS), *((triple,) for triple in _TRIPLES)):
        if all(key in group for key in keys):
            ordered = sorted(keys, key=lambda key: _LETTERS.index(key[0]))
            axes = {**first, **{key: _listed(group, key) for key in ordered}}
            not_too_many(prod(len(axis) for axis in axes.values()))
            for values in product(*axes.values()):
                yield _named(axes, values)


def _other(pair: str) -> str:
    return next(letter for letter in _LETTERS if letter not in pair)


def _named(keys: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """Each letter of a key with its own value."""
    found: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        letters = _letters(key)
        if len(letters) == 1:
            found[letters[0]] = value
        elif isinstance(value, list) and len(value) == len(letters):
            found.update(zip(letters, value, strict=True))
        else:
            raise Refused(f"`{key}`: expected [{', '.join(letters)}], got {shown(value)}", key)
    return found


def _letters(key: str) -> list[str]:
    return [key] if key == "batch_size" else list(key.replace("/", ""))


def _grouped(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Products of which each has its own multiple of a number of rows."""
    times = [checked("gemm_group", "size", n) for n in _listed(group, "gemm_group")]
    batches = [checked("batch", "size", n) for n in _listed(group, "batch")] if "batch" in group else [1]
    sides = [_named({"KN": 0}, [pair]) for pair in _listed(group, "KN")] if "KN" in group else []
    if "K" in group and "N" in group:
        sides += [{"K": k, "N": n} for k, n in product(_listed(group, "K"), _listed(group, "N"))]
    not_too_many(len(batches) * len(sides) * len(times))
    for batch, side in product(batches, sides):
        yield {"M": [n * batch for n in times], **side}


def _arguments(task: str, shapes: list[Shape]) -> dict[str, Any]:
    """What these tensors are in the arguments of the third generation."""
    return _OF_SHAPES.get(task, _alone)(shapes)


def _alone(shapes: list[Shape]) -> dict[str, Any]:
    """One tensor, or several of the same shape."""
    if any(shape != shapes[0] for shape in shapes):
        raise Refused(f"expected tensors of one shape, got {shown(shapes)}")
    return {SHAPE: shapes[0]}


def _norm(shapes: list[Shape]) -> dict[str, Any]:
    """Weights have the length of a row."""
    if any(shape != shapes[0][-1:] for shape in shapes[1:]):
        raise Refused(f"expected weights as long as a row, got {shown(shapes)}")
    return {SHAPE: shapes[0]}


def _of_ranks(shapes: list[Shape], *ranks: int) -> list[int]:
    """All sizes of so many tensors, each with so many dimensions."""
    if [len(shape) for shape in shapes] != list(ranks):
        expected = " and ".join(str(rank) for rank in ranks)
        raise Refused(f"expected tensors with {expected} dimensions, got {shown(shapes)}")
    return [size for shape in shapes for size in shape]


def _alike(shapes: list[Shape], first: int, second: int) -> None:
    if first != second:
        raise Refused(f"the tensors do not fit to each other: {shown(shapes)}")


def _gemm(shapes: list[Shape]) -> dict[str, Any]:
    m, k, inner, n = _of_ranks(shapes, 2, 2)
    _alike(shapes, k, inner)
    return {"M": m, "K": k, "N": n}


def _batch_gemm(shapes: list[Shape]) -> dict[str, Any]:
    batch, m, k, other, inner, n = _of_ranks(shapes, 3, 3)
    _alike(shapes, k, inner)
    _alike(shapes, batch, other)
    return {"batch_size": batch, "M": m, "K": k, "N": n}


def _topk(shapes: list[Shape]) -> dict[str, Any]:
    """The second tensor is the result."""
    rows, width, found, k = _of_ranks(shapes, 2, 2)
    _alike(shapes, rows, found)
    return {SHAPE: [rows, width], "k": k}


def _put(shapes: list[Shape]) -> dict[str, Any]:
    """The table, and what is put into it; with one tensor both are alike."""
    rows, width, put, of_put = _of_ranks(shapes * 2 if len(shapes) == 1 else shapes, 2, 2)
    _alike(shapes, width, of_put)
    return {"dst_batch_size": rows, "src_batch_size": put, "dim_size": width}


def _pick(shapes: list[Shape]) -> dict[str, Any]:
    """The table, and what is picked from it; with one tensor both are alike."""
    put = _put(shapes)
    return {**put, "src_batch_size": put["dst_batch_size"], "dst_batch_size": put["src_batch_size"]}


def _lookup(shapes: list[Shape]) -> dict[str, Any]:
    entries, dim, batch, lookups = _of_ranks(shapes, 2, 2)
    return {"entries": entries, "dim": dim, "batch": batch, "lookups": lookups}


_OF_SHAPES: dict[str, Callable[[list[Shape]], dict[str, Any]]] = {
    "gemm": _gemm,
    "gemv": _gemm,
    "batch_gemm": _batch_gemm,
    "topk": _topk,
    "layer_norm": _norm,
    "rms_norm": _norm,
    "index_add": _put,
    "scatter": _put,
    "gather": _pick,
    "hash_table": _lookup,
}
