"""Arguments of a call, written as data: `8x64 float32` is a tensor, other values stand for themselves.

| written | means |
|---|---|
| `8x64 float32`, `100 int64 0..50`, `() float32` | a tensor: shape, element type, domain if it is not the usual one |
| `{shape: [8, 64], dtype: float32, low: 0, high: 1}` | the same |
| `512 int64 0..1000 zipf 1.2` | indices from 0 to 999, a few of them most of the time; 1.05 is the usual power |
| `64 int64 0..512 offsets` | where 64 bags begin that share 512 lookups; `bounds` of 65: and where the last one ends |
| `100 int64 permutation` | each of 0 to 99 once |
| `8x64 float32 strides 1x8` | a tensor that is not contiguous: steps in elements along each axis, 0 repeats |
| `{shape: [64], dtype: int64, high: 512, values: offsets}` | the same as mappings; `alpha` is the power of `zipf` |
| `{dtype: float16}` | the framework's own name of an element type |
| `{tuple: [2, 2]}` | a tuple |
| `{value: "8x64 float32"}` | exactly this value, even if it looks like a tensor |
| `{float: inf}`, `{float: -inf}`, `{float: nan}` | a number that JSON cannot write |
| a number, a text, true, null, a list, a mapping | itself, with tensors inside where there are any |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from math import isfinite, prod
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, nearest
from opmark.schema.tensor import ALPHA, DTYPES, SPREAD, VALUES, IndexValues, TensorSpec, contiguous_strides, is_float

_TENSOR = re.compile(
    r"(\(\)|\d+(?:x\d+)*) +([a-z]\w*)(?: +(\S+?)\.\.(\S+))?"
    rf"(?: +({'|'.join(VALUES)})(?: +(?!strides )(\S+))?)?"
    r"(?: +strides +(\(\)|\d+(?:x\d+)*))?"
)
# Probably a mistyped tensor: sizes with an `x` between them, or an element type after something else.
_LIKE_A_TENSOR = re.compile(rf"-?\d+x|.+ ({'|'.join(DTYPES)})\b")
_INTEGERS = (0, 10)
_PADDED = re.compile(r"(^|x)0\d")
_TENSOR_KEYS = ("shape", "dtype", "low", "high", "values", "alpha", "strides")
_NOT_FINITE = ("inf", "-inf", "nan")
_NO_TENSORS = ({"value"}, {"dtype"}, {"float"})

WEIGHTS = "weights"
"""Stands in `wrt` of a callable for all weights of a module, beside the places of tensors among its arguments."""

Node = Any
"""Any value that YAML and JSON can hold."""


def canonical(node: Node) -> Node:
    """Check arguments and return them in their one canonical spelling; InvalidParameter if they make no sense."""
    if isinstance(node, str):
        return _canonical_text(node)
    if isinstance(node, list | tuple):
        return [canonical(item) for item in node]
    if isinstance(node, Mapping):
        return _canonical_mapping(node)
    if isinstance(node, float) and not isfinite(node):
        return {"float": str(float(node))}
    if node is None or type(node) in (bool, int, float):
        return node
    raise InvalidParameter(
        f"an argument: expected a number, a text, a list or a mapping, got a {type(node).__name__}",
        "a tensor is written as 8x64 float32, an element type as {dtype: float32}",
    )


def _canonical_text(text: str) -> str:
    found = _TENSOR.fullmatch(text)
    if found and not found[5] and not found[7] and not _PADDED.search(found[1]):
        try:
            return found[1] + _canonical_rest(text[found.end(1) :])
        except InvalidParameter:
            pass  # parsing the whole text below raises it again, with a message that quotes the whole text
    spec = _spec(text)
    if spec is None and _LIKE_A_TENSOR.match(text):
        raise InvalidParameter(
            f"`{text}` looks like a tensor, but it is not one: expected a shape and an element type",
            'as in 8x64 float32 or 64 int64 0..512 offsets; write {value: "..."} for a plain text',
        )
    return text if spec is None else _text(spec)


@lru_cache(maxsize=1024)
def _canonical_rest(rest: str) -> str:
    """Canonical element type and domain. Cached: a workload has few of them, but maybe a hundred thousand shapes."""
    spec = _spec(f"(){rest}")
    return rest if spec is None else _text(spec).removeprefix("()")


def canonical_call(node: Node) -> Node:
    """Like `canonical`, for all arguments of a call: keys of a mapping are argument names, never `shape` or `value`."""
    if not isinstance(node, Mapping):
        return canonical(node)
    return {str(name): canonical_call(item) if name == "kwargs" else canonical(item) for name, item in node.items()}


def tensors(node: Node, path: str) -> Iterator[tuple[str, TensorSpec]]:
    """Yield every tensor below a node with its path, as in `args.0`."""
    for place, leaf in _leaves(canonical(node), path):
        written = _spec(leaf) if isinstance(leaf, str) else None
        if written:
            yield place, written.spec


def assemble(node: Node, path: str, given: Mapping[str, Any], dtype: Callable[[str], Any]) -> Any:
    """Build the arguments: tensors come from `given` by their paths, element types from `dtype`."""
    if isinstance(node, str):
        return given.get(path, node)
    if isinstance(node, list):
        return [assemble(item, f"{path}.{i}", given, dtype) for i, item in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    if set(node) == {"value"}:
        return node["value"]
    if set(node) == {"dtype"}:
        return dtype(node["dtype"])
    if set(node) == {"float"}:
        return float(node["float"])
    if set(node) == {"tuple"}:
        return tuple(assemble(node["tuple"], path, given, dtype))
    return {key: assemble(item, f"{path}.{key}", given, dtype) for key, item in node.items()}


def fill_placeholders(node: Node, values: Mapping[str, Any]) -> Node:
    """Replace `{name}`: if it is the whole text, by the value itself; inside a longer text, by the value as text."""
    if isinstance(node, str):
        if "{" not in node:
            return node
        alone = re.fullmatch(r"\{(\w+)\}", node)
        if alone:
            return _value(alone[1], values)
        return re.sub(r"\{(\w+)\}", lambda found: _format_value(_value(found[1], values)), node)
    if isinstance(node, list):
        return [fill_placeholders(item, values) for item in node]
    if isinstance(node, Mapping):
        return {key: fill_placeholders(item, values) for key, item in node.items()}
    return node


def placeholders(node: Node) -> set[str]:
    """Return the names that stand in braces below a node."""
    if isinstance(node, str):
        return set(re.findall(r"\{(\w+)\}", node)) if "{" in node else set()
    items = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    return {name for item in items for name in placeholders(item)}


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        near = nearest(name, values)
        raise InvalidParameter(
            f"`{{{name}}}` stands for a parameter that has no value",
            f"did you mean `{{{near}}}`?" if near else f"give it, as in params: {{{name}: [1, 2]}}",
        )
    return values[name]


def _format_value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _leaves(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    if isinstance(node, list):
        for i, item in enumerate(node):
            yield from _leaves(item, f"{path}.{i}")
    elif isinstance(node, Mapping):
        if set(node) == {"tuple"}:
            yield from _leaves(node["tuple"], path)
        elif set(node) not in _NO_TENSORS:
            for key, item in node.items():
                yield from _leaves(item, f"{path}.{key}")
    else:
        yield path, node


def _canonical_mapping(node: Mapping[str, Any]) -> Node:
    if "shape" in node and "dtype" in node:
        unknown = sorted(set(node) - set(_TENSOR_KEYS))
        if unknown:
            raise InvalidParameter(
                f"a tensor has no `{unknown[0]}`", f"it has {', '.join(sorted(_TENSOR_KEYS))}; or write 8x64 float32"
            )
        return _text(_tensor(*map(node.get, _TENSOR_KEYS)))
    if set(node) == {"dtype"}:
        return {"dtype": _dtype(node["dtype"])}
    if set(node) == {"value"}:
        alone = node["value"]
        return canonical(alone) if isinstance(alone, float) and not isfinite(alone) else dict(node)
    if set(node) == {"float"}:
        if str(node["float"]) not in _NOT_FINITE:
            raise InvalidParameter(f"expected {', '.join(_NOT_FINITE)}, got `{node['float']}`", "as in {float: inf}")
        return {"float": str(node["float"])}
    if set(node) == {"tuple"} and not isinstance(node["tuple"], list | tuple):
        raise InvalidParameter(f"a tuple: expected a list, got `{node['tuple']}`", "as in {tuple: [2, 2]}")
    return {str(key): canonical(item) for key, item in node.items()}


class _WrittenTensor(NamedTuple):
    spec: TensorSpec
    values: IndexValues | None = None


def tensor_fields(text: str) -> dict[str, Any] | None:
    """Return the mapping that means the same as a text, with every field; None if the text is no tensor."""
    written = _spec(text)
    if written is None:
        return None
    spec, values = written
    found = {"shape": list(spec.shape), "dtype": spec.dtype, "low": spec.low, "high": spec.high}
    found |= {"values": values.kind, "alpha": values.alpha} if values else {}
    return found | ({"strides": list(spec.strides)} if spec.strides else {})


def _spec(text: str) -> _WrittenTensor | None:
    """Return the tensor that a text describes, or None if it is a plain text."""
    found = _TENSOR.fullmatch(text)
    if found is None:
        return None
    shape, dtype, low, high, values, alpha, strides = found.groups()
    return _tensor(
        _sizes(shape), dtype, _number(low, text), _number(high, text), values, _number(alpha, text),
        None if strides is None else _sizes(strides),
    )  # fmt: skip


def _sizes(text: str) -> list[int]:
    return [] if text == "()" else [int(n) for n in text.split("x")]


def _tensor(
    shape: Any, dtype: Any, low: Any, high: Any, values: Any = None, alpha: Any = None, strides: Any = None
) -> _WrittenTensor:
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise InvalidParameter(f"the shape of a tensor: expected a list of sizes, got `{shape}`", "as in 8x64 float32")
    name, made, steps = _dtype(dtype), _index_values(values, alpha), _strides(strides, shape)
    if steps and made:
        raise InvalidParameter(f"{made.kind} values have no strides, got {strides}", "leave one of them out")
    usual = (0, prod(shape)) if made and made.kind == "permutation" else _default_domain(name)
    ends = (usual[0] if low is None else low, usual[1] if high is None else high)
    if not all(map(_is_finite, ends)) or not ends[0] < ends[1]:
        got = "..".join(_format_bound(end) if _is_finite(end) else str(end) for end in ends)
        raise InvalidParameter(f"a tensor's values: expected low..high, got {got}", "as in 0..10")
    if made is None:
        return _WrittenTensor(TensorSpec(tuple(shape), name, *ends, strides=steps))
    _check_indices(made, shape, name, ends, given=high is not None)
    draw = partial(made.draw, tuple(shape), *map(int, ends))
    return _WrittenTensor(TensorSpec(tuple(shape), name, *ends, draw), made)


def _strides(strides: Any, shape: list[int]) -> tuple[int, ...]:
    """Return the strides of a tensor; none where they are those of a contiguous one."""
    if strides is None:
        return ()
    if (
        not isinstance(strides, list)
        or len(strides) != len(shape)
        or not all(type(n) is int and n >= 0 for n in strides)
    ):
        raise InvalidParameter(
            f"strides: expected {len(shape)} numbers, one per axis, got `{strides}`", "as in 8x64 float32 strides 1x8"
        )
    usual = contiguous_strides(shape)
    same = all(n <= 1 or own == stride for n, own, stride in zip(shape, usual, strides, strict=True))
    return () if same or 0 in shape else tuple(strides)


def _index_values(values: Any, alpha: Any) -> IndexValues | None:
    if values is not None and values not in VALUES:
        near = nearest(str(values), VALUES)
        raise InvalidParameter(
            f"the values of a tensor: expected {', '.join(VALUES)}, got `{values}`",
            f"did you mean `{near}`?" if near else "leave `values` out for uniform ones",
        )
    if alpha is not None and values != "zipf":
        raise InvalidParameter(f"`alpha` is the power of zipf, got it for {values or 'uniform'} values", "leave it out")
    if alpha is not None and not (_is_finite(alpha) and alpha > 0):
        raise InvalidParameter(f"the power of zipf: expected a number above 0, got `{alpha}`", "as in zipf 1.2")
    return None if values is None else IndexValues(values, ALPHA if alpha is None else float(alpha))


def _check_indices(values: IndexValues, shape: list[int], dtype: str, ends: Any, *, given: bool) -> None:
    kind, domain = values.kind, f"{_format_bound(ends[0])}..{_format_bound(ends[1])}"
    if DTYPES[dtype].kind != "int" or not all(float(end).is_integer() for end in ends):
        raise InvalidParameter(f"{kind}: expected whole numbers, got {dtype} {domain}", "as in 100 int64 0..50 zipf")
    if kind in ("offsets", "bounds") and (len(shape) != 1 or not given):
        got = f"shape {shape}" if len(shape) != 1 else "none"
        raise InvalidParameter(
            f"{kind}: expected one axis and 0..N with the number of lookups, got {got}", f"as in 64 int64 0..512 {kind}"
        )
    if kind == "permutation" and ends[1] - ends[0] != prod(shape):
        raise InvalidParameter(
            f"a permutation of {prod(shape)} elements has as many values, got {domain}", "as in 100 int64 permutation"
        )
    if kind == "zipf" and ends[1] - ends[0] >= SPREAD:
        raise InvalidParameter(f"zipf: expected fewer than {SPREAD} indices, got {domain}")


def _default_domain(dtype: str) -> tuple[float, float]:
    return (-1.0, 1.0) if is_float(dtype) else (0, 2) if dtype == "bool" else _INTEGERS


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _format_bound(value: float) -> str:
    """Format a bound with all its digits: an index that is one too large is an error."""
    return str(int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value))


def _dtype(name: Any) -> str:
    if not isinstance(name, str) or name not in DTYPES:
        near = nearest(str(name), DTYPES)
        raise InvalidParameter(
            f"expected an element type, got `{name}`",
            f"did you mean `{near}`?" if near else f"known: {', '.join(DTYPES)}",
        )
    return name


def _number(text: str | None, whole: str) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter(
            f"`{whole}`: expected numbers on both sides of `..`, got `{text}`", "as in 100 int64 0..50"
        ) from None


def _text(written: _WrittenTensor) -> str:
    spec, values = written
    shape = "x".join(map(str, spec.shape)) or "()"
    usual = (0, spec.elements) if values and values.kind == "permutation" else _default_domain(spec.dtype)
    implied = (spec.low, spec.high) == usual and not (values and values.kind in ("offsets", "bounds"))
    domain = "" if implied else f" {_format_bound(spec.low)}..{_format_bound(spec.high)}"
    power = "" if values is None or values.alpha == ALPHA else f" {_format_bound(values.alpha)}"
    strides = f" strides {'x'.join(map(str, spec.strides))}" if spec.strides else ""
    return f"{shape} {spec.dtype}{domain}{f' {values.kind}{power}' if values else ''}{strides}"
