"""Fields: how arguments of ByteMicroPerf become parameters of opmark, and back; their values are checked here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from math import prod
from reprlib import Repr
from typing import Any

from opmark.errors import InvalidParameter, nearest
from opmark.plugin.param import REQUIRED, Param
from opmark.plugin.registry import operator
from opmark.schema.tensor import DTYPES, STORED_AS

Arguments = Mapping[str, Any]
"""Arguments of one point, by ByteMicroPerf's names."""

SHAPE = "shape"
"""The whole shape, for files of the first generation; ByteMicroPerf itself has no argument of this name."""

LARGEST = 2**48
"""Largest size; a larger number is taken for a mistake."""
FEW = 2**20
"""Largest number of things that are listed one by one, such as sequences and experts."""

_SPELLINGS = {"float": "float32", "half": "float16", "double": "float64", "float8": "float8_e4m3fn"}
_THEIRS = {"float8_e4m3fn": "float8"}
_NO_TYPE = {
    "int4": "no operator of opmark has weights of 4 bits",
    "mxfloat8": "no operator of opmark has a scale for each block of elements",
    "mxfloat4": "no operator of opmark has a scale for each block of elements",
}

_SLIP = 0.8
"""Least similarity of a mistyped name to the one that was meant: `bach_size` is batch_size, `cache_size` is not."""

_BRIEF = Repr()
_BRIEF.maxlist = _BRIEF.maxdict = 8
_BRIEF.maxstring = _BRIEF.maxother = 60


class PointRefused(Exception):
    """A point that cannot be imported; `argument` is the one to blame, if there is one."""

    def __init__(self, message: str, argument: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.argument, self.hint = message, argument, hint


def quote(value: Any) -> str:
    """Quote a value of a file, shortened if it is long."""
    plain = isinstance(value, str) and value.isprintable() and len(value) <= _BRIEF.maxstring
    return f"`{value if plain else _BRIEF.repr(value)}`"


def check_value(name: str, kind: str, value: Any, most: int = LARGEST) -> Any:
    """Check a value by a kind of `Param`, and return it."""
    if type(value) is int and kind == "size" and 0 < value <= most:  # nearly all values of a large file
        return value
    found = _check_param(_param(name, kind), value)
    numbers = found if isinstance(found, list) else [found]
    if any(isinstance(n, int) and n > most for n in numbers):
        raise PointRefused(f"argument `{name}`: expected at most {most}, got `{max(numbers)}`", name)
    return found


def _check_param(param: Param, value: Any) -> Any:
    try:
        return param.check(value)
    except InvalidParameter as error:
        raise PointRefused(error.message.replace("parameter", "argument", 1), param.name) from None


@cache
def _param(name: str, kind: str) -> Param:
    return Param(name, kind, "")


def dtype_of(name: str, value: Any) -> str:
    """Return opmark's name of an element type."""
    found = _SPELLINGS.get(value, value) if isinstance(value, str) else None
    if found in DTYPES or found in STORED_AS:
        return str(found)
    near = nearest(str(value), DTYPES)
    hint = _NO_TYPE.get(str(value)) or (f"did you mean `{near}`?" if near else f"known: {', '.join(DTYPES)}")
    raise PointRefused(f"argument `{name}`: opmark has no element type {quote(value)}", name, hint)


def foreign_dtype(dtype: str) -> str:
    return _THEIRS.get(dtype, dtype)


def missing_argument(name: str, given: Arguments) -> PointRefused:
    near = nearest(name, given)
    return PointRefused(f"argument `{name}` is missing", hint=f"did you mean it by `{near}`?" if near else "")


@lru_cache(1024)
def similar_name(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that a mistyped one is very similar to."""
    found = get_close_matches(name.casefold(), known, n=1, cutoff=_SLIP)
    return found[0] if found else None


ROW = 1024
"""Elements per row in every file that ByteMicroPerf ships for buffers."""


def split_rows(count: int) -> list[int]:
    """Return elements as a shape in rows of 1024 where possible, and else as one row."""
    return [count // ROW, ROW] if count % ROW == 0 else [1, count]


def sizes_of(given: Arguments, names: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in given:
            raise missing_argument(name, given)
    return [check_value(name, "size", given[name]) for name in names]


def tokens_per_rank(given: Arguments) -> int:
    """Return the tokens of one of the ranks that share them."""
    tokens = sizes_of(given, ("num_tokens",))[0]
    ranks = check_value("sp_size", "size", given.get("sp_size", 1))
    if tokens < ranks:
        raise PointRefused(f"argument `sp_size`: expected at most num_tokens={tokens}, got `{ranks}`", "sp_size")
    return int(tokens // ranks)


@cache
def choices_of(op: str, param: str) -> tuple[str, ...]:
    return operator(op).param(param).choices


class Field(ABC):
    """Translates the arguments `names` of ByteMicroPerf to the parameters `ours` of opmark, and back."""

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    @property
    def ours(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        """Return parameters of opmark; raise Refused for values that opmark cannot measure."""

    @abstractmethod
    def write(self, params: Arguments) -> dict[str, Any] | None:
        """Return arguments of ByteMicroPerf; None where it cannot express the parameters."""

    def remark(self, given: Arguments) -> str:
        """Say how opmark measures these arguments differently; empty where it does not."""
        return ""


@dataclass(frozen=True)
class ValueField(Field):
    """One argument that is one parameter. If it is optional, both systems have the same default."""

    theirs: str
    to: str = ""
    """opmark's name, where it differs."""
    kind: str = "size"
    optional: bool = False
    also: tuple[str, ...] = ()
    """Names of the argument in other generations."""
    most: int = LARGEST

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs, *self.also)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to or self.theirs,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        for name in self.names:
            if name in given:
                return {self.ours[0]: check_value(name, self.kind, given[name], self.most)}
        if self.optional:
            return {}
        raise missing_argument(self.theirs, given)

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.theirs: params[self.ours[0]]}


