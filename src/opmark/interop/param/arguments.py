"""Arguments of PARAM configs in opmark's notation.

`{"type": "tensor", "dtype": "float", "shape": [8, 64]}` is `8x64 float32 0..1`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import isfinite
from random import Random
from reprlib import Repr
from typing import Any

from opmark.errors import InvalidParameter, nearest
from opmark.schema.arguments import canonical
from opmark.schema.tensor import DTYPES

Spec = dict[str, Any]
"""An argument, or the `args` and `kwargs` of a call, as PARAM writes them."""

# An error message quotes at most one line of a value, however large or deep it is.
_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 6, 3, 60

Accepts = Callable[[Any], bool]

_LARGEST = 2**63
# Texts that could be read as a tensor in opmark's notation.
_LIKE_A_TENSOR = re.compile(r"\(|-?\d|.* ")

_OTHER_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64", "short": "int16",
    "byte": "uint8", "char": "int8", "long int": "int64", "long long": "int64", "short int": "int16",
    "signed char": "int8", "unsigned char": "uint8", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2", "float8": "float8_e4m3fn",
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "cfloat": "complex64",
    "cdouble": "complex128", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
ELEMENT_TYPES: dict[str, str] = {**{name: name for name in DTYPES}, **_OTHER_NAMES}
"""opmark's element types by the names in PARAM, in torch and in execution traces."""


class Misfit(InvalidParameter):
    """A mistake in a spec, with its place below the spec, as in `.args[0].shape`."""

    def __init__(self, path: str, message: str, hint: str | None = None, *, build: bool = False) -> None:
        """`build`: the mistake is in the build, and not in the input."""
        super().__init__(message, hint)
        self.path = path
        self.build = build


class Draw:
    """Draws the numbers of `value_range`: always the same for a case, wherever it is in a file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._random: Random | None = None
        self.integers = False
        """Whether there is a tensor of whole numbers without a domain."""
        self.has_fixed = False
        """Whether there is a tensor without gradient."""

    @property
    def used(self) -> bool:
        return self._random is not None

    def integer(self, low: int, high: int) -> int:
        """Draw from low to high, both included."""
        return self._generator().randint(low, high)

    def real(self, low: float, high: float) -> float:
        return self._generator().uniform(low, high)

    def _generator(self) -> Random:
        if self._random is None:
            self._random = Random(self._name)
        return self._random


def node_of(arg: Any, draw: Draw, path: str) -> Any:
    """Return an argument in opmark's notation; raise Misfit for a mistake."""
    if not isinstance(arg, dict):
        raise Misfit(path, f'expected an argument, as in {{"type": "int", "value": 1}}, got {quote(arg)}')
    kind = arg.get("type")
    make = _TYPES.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise Misfit(f"{path}.type", f"expected the type of an argument, got {quote(kind)}", suggest(kind, _TYPES))
    return make(arg, draw, path)


def call_of(spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]:
    """Return the `args` and `kwargs` of a spec in opmark's notation; one of them may be left out."""
    args, kwargs = parts(spec)
    return (
        [node_of(arg, draw, f".args[{i}]") for i, arg in enumerate(args)],
        {name: node_of(arg, draw, f".kwargs.{name}") for name, arg in kwargs.items()},
    )


def parts(spec: Any) -> tuple[list[Any], dict[str, Any]]:
    if not isinstance(spec, dict):
        raise Misfit("", f"expected a spec with `args` and `kwargs`, got {quote(spec)}")
    args, kwargs = spec.get("args"), spec.get("kwargs")
    if args is None and kwargs is None:
        near = next((key for key in spec if nearest(key, ("args", "kwargs"))), None)
        raise Misfit(
            "", "expected `args` or `kwargs`, got neither", f"did you mean them by `{near}`?" if near else None
        )
    if args is not None and not isinstance(args, list):
        raise Misfit(".args", f"expected a list of arguments, got {quote(args)}")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise Misfit(".kwargs", f"expected arguments by name, got {quote(kwargs)}")
    if kwargs and not all(isinstance(name, str) for name in kwargs):
        raise Misfit(".kwargs", f"expected names of arguments, got {quote(list(kwargs))}")
    return args or [], kwargs or {}


