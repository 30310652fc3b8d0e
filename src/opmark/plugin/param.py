"""Param: a parameter of an operator: its type, its default, and how to parse it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from opmark.errors import InvalidParameter, nearest
from opmark.schema.arguments import canonical_call
from opmark.schema.case import Case, is_call
from opmark.schema.tensor import DTYPES, STORED_AS, spelled_here

# Parse numbers of bytes as people write them: `64K`, and series such as `8..64M`.

_BYTE_PREFIXES = " KMGT"
_NUMBER = r"(\d+)\s*([KMGT]?)(?:i?B)?"
_SERIES = re.compile(rf"{_NUMBER}\s*\.\.\s*{_NUMBER}\s*(?:([*+])\s*{_NUMBER})?", re.IGNORECASE)
_MOST = 10_000


def parse_bytes(text: str) -> int:
    """Parse a number of bytes in powers of 1024, as nccl-tests and PARAM count; ValueError if it is not one."""
    found = re.fullmatch(_NUMBER, text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(text)
    return _count_bytes(found[1], found[2])


def parse_series(value: Any) -> list[Any] | None:
    """`8..64M` doubles from one to the other, `8..64M*4` quadruples, `8..1K+8` goes in steps of 8 bytes; None for
    anything that is not a series. ValueError if the series would be empty, endless or too long."""
    found = _SERIES.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return None
    first, last = _count_bytes(found[1], found[2]), _count_bytes(found[3], found[4])
    by, step = found[5] or "*", _count_bytes(found[6], found[7]) if found[5] else 2
    if not 1 <= first <= last or step < (2 if by == "*" else 1):
        raise ValueError(value)
    values = [first]
    while (following := values[-1] * step if by == "*" else values[-1] + step) <= last:
        values.append(following)
        if len(values) > _MOST:
            raise ValueError(value)
    return values


def _count_bytes(digits: str, prefix: str) -> int:
    return int(digits) << 10 * _BYTE_PREFIXES.index(prefix.upper() or " ")


Params = Mapping[str, Any]
"""All parameters of a case, by name, with defaults filled in, except for those of parameters that were added later."""


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()


@dataclass(frozen=True)
class Param:
    name: str
    kind: str
    """A key of KINDS."""
    doc: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    later: bool = False
    """Added when cases of the operator were stored already. A case has it only where it is not the default, so that the
    ids of older cases stay; the operator reads it with `params.get`."""
    elsewhere: tuple[tuple[str, str], ...] = ()
    """Values that are not among the choices, each with a hint that says where opmark has them."""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_shape(self) -> bool:
        return self.kind in ("shape", "counts")

    def check(self, value: object) -> Any:
        """Return `value` in canonical form; InvalidParameter if it is not of this parameter's type or domain."""
        kind = KINDS[self.kind]
        if not kind.accepts(value):
            raise InvalidParameter(
                f"parameter `{self.name}`: expected {kind.expected}, got {_quote(value)}", self._domain_hint(value)
            )
        if self.choices and value not in self.choices:
            hint = self._operators_hint(str(value)) if self.kind == "dtype" else self._near_hint(str(value))
            listed = f"one of {', '.join(self.choices)}"
            raise InvalidParameter(f"parameter `{self.name}`: expected {listed}, got {_quote(value)}", hint)
        return kind.canonical(value)

    def spread(self, value: Any) -> Any:
        """Expand a series of sizes (`8..64M`) into a list; return any other value unchanged."""
        try:
            found = parse_series(value) if self.kind == "bytes" else None
        except ValueError:
            raise InvalidParameter(
                f"parameter `{self.name}`: the series `{value}` is empty or endless",
                "as in 8..64M (doubling), 8..64M*4, 8..1K+8",
            ) from None
        return value if found is None else found

    def parse(self, text: str) -> Any:
        """Parse and check a value from a command line."""
        try:
            value = KINDS[self.kind].parse(text)
        except ValueError:
            value = _parse_scalar(text)  # `check` raises the error, with what was expected
        return self.check(value)

    def _domain_hint(self, value: object) -> str | None:
        if self.kind != "dtype":
            return f"`{self.name}`: {self.doc}"
        meant, listed = spelled_here(str(value)), f"known: {', '.join(self._known)}"
        if meant and not {*meant} & {*self._known}:
            lacks = f"it is {_quote_names(meant)} here, which this parameter does not take"
            return f"{lacks}; {self._operators_hint(meant[0]) or listed}"
        return self._near_hint(str(value)) or listed

    @property
    def _known(self) -> tuple[str, ...]:
        return self.choices or (*DTYPES, *STORED_AS)

    def _near_hint(self, value: str) -> str | None:
        """Return the choices that other systems call so, or else the one that is written most like it."""
        meant = [name for name in spelled_here(value) if name in self._known]
        names = meant or [near for near in [nearest(value, self._known)] if near]
        return f"did you mean {_quote_names(names)}?" if names else None

    def _operators_hint(self, dtype: str) -> str | None:
        """Return what takes an element type that this parameter does not: as it says itself, or a few operators."""
        if known := dict(self.elsewhere).get(dtype):
            return known
        from opmark.plugin.registry import catalogue

        operators = catalogue().values()
        takers = [op.name for op in operators if self.name in op.by_name and dtype in op.by_name[self.name].choices]
        if not 0 < len(takers) <= _FEW_OPERATORS:
            return None
        return f"`{dtype}` is taken by {', '.join(sorted(takers, key=len))}"


