"""Axes in files of ByteMicroPerf: shapes of the first generation, and objects whose lists multiply."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from random import Random
from typing import Any, NamedTuple

from opmark.interop.bytemicroperf.fields import FEW, SHAPE, Arguments, PointRefused, check_value, quote
from opmark.interop.bytemicroperf.forms import OTHER_NAMES

Shape = list[int]

_LETTERS = ("M", "K", "N")
_PAIRS = tuple("".join(pair) for pair in permutations(_LETTERS, 2))
_TRIPLES = tuple("/".join(triple) for triple in permutations(_LETTERS, 3))
_CHOICES = "MNK_choices"
_LISTS = ("input_shape_list", "input_shape")
_BY_DIMENSION = ("inputs", "input_shape_group")
PLACES = ("input_shape_groups", *_LISTS, *_BY_DIMENSION, _CHOICES, *_TRIPLES, *_LETTERS, *_PAIRS)
"""Keys that hold shapes."""
BESIDE_SHAPES = ("batch_size", "gemm_group", "batch", "seed", "problems")
"""Keys that belong to those of shapes."""


def axes_of(task: str, data: Mapping[str, Any]) -> Iterator[tuple[str, WorkloadAxis | PointRefused]]:
    """Yield the place and the axis of each group of shapes, or the reason why it has none."""
    for place, group in _groups(data):
        try:
            yield place, WorkloadAxis("", _read_group(OTHER_NAMES.get(task, task), group), place=place)
        except PointRefused as refused:
            yield place, refused


def unknown_keys(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the place of each group and a key of it that means nothing; keys that begin with `__` are comments."""
    for place, group in _groups(data):
        for key in group if isinstance(group, dict) else ():
            if key not in (*PLACES, "batch_size", "gemm_group", "batch") and not key.startswith("__"):
                yield place, key