def element_type(name: Any, path: str) -> str:
    found = ELEMENT_TYPES.get(name.removeprefix("torch.")) if isinstance(name, str) else None
    if found is None:
        raise Misfit(path, f"expected an element type, got {quote(name)}", suggest(name, ELEMENT_TYPES))
    return found


def tensors_of(arg: Any, path: str) -> Iterator[tuple[str, Spec]]:
    """Yield every tensor of a valid argument with its place in opmark's notation, as in `args.0`."""
    if arg["type"] == "tensor":
        yield path, arg
    elif arg["type"] in _SEQUENCES:
        for i, item in enumerate(arg["value"]):
            yield from tensors_of(item, f"{path}.{i}")


def quote(value: Any) -> str:
    """Quote a value for an error message, shortened if it is long."""
    if value is None:
        return "nothing"
    return f"`{str(value).lower() if isinstance(value, bool) else _SHORT.repr(value)}`"


def suggest(name: Any, known: Any) -> str:
    near = nearest(name, known) if isinstance(name, str) else None
    return f"did you mean `{near}`?" if near else f"known: {', '.join(known)}"


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value < _LARGEST


def is_number(value: Any) -> bool:
    return is_whole(value) or (isinstance(value, float) and isfinite(value))


def _tensor(arg: Spec, draw: Draw, path: str) -> str:
    dtype = element_type(arg.get("dtype"), f"{path}.dtype")
    shape = arg.get("shape")
    if not isinstance(shape, list) or not all(is_whole(n) and n >= 0 for n in shape):
        ranged = isinstance(shape, list) and any(isinstance(n, list) for n in shape)
        hint = 'a range needs "__range__": ["shape"] and the RangeConfigIterator' if ranged else "as in [8, 64]"
        raise Misfit(f"{path}.shape", f"expected a list of sizes, got {quote(shape)}", hint)
    if arg.get("requires_grad", True) is not True:
        if arg["requires_grad"] is not False:
            raise Misfit(f"{path}.requires_grad", f"expected true or false, got {quote(arg['requires_grad'])}")
        draw.has_fixed = True
    low, high = arg.get("low"), arg.get("high")
    if "values" in arg or "alpha" in arg:  # opmark's own: PARAM draws all whole numbers alike
        try:
            given = {key: arg[key] for key in ("low", "high", "values", "alpha") if key in arg}
            return str(canonical({"shape": shape, "dtype": dtype, **given}))
        except InvalidParameter as error:
            raise Misfit(f"{path}.values", error.message, error.hint) from None
    if low is not None or high is not None:
        return f"{_sizes(shape)} {dtype} {_domain(low, high, path)}"
    if shape and DTYPES[dtype].kind == "int":
        draw.integers = True
    low, high = usual_domain(dtype, scalar=not shape)
    return f"{_sizes(shape)} {dtype} {low}..{high}"


def _sizes(shape: list[int]) -> str:
    return "x".join(map(str, shape)) or "()"