_FEW_OPERATORS = 8
"""Number of operators that fit into a hint."""


class _ParamKind(NamedTuple):
    expected: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any]
    canonical: Callable[[Any], Any] = lambda value: value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_shape(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(_is_int(n) and n >= 1 for n in value)


def _is_counts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(_is_int(n) and n >= 0 for n in value)


def _is_arguments(value: object) -> bool:
    return value is None or isinstance(value, list | tuple | Mapping)


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _parse_shape(text: str) -> list[int]:
    """Parse `4x4` or `[4, 4]`."""
    return [int(n) for n in text.strip("[]()").replace("x", ",").split(",")]


def _parse_counts(text: str) -> list[int]:
    """Parse `3,0,7`, `3x0x7` or `[3, 0, 7]`; `[]` is the empty list."""
    return _parse_shape(text) if text.strip("[]() ") else []


def _bytes(value: Any) -> Any:
    """Return the number that a text such as `64K` stands for, and any other value unchanged."""
    try:
        return parse_bytes(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _parse_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse(text)


def _parse_scalar(text: str) -> Any:
    """Return a number if the text is one, else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _refuse(text: str) -> Any:
    raise ValueError(text)


KINDS: dict[str, _ParamKind] = {
    "size": _ParamKind("a whole number of at least 1", lambda v: _is_int(v) and v >= 1, int),
    "bytes": _ParamKind(
        "bytes, as in 4096, 64K or 8..64M (powers of 1024)",
        lambda v: _is_int(_bytes(v)) and _bytes(v) >= 1,
        parse_bytes,
        lambda v: _bytes(v),
    ),
    "rank": _ParamKind("a whole number of at least 0", lambda v: _is_int(v) and v >= 0, int),
    "count": _ParamKind("a whole number of at least 0", lambda v: _is_int(v) and v >= 0, int),
    "int": _ParamKind("a whole number", _is_int, int),
    "shape": _ParamKind("a list of sizes of at least 1, as in 32x64 or [32, 64]", _is_shape, _parse_shape, list),
    "counts": _ParamKind("a list of whole numbers of at least 0, as in [3, 0, 7]", _is_counts, _parse_counts, list),
    "float": _ParamKind("a finite number", _is_number, float, float),
    "amount": _ParamKind("a finite number of at least 0", lambda v: _is_number(v) and v >= 0, float, float),
    "bool": _ParamKind("true or false", lambda v: isinstance(v, bool), _parse_bool),
    "choice": _ParamKind("a name", lambda v: isinstance(v, str), str),
    "arguments": _ParamKind("arguments of a call, as in [8x64 float32, 2]", _is_arguments, _refuse, canonical_call),
    "dtype": _ParamKind("a data type", lambda v: isinstance(v, str) and (v in DTYPES or v in STORED_AS), str),
}


def _quote(value: object) -> str:
    kind = {bool: "a boolean", str: "text", float: "a number", type(None): "nothing"}.get(type(value))
    text = f"`{value if isinstance(value, float) else msgspec.json.encode(value, enc_hook=str).decode()}`"
    return f"{text} ({kind})" if kind else text


def _quote_names(names: Sequence[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


# Short constructors, so that an operator's parameters read as a table.


def size(name: str, doc: str, default: Any = REQUIRED) -> Param:
    return Param(name, "size", doc, default)


def shape(name: str, doc: str, default: Any = REQUIRED) -> Param:
    return Param(name, "shape", doc, default)


def counts(name: str, doc: str, default: Any = REQUIRED) -> Param:
    return Param(name, "counts", doc, default)


def nbytes(name: str, doc: str, default: Any = REQUIRED) -> Param:
    return Param(name, "bytes", doc, default)


def dtype(
    *choices: str,
    name: str = "dtype",
    default: str = "float32",
    doc: str = "element type",
    later: bool = False,
    elsewhere: tuple[tuple[str, str], ...] = (),
) -> Param:
    return Param(name, "dtype", doc, default, choices, later, elsewhere)


def flag(name: str, doc: str, *, default: bool = False, later: bool = False) -> Param:
    return Param(name, "bool", doc, default, later=later)


def real(name: str, doc: str, default: Any = REQUIRED, *, kind: str = "float") -> Param:
    return Param(name, kind, doc, default)


def integer(name: str, doc: str, default: Any = REQUIRED, *, kind: str = "int") -> Param:
    return Param(name, kind, doc, default)


def choice(name: str, doc: str, choices: tuple[str, ...], default: Any = REQUIRED, *, later: bool = False) -> Param:
    return Param(name, "choice", doc, default, choices, later)


# Format the parameters of a case for people: sizes as `M=256`, shapes as `32x64`, bytes as `64K`, element types
# without a name.

_ALWAYS = ("ranks", "src", "dst")
"""Shown even at their defaults: a number of a communication operator means nothing without its ranks."""
_SHOWN_PREFIXES = "KMGT"


def format_params(case: Case, known: Mapping[str, Param], called: str = "") -> str:
    """Format the parameters of a case, without defaults except for ranks.

    `known` holds the parameters of its operator, `called` the arguments of a foreign call or the mode of a module.
    """
    if {"args", "kwargs"} <= set(case.params) and is_call(case.params) and is_call(_build_arguments(case.params)):
        return " ".join(filter(None, (_arguments(case.params), called)))
    parts = [called] if called else []
    for name, value in case.params.items():
        param = known.get(name)
        if param and param.kind == "dtype":
            parts.append(str(value) if name == "dtype" else f"{name}={value}")
        elif param is None or param.required or value != param.default or _names_ranks(param):
            kind = param.kind if param else ""
            text = short_bytes(value) if kind == "bytes" else _format_value(value, kind)
            parts.append(f"{name}={text}" if name != "shape" else text)
    return " ".join(parts)


def param_options(case: Case, known: Mapping[str, Param]) -> list[str]:
    """Return the options that give a case its parameters on a command line: `-p shape=4x4`, or `--args ...` for a
    callable. Those with their default values are left out, except for element types, of which a size may have
    several."""
    if {"args", "kwargs"} <= set(case.params):
        given = ((name, case.params.get(name)) for name in ("args", "kwargs", "build"))
        return [word for name, value in given if value for word in (f"--{name}", msgspec.json.encode(value).decode())]
    options = []
    for name, value in case.params.items():
        param = known.get(name)
        if param is None or param.required or param.kind == "dtype" or value != param.default:
            shape = isinstance(value, list) and value and not (param and param.kind == "arguments")
            listed = "x".join(map(str, value)) if shape else None
            text = listed or (value if isinstance(value, str) else msgspec.json.encode(value).decode())
            options += ["-p", f"{name}={text}"]
    return options


def _names_ranks(param: Param) -> bool:
    return param.kind == "rank" and param.name in _ALWAYS


def short_bytes(value: int) -> str:
    """Format a number of bytes as it can be typed: `64K` for 65536, plain digits if it is no multiple of 1024."""
    prefix = ""
    for larger in _SHOWN_PREFIXES:
        if value == 0 or value % 1024:
            break
        value, prefix = value // 1024, larger
    return f"{value}{prefix}"


def _arguments(params: dict[str, Any]) -> str:
    """Format the arguments of a callable as a call is written, with those of its constructor first."""
    built, parts = params.get("build"), _build_arguments(params)
    if set(parts) == {"train"}:  # an object that exists already
        built = None
    first, second = (", ".join(_format_call(part)) for part in (parts, params))
    return f"({first})({second})" if built is not None else second


def _build_arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    built = params.get("build")
    return built if isinstance(built, dict) else {"args": built}


def _format_call(call: Mapping[str, Any]) -> list[str]:
    named = [f"{name}={_format_argument(value)}" for name, value in (call.get("kwargs") or {}).items()]
    return [*map(_format_argument, call.get("args") or []), *named]


def _format_argument(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _format_value(value: Any, kind: str = "") -> str:
    if kind == "arguments":
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{name}: {_format_argument(item)}' for name, item in value.items())}}}"
        return f"[{', '.join(map(_format_argument, value))}]"
    if isinstance(value, list):
        return "x".join(str(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