def _groups(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the groups of a file, and the shapes that are at its top level."""
    if "input_shape_groups" in data:
        groups, place = data["input_shape_groups"], "$.input_shape_groups"
        if isinstance(groups, list):
            yield from ((f"{place}[{index}]", group) for index, group in enumerate(groups))
        else:
            yield place, groups
    top_level = {key: value for key, value in data.items() if key in PLACES and key != "input_shape_groups"}
    rest = {key: data[key] for key in BESIDE_SHAPES if key in data}
    for key in (*_LISTS, *_BY_DIMENSION):
        if key in top_level:
            yield f"$.{key}", {key: top_level.pop(key)}
    if top_level:
        yield "$" + (path_step(next(iter(top_level))) if len(top_level) == 1 else ""), {**top_level, **rest}


def _read_group(task: str, group: Any) -> list[dict[str, Any]]:
    """Return the arguments of the third generation for each point of a group."""
    if not isinstance(group, dict):
        raise PointRefused(f"expected an object with `inputs`, or with M, K and N, got {quote(group)}")
    to_arguments = _READERS.get(task, _same_shape)
    listed = next((key for key in _LISTS if key in group), None)
    by_dimension = next((key for key in _BY_DIMENSION if key in group), None)
    if listed:
        shapes = _list_of(group, listed)
        alone = listed == "input_shape" and not any(isinstance(item, list) for item in shapes)
        found = [to_arguments(_tensors(shape)) for shape in ([shapes] if alone else shapes)]
    elif by_dimension:
        found = [to_arguments(shapes) for shapes in _combine_shapes(_list_of(group, by_dimension))]
    elif _CHOICES in group:
        found = list(_drawn_products(group))
    elif "gemm_group" in group or "group" in group:
        found = list(_grouped_products(group))
    else:
        found = list(_products(group))
    if not found:
        keys = ", ".join(PLACES[:4])
        raise PointRefused("the group expands to no case", hint=f"shapes are given by one of {keys}, M, K and N")
    return found


def _list_of(group: Mapping[str, Any], key: str) -> list[Any]:
    value = group[key]
    if isinstance(value, list):
        return value
    if isinstance(value, int):
        return [value]
    raise PointRefused(f"`{key}`: expected a list, got {quote(value)}", key)


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
        raise PointRefused("`inputs`: an empty list expands to no case", hint="give each dimension at least one size")
    shapes = [[list(shape) for shape in product(*tensor)] for tensor in sizes]
    return [[listed[index % len(listed)] for listed in shapes] for index in range(most)]


def _dimensions(tensor: Any) -> list[list[int]]:
    if not isinstance(tensor, list) or not tensor:
        raise PointRefused(f"`inputs`: expected a list of sizes for each dimension of each tensor, got {quote(tensor)}")
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
            raise PointRefused(f"`{key}`: expected [{', '.join(letters)}], got {quote(value)}", key)
    return found


def _drawn_products(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield groups of products whose sizes are drawn, with ByteMicroPerf's seed and in its order."""
    choices = [check_value(_CHOICES, "size", n) for n in _list_of(group, _CHOICES)]
    if not choices or "problems" not in group:
        raise PointRefused(f"`{_CHOICES}`: expected sizes to draw from, and their number in `problems`", _CHOICES)
    draw = Random(check_value("seed", "int", group.get("seed", 0))).choice
    for count in _list_of(group, "problems"):
        problems = check_value("problems", "size", count, FEW)
        drawn = [{letter: draw(choices) for letter in "MNK"} for _ in range(problems)]
        yield {letter: [sizes[letter] for sizes in drawn] for letter in _LETTERS}


def _grouped_products(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield grouped products; their rows are listed (`group`), or multiples of a batch."""
    rows = [check_value("group", "shape", listed) for listed in _list_of(group, "group")] if "group" in group else []
    if "gemm_group" in group:
        times = [check_value("gemm_group", "size", n) for n in _list_of(group, "gemm_group")]
        batches = [check_value("batch", "size", n) for n in _list_of(group, "batch")] if "batch" in group else [1]
        check_point_count(len(batches) * len(times))
        rows += [[n * batch for n in times] for batch in batches]
    sides = [_split_keys(["KN"], [pair]) for pair in _list_of(group, "KN")] if "KN" in group else []
    if "K" in group and "N" in group:
        sides += [{"K": k, "N": n} for k, n in product(_list_of(group, "K"), _list_of(group, "N"))]
    check_point_count(sum(map(len, rows)) * len(sides))
    for listed, side in product(rows, sides):
        yield {"M": listed, **side}


def _same_shape(shapes: list[Shape]) -> dict[str, Any]:
    if any(shape != shapes[0] for shape in shapes):
        raise PointRefused(f"expected tensors of one shape, got {quote(shapes)}")
    return {SHAPE: shapes[0]}


def _norm(shapes: list[Shape]) -> dict[str, Any]:
    if any(shape != shapes[0][-1:] for shape in shapes[1:]):
        raise PointRefused(f"expected weights as long as a row, got {quote(shapes)}")
    return {SHAPE: shapes[0]}


def _layer_norm(shapes: list[Shape]) -> dict[str, Any]:
    return {**_norm(shapes), "bias": False}


def _read_sizes(shapes: list[Shape], *ranks: int) -> list[int]:
    """Return the sizes of all tensors; refuse tensors with other numbers of dimensions than these."""
    if [len(shape) for shape in shapes] != list(ranks):
        expected = " and ".join(str(rank) for rank in ranks)
        raise PointRefused(f"expected tensors with {expected} dimensions, got {quote(shapes)}")
    return [size for shape in shapes for size in shape]


def _check_equal(shapes: list[Shape], first: int, second: int) -> None:
    if first != second:
        raise PointRefused(f"the tensors do not fit each other: {quote(shapes)}")


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
    "layer_norm": _layer_norm,
    "rms_norm": _norm,
    "index_add": _scatter,
    "scatter": _scatter,
    "gather": _gather,
    "hash_table": _lookup,
}


# Spread: one object of a file with its axes. Lists multiply in the order of the file; dotted keys vary together.

MOST_POINTS = 1_000_000
"""Points of one object; a larger product is taken for a mistake."""

_DEPTH = {"q_lens": 1, "cache_lens": 1, "kv_lens": 1, "slot_mapping": 1, "block_table": 2}
"""Depth of arguments whose values are lists: only a deeper list of them is an axis."""


_SPELLINGS = {"args_type": "arg_type"}
"""Keys of early files of the second generation, and what they are called now."""


class WorkloadAxis(NamedTuple):
    key: str
    """The key as it is written in the file, as in `dtype`."""
    rows: list[dict[str, Any]]
    """The arguments that vary together, for each step of the axis."""
    numbers: Sequence[int] | None = None
    """The row of the file that each of `rows` comes from; None where the file does not list them one by one."""
    place: str = ""
    """The place of the axis, where it is not below its object."""

    def place_of(self, argument: str, value: Any) -> str:
        if self.numbers is None:
            return ""
        found = next((i for i, row in zip(self.numbers, self.rows, strict=True) if row[argument] == value), None)
        return "" if found is None else f"[{found}]"


class Flaw(NamedTuple):
    """A part of an object that is left out."""

    place: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class WorkloadObject:
    task: str
    place: str
    """The JSON path of the object, as in `$.cases[0]`."""
    name: str
    """The part of a source behind the `#`."""
    axes: tuple[WorkloadAxis, ...]
    flaws: tuple[Flaw, ...] = ()
    own_words: bool = False
    """Whether the arguments are as the file writes them; shapes of the first generation are translated."""

    def __len__(self) -> int:
        return prod(len(axis.rows) for axis in self.axes)

    def points(self) -> Iterator[Arguments]:
        for parts in product(*(axis.rows for axis in self.axes)):
            point: dict[str, Any] = {}
            for part in parts:
                point.update(part)
            yield point

    def place_of(self, argument: str, value: Any) -> str:
        axis = next((axis for axis in self.axes if axis.rows and argument in axis.rows[0]), None)
        if axis is None:
            return self.place
        return self.place_of_axis(axis) + axis.place_of(argument, value)

    def place_of_axis(self, axis: WorkloadAxis) -> str:
        return axis.place or self.place + path_step(axis.key)


def read_object(
    task: str, place: str, name: str, written: Mapping[str, Any], lists: Collection[str] = ()
) -> WorkloadObject:
    """Read an object of the second or third generation; raise Refused if nothing of it can be used.

    `lists` are arguments of this operator whose values are lists of numbers.
    """
    axes: list[WorkloadAxis] = []
    flaws: list[Flaw] = []
    for key, value in written.items():
        if not key.startswith("__"):
            axes.append(read_axis(key, value, place, flaws, lists))
    _check_unique_names(axes)
    found = WorkloadObject(task, place, name, tuple(axes), tuple(flaws), own_words=True)
    check_point_count(len(found))
    return found


def check_point_count(points: int) -> None:
    if points > MOST_POINTS:
        raise PointRefused(f"the object expands to {points} points; expected at most {MOST_POINTS}",
                      hint="use fewer values, or several objects")  # fmt: skip


def path_step(key: str) -> str:
    """Return a key as a step of a JSON path."""
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"


def read_axis(key: str, value: Any, place: str, flaws: list[Flaw], lists: Collection[str]) -> WorkloadAxis:
    if "." in key:
        return _dotted_axis(key, value, place, flaws)
    depth, name = 1 if key in lists else _DEPTH.get(key, 0), _SPELLINGS.get(key, key)
    if not isinstance(value, list) or _depth(value) <= depth:
        return WorkloadAxis(key, [{name: value}])
    return WorkloadAxis(key, [{name: item} for item in value], range(len(value)))


def _depth(value: Any) -> int:
    """Return how deep lists are nested; an empty list counts as a list of numbers."""
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else None
    return depth


def _dotted_axis(key: str, value: Any, place: str, flaws: list[Flaw]) -> WorkloadAxis:
    """Read the rows of a dotted key; a row of another length is a flaw and is left out."""
    names = key.split(".")
    rows, numbers = [], []
    for number, row in enumerate(value) if isinstance(value, list) else ():
        if isinstance(row, list) and len(row) == len(names):
            rows.append(dict(zip(names, row, strict=True)))
            numbers.append(number)
        else:
            message = f"expected [{', '.join(names)}], got {quote(row)}"
            flaws.append(
                Flaw(f"{place}{path_step(key)}[{number}]", message, "each row has a value for each name of the key")
            )
    if not isinstance(value, list) or not value:
        message = f"expected rows of [{', '.join(names)}], got {quote(value)}"
        flaws.append(Flaw(place + path_step(key), message, "a dotted key holds a list of rows"))
    if len(set(names)) < len(names):
        raise PointRefused(f"the key `{key}` names an argument twice")
    return WorkloadAxis(key, rows, numbers)


def _check_unique_names(axes: list[WorkloadAxis]) -> None:
    seen: set[str] = set()
    for axis in axes:
        for name in axis.rows[0] if axis.rows else ():
            if name in seen:
                raise PointRefused(f"argument `{name}` is given twice", hint="leave it in one of the keys")
            seen.add(name)