def usual_domain(dtype: str, *, scalar: bool) -> tuple[int, int]:
    """Return PARAM's domain; whole numbers, which PARAM also draws below 0, are not negative: many are indices."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return 0, 2
    if scalar:
        return (0, 10) if dtype == "uint8" else (-10, 10)
    return (0, 10) if kind == "int" else (0, 1)


def _domain(low: Any, high: Any, path: str) -> str:
    if not is_number(low) or not is_number(high) or not low < high:
        raise Misfit(f"{path}.low", f"expected numbers `low` below `high`, got {quote(low)} and {quote(high)}")
    return f"{low}..{high}"


def _number(accepts: Accepts, ends_accept: Accepts, what: str, convert: Any, draw_one: Any) -> Any:
    def make(arg: Spec, draw: Draw, path: str) -> Any:
        if "value" in arg:
            if not accepts(arg["value"]):
                raise Misfit(f"{path}.value", f"expected {what}, got {quote(arg['value'])}", _value_hint(arg))
            return convert(arg["value"])
        ends = arg.get("value_range")
        if ends is None:
            raise Misfit(path, f"expected `value` or `value_range`, each {what}, got neither")
        fits = isinstance(ends, list) and len(ends) == 2 and all(map(ends_accept, ends)) and ends[0] <= ends[1]
        if not fits or not isfinite(ends[1] - ends[0]):
            raise Misfit(f"{path}.value_range", f"expected [smallest, largest], each {what}, got {quote(ends)}")
        return draw_one(draw, *ends)

    return make


def _value_hint(arg: Spec) -> str | None:
    ranged = isinstance(arg["value"], list)
    return 'a range needs "__range__": ["value"] and the RangeConfigIterator' if ranged else None


def _bool(arg: Spec, draw: Draw, path: str) -> bool:
    value = arg.get("value")
    if not isinstance(value, bool):
        raise Misfit(f"{path}.value", f"expected true or false, got {quote(value)}")
    return value


def _text(arg: Spec, draw: Draw, path: str) -> Any:
    value = arg.get("value", "")
    if not isinstance(value, str):
        raise Misfit(f"{path}.value", f"expected a text, got {quote(value)}")
    return {"value": value} if _LIKE_A_TENSOR.match(value) else value


def _sequence(wrap: Callable[[list[Any]], Any]) -> Any:
    def make(arg: Spec, draw: Draw, path: str) -> Any:
        items = arg.get("value")
        if not isinstance(items, list):
            raise Misfit(f"{path}.value", f"expected a list of arguments, got {quote(items)}")
        return wrap([node_of(item, draw, f"{path}.value[{i}]") for i, item in enumerate(items)])

    return make


# PARAM passes any number on: one of its own files has 2.5 as an int.
_WHOLE = _number(is_number, is_whole, "a whole number of 64 bits", lambda value: value, Draw.integer)
_REAL = _number(is_number, is_number, "a finite number", float, Draw.real)
_LIST = _sequence(lambda items: items)
_SEQUENCES = ("genericlist", "list", "tuple")
_TYPES: dict[str, Callable[[Spec, Draw, str], Any]] = {
    "tensor": _tensor,
    "int": _WHOLE,
    "long": _WHOLE,
    "float": _REAL,
    "double": _REAL,
    "bool": _bool,
    "none": lambda arg, draw, path: None,
    "str": _text,
    "device": _text,
    "genericlist": _LIST,
    "list": _LIST,
    "tuple": _sequence(lambda items: {"tuple": items}),
}


# Data from iterators and generators of plug-ins must be plain: data that JSON can hold.


def is_plain(node: Any) -> bool:
    try:
        return find_odd(node, "") is None
    except RecursionError:
        return False


def find_odd(node: Any, path: str) -> tuple[str, str] | None:
    """Return place and description of the first thing that is not plain data."""
    if node is None or type(node) in (bool, str):
        return None
    if type(node) in (int, float):
        return None if is_number(node) else (path, str(node))
    if isinstance(node, list | tuple):
        places = ((f"{path}[{i}]", item) for i, item in enumerate(node))
    elif isinstance(node, dict):
        odd = next((key for key in node if type(key) is not str), None)
        if odd is not None:
            return path, f"a key of type {type(odd).__name__}"
        places = ((f"{path}.{key}", item) for key, item in node.items())
    else:
        return path, f"a {type(node).__name__}"
    return next((found for place, item in places if (found := find_odd(item, place))), None)


def without_tuples(node: Any) -> Any:
    """Return plain data with lists in place of tuples, which JSON does not have."""
    if isinstance(node, dict):
        return {key: without_tuples(item) for key, item in node.items()}
    return [without_tuples(item) for item in node] if isinstance(node, list | tuple) else node