@dataclass(frozen=True)
class OwnParameter(Field):
    """A parameter of an operator that ByteMicroPerf lacks: both names are opmark's."""

    param: Param

    @property
    def names(self) -> tuple[str, ...]:
        return (self.param.name,)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.param.name,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = self.param.name
        if name in given:
            return {name: _check_param(self.param, given[name])}
        if self.param.required:
            raise missing_argument(name, given)
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.param.name: params[self.param.name]}


@dataclass(frozen=True)
class Word(ValueField):
    words: Mapping[str, str] = field(default_factory=dict)
    """opmark's words by ByteMicroPerf's; of several with the same meaning the first is written."""

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        name = next((name for name in self.names if name in given), None)
        if name is None:
            return {}
        word = given[name]
        if not isinstance(word, str) or word not in self.words:
            near = nearest(str(word), self.words)
            raise PointRefused(f"argument `{name}`: expected one of {', '.join(self.words)}, got {quote(word)}", name,
                          f"did you mean `{near}`?" if near else "")  # fmt: skip
        return {self.ours[0]: self.words[word]}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        found = next((word for word, ours in self.words.items() if ours == params[self.ours[0]]), None)
        return None if found is None else {self.theirs: found}


@dataclass(frozen=True)
class Dtype(Field):
    theirs: str = "dtype"
    to: str = "dtype"
    default: Any = REQUIRED

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        value = given.get(self.theirs, self.default)
        if value is REQUIRED:
            raise missing_argument(self.theirs, given)
        found, choices = dtype_of(self.theirs, value), choices_of(op, self.to)
        if choices and found not in choices:
            raise PointRefused(f"argument `{self.theirs}`: `{op}` has no {value}; expected one of {', '.join(choices)}",
                          self.theirs)  # fmt: skip
        return {self.to: found}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {self.theirs: foreign_dtype(params.get(self.to, self.default))}


@dataclass(frozen=True)
class ShapeField(Field):
    """Several sizes that make up one shape."""

    theirs: tuple[str, ...] = ("batch_size", "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE,)

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, *self.theirs)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if SHAPE in given:
            return {SHAPE: check_value(SHAPE, "shape", given[SHAPE])}
        return {SHAPE: sizes_of(given, self.theirs)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = params[SHAPE]
        return dict(zip(self.theirs, shape, strict=True)) if len(shape) == len(self.theirs) else None


@dataclass(frozen=True)
class Elements(Field):
    """A number of elements, as rows times width; the division into rows does not matter."""

    @property
    def names(self) -> tuple[str, ...]:
        return (SHAPE, "batch_size", "dim_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return ("n",)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {"n": prod(ShapeField().read(given, op)[SHAPE])}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return dict(zip(("batch_size", "dim_size"), split_rows(params["n"]), strict=True))


@dataclass(frozen=True)
class OwnTokens(Field):
    """num_tokens // sp_size, for a parameter of opmark that holds the tokens of one rank."""

    to: str

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "sp_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {self.to: tokens_per_rank(given)}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {"num_tokens": params[self.to]}


@dataclass(frozen=True)
class TokenRows(Field):
    """The tokens of one rank as a shape, each `times` the hidden size long."""

    times: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return ("num_tokens", "sp_size", "hidden_size")

    @property
    def ours(self) -> tuple[str, ...]:
        return (SHAPE,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {SHAPE: [tokens_per_rank(given), self.times * sizes_of(given, ("hidden_size",))[0]]}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        shape = params[SHAPE]
        if len(shape) != 2 or shape[1] % self.times:
            return None
        return {"num_tokens": shape[0], "hidden_size": shape[1] // self.times}


@dataclass(frozen=True)
class Constant(Field):
    """A parameter that ByteMicroPerf has no argument for."""

    to: str
    value: Any

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {self.to: self.value}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {} if params[self.to] == self.value else None


@dataclass(frozen=True)
class Only(Field):
    """An argument that opmark has no parameter for: only the value that the operator always has is accepted."""

    theirs: str
    value: Any = None
    """The accepted value; None: the same as `dtype`."""
    exported: bool = False
    """Whether the argument is written to files."""
    default_dtype: str = ""
    """The value of `dtype` where a file does not have it."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        if self.theirs not in given:
            return {}
        got = given[self.theirs]
        expected = dtype_of("dtype", given.get("dtype", self.default_dtype)) if self.value is None else self.value
        value = dtype_of(self.theirs, got) if self.theirs.endswith("dtype") else got
        if value != expected or isinstance(got, bool) != isinstance(expected, bool):
            raise PointRefused(f"argument `{self.theirs}`: `{op}` accepts only {quote(expected)}, got {quote(got)}",
                          self.theirs)  # fmt: skip
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        if not self.exported:
            return {}
        value = params["dtype"] if self.value is None else self.value
        return {self.theirs: foreign_dtype(value) if isinstance(value, str) else value}


@dataclass(frozen=True)
class Unused(Field):
    """Arguments that change nothing in what opmark measures."""

    theirs: tuple[str, ...]
    instead: str = ""
    """A note on what opmark does instead, for arguments that make a difference in ByteMicroPerf."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.theirs

    def read(self, given: Arguments, op: str) -> dict[str, Any]:
        return {}

    def write(self, params: Arguments) -> dict[str, Any] | None:
        return {}

    def remark(self, given: Arguments) -> str:
        ignored = [f"`{name}`" for name in self.theirs if name in given] if self.instead else []
        return f"{', '.join(ignored)}: {self.instead}" if ignored else ""
