"""Patterns of shapes: read named sizes from the shapes of tensors, and write shapes from sizes.

A pattern lists the sizes of a shape, separated by blanks:

| pattern | meaning |
|---|---|
| `M` | one size, the parameter M; the same name stands for the same size everywhere |
| `*shape` | all other sizes, as a list |
| `%batch` | the product of all other sizes, 1 if there are none |
| `5` | exactly 5 |
| `#lam`, alone | a list of values; their number is the parameter `lam` |
| `?`, `...` | any size; any other sizes. They have no effect |
| `~shape`, alone | a shape that broadcasts to `shape`; the parameter `y` says how |
| `=N`, alone | a tensor that opmark's operator does not have: it is compared and never written |
| `[count] ...`, `[count/2] ...`, `[count/2+2] ...` | tensors of one shape: their number; in pairs; without the last 2 |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from opmark.errors import InvalidParameter

Shape = list[int]
Bound = dict[str, Any]
"""The parameters that are known so far, by name."""

_LIST = re.compile(r"\[(\w+)(?:/(\d+))?(?:\+(\d+))?\] (.*)")
_MOST_DIMENSIONS = 32


def shape_of(value: Any, who: str) -> Shape:
    """Return the shape of a tensor: whole numbers are sizes; other numbers and nested lists are values."""
    if _is_whole(value):
        return _sizes([value], who)
    if isinstance(value, list | tuple) and value and all(map(_is_whole, value)):
        return _sizes(list(value), who)
    return _sizes(_shape_of_values(value, who), who)


def bind(bound: Bound, name: str, value: Any, who: str) -> None:
    if name in bound and bound[name] != value:
        raise InvalidParameter(f"`{who}` sets {name} to {value}, but the inputs before it to {bound[name]}")
    bound[name] = value


def match(pattern: str, value: Any, who: str, bound: Bound) -> None:
    """Bind the parameters that a tensor determines; raise InvalidParameter if it does not fit."""
    if pattern == "...":
        return
    pattern = pattern.removeprefix("=")
    several = _LIST.fullmatch(pattern)
    if several:
        _match_list(several, value, who, bound)
    elif pattern.startswith("#"):
        bind(bound, pattern[1:], _count_values(value, who), who)
    elif pattern.startswith("~"):
        bind(bound, "y", _broadcast(value, bound.get(pattern[1:]), who), who)
    else:
        _match_one(pattern, shape_of(value, who), who, bound)


def write_shape(pattern: str, params: Mapping[str, Any]) -> Any:
    """Return the shape of a pattern with these parameters; None if they do not determine it."""
    if pattern.startswith("="):
        return None
    several = _LIST.fullmatch(pattern)
    if several:
        count, group, aside, each = several.groups()
        size = params.get(count) if not count.isdecimal() else int(count)
        return None if size is None or aside else [write_shape(each, params)] * (size * int(group or 1))
    if pattern.startswith("~"):
        return _unbroadcast(params.get(pattern[1:]), params.get("y", "same"))
    if pattern.startswith("#"):
        return params.get(pattern[1:])
    shape: Shape = []
    for token in pattern.split():
        name = token.lstrip("*%")
        if token in ("?", "...") or (name not in params and not token.isdecimal()):
            return None
        if token.isdecimal():
            shape.append(int(token))
        elif token.startswith("*"):
            shape += params[name]
        elif not token.startswith("%") or params[name] != 1:
            shape.append(params[name])
    return shape


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sizes(shape: Shape, who: str) -> Shape:
    if len(shape) > _MOST_DIMENSIONS or any(size < 1 for size in shape):
        raise InvalidParameter(
            f"`{who}`: expected a shape of sizes of at least 1, got {_short(shape)}", "as in [1024, 1024]"
        )
    return shape


def _shape_of_values(value: Any, who: str) -> Shape:
    shape: Shape = []
    while isinstance(value, list | tuple):
        shape.append(len(value))
        if not value or len(shape) > _MOST_DIMENSIONS:
            break
        value = value[0]
    if not shape or isinstance(value, bool | str | Mapping) or value is None:
        raise InvalidParameter(f"`{who}`: expected a shape, got {_short(value)}", "as in [1024, 1024]")
    return shape


def _count_values(value: Any, who: str) -> int:
    return shape_of(value, who)[0] if _is_whole(value) else prod(_sizes(_shape_of_values(value, who), who))


def _match_one(pattern: str, shape: Sequence[int], who: str, bound: Bound) -> None:
    tokens = pattern.split()
    rest = next((i for i, token in enumerate(tokens) if token[0] in "*%" or token == "..."), None)
    behind = 0 if rest is None else len(tokens) - rest - 1
    fits = len(shape) == len(tokens) if rest is None else len(shape) >= len(tokens) - 1
    if not fits:
        raise InvalidParameter(f"`{who}`: expected a shape ({_format_pattern(tokens)}), got {_short(list(shape))}")
    if rest is None:
        sizes: list[Any] = list(shape)
    else:
        end = len(shape) - behind
        sizes = [*shape[:rest], list(shape[rest:end]), *shape[end:]]
    for token, size in zip(tokens, sizes, strict=True):
        _take(token, size, who, bound)


def _take(token: str, size: Any, who: str, bound: Bound) -> None:
    if token in ("?", "..."):
        return
    if token.isdecimal():
        if size != int(token):
            raise InvalidParameter(f"`{who}`: expected the size {token}, got {size}")
    elif token[0] == "%":
        bind(bound, token[1:], prod(size), who)
    elif token[0] == "*":
        if not size:
            raise InvalidParameter(f"`{who}`: no size is left for `{token[1:]}`")
        bind(bound, token[1:], size, who)
    else:
        bind(bound, token, size, who)


def _match_list(found: re.Match[str], value: Any, who: str, bound: Bound) -> None:
    count, group, aside, pattern = found.groups()
    shapes = [shape_of(item, who) for item in value] if isinstance(value, list | tuple) else []
    if value and isinstance(value, list | tuple) and all(map(_is_whole, value)):
        shapes = [shape_of(value, who)]  # one tensor
    shapes = shapes[: len(shapes) - int(aside or 0)]
    size = int(group or 1)
    if not shapes or len(shapes) % size:
        groups = f" in groups of {size}" if size > 1 else ""
        raise InvalidParameter(f"`{who}`: expected a list of shapes{groups}, got {_short(value)}", "as in [[5, 5]]")
    if any(shape != shapes[0] for shape in shapes):
        raise InvalidParameter(f"`{who}`: expected tensors of one shape, got {_short(value)}")
    _take(count, len(shapes) // size, who, bound)
    _match_one(pattern, shapes[0], who, bound)


def _broadcast(value: Any, shape: Any, who: str) -> str:
    if _is_whole(value) or isinstance(value, float):
        return "scalar"
    own = shape_of(value, who)
    if shape is None or own == shape:
        return "same"
    longer = [1] * (len(shape) - len(own)) + own
    if all(size == 1 for size in own):
        return "scalar"
    if longer == [1] * (len(shape) - 1) + shape[-1:]:
        return "row"
    if longer == [*shape[:-1], 1]:
        return "column"
    raise InvalidParameter(
        f"`{who}`: {_short(own)} is neither the shape {_short(shape)} nor one row, one column or one element of it",
        "measure other ways to broadcast with a callable, as in torch.add",
    )


def _unbroadcast(shape: Any, how: str) -> Any:
    if shape is None:
        return None
    return {"same": shape, "row": shape[-1:], "column": [*shape[:-1], 1], "scalar": [1]}[how]


def _format_pattern(tokens: Sequence[str]) -> str:
    return ", ".join("..." if token[0] in "*%." else token for token in tokens)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
